#include "coordinator/core/roster.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace cohort::coordinator {

Member* Roster::ByName(absl::string_view name) {
  auto it = members_.find(name);
  return it == members_.end() ? nullptr : it->second.get();
}

Member* Roster::BySession(const Id128& session) {
  auto it = sessions_.find(session);
  return it == sessions_.end() ? nullptr : it->second;
}

Member& Roster::Add(std::unique_ptr<Member> member) {
  Member& added = *member;
  if (!added.session.empty()) sessions_[added.session] = &added;
  if (added.rank >= 0) {
    if (added.rank >= seat_count()) Resize(added.rank + 1);
    seats_[added.rank] = &added;
  }
  members_[added.name] = std::move(member);
  return added;
}

void Roster::Remove(Member& member, const Cause& why) {
  FenceSession(member.session, why);
  NotePastLife(member);
  Unseat(member);
  members_.erase(members_.find(member.name));
}

void Roster::Fence(Member& member, const Cause& why) {
  FenceSession(member.session, why);
  member.session = Id128{};
}

void Roster::Replace(Member& member, int64_t incarnation, const Id128& session, const Cause& why) {
  FenceSession(member.session, why);
  NotePastLife(member);
  member.incarnation = incarnation;
  member.tensors.reset();
  member.asked_at = absl::InfinitePast();
  member.reports = member.report_due = false;
  SetSession(member, session);
}

void Roster::SetSession(Member& member, const Id128& session) {
  sessions_.erase(member.session);
  member.session = session;
  sessions_[session] = &member;
}

void Roster::Seat(Member& member, int rank) {
  Unseat(member);
  if (rank >= seat_count()) Resize(rank + 1);
  seats_[rank] = &member;
  member.rank = rank;
}

void Roster::Unseat(Member& member) {
  if (member.rank >= 0 && member.rank < seat_count() && seats_[member.rank] == &member) {
    seats_[member.rank] = nullptr;
  }
  member.rank = -1;
}

const Cause* Roster::WhyFenced(const Id128& session) const {
  auto it = fenced_.find(session);
  return it == fenced_.end() ? nullptr : &it->second;
}

bool Roster::WasReplaced(absl::string_view name, int64_t incarnation) const {
  bool is_past = false, superseded = false;
  for (const auto& [past_name, past_incarnation] : past_lives_) {
    if (past_incarnation == incarnation && past_name == name) {
      is_past = true;
      superseded = false;  // it may have come back as itself
    } else if (is_past && past_name == name) {
      superseded = true;
    }
  }
  auto present = members_.find(name);
  if (present != members_.end() && present->second->incarnation == incarnation) return false;
  return is_past && (superseded || present != members_.end());
}

void Roster::NotePastLife(const Member& member) {
  past_lives_.emplace_back(member.name, member.incarnation);
  if (past_lives_.size() > kFencedKept) past_lives_.pop_front();
}

void Roster::FenceSession(const Id128& session, const Cause& why) {
  if (session.empty()) return;
  sessions_.erase(session);
  if (fenced_.insert({session, why}).second) fenced_order_.push_back(session);
  if (fenced_order_.size() > kFencedKept) {
    fenced_.erase(fenced_order_.front());
    fenced_order_.pop_front();
  }
}

int Roster::CountLive() const {
  int live = 0;
  for (const auto& [name, member] : members_) live += member->live() ? 1 : 0;
  return live;
}

MissingReport Roster::Missing(Instant now, const RankSet& expected, const RankSet& arrived) const {
  const RankSet missing = expected.Minus(arrived);
  MissingReport report;
  report.expected_count = expected.count();
  report.arrived_count = arrived.count();
  report.arrived = arrived.ToRanges();
  report.missing = missing.ToRanges();
  for (int rank : missing.ToVector()) {
    if (report.details.size() == MissingReport::kDetails) break;
    MissingMember one;
    one.rank = rank;
    if (const Member* member = BySeat(rank); member != nullptr) {
      one.member = member->name;
      one.host = member->host;
      one.last_heard = now - member->last_heard;
      one.last_operation = member->operation;
      if (!member->operation_name.empty()) {
        absl::StrAppend(&one.last_operation, " \"", member->operation_name, "\"");
      }
      if (member->operation_number != 0) {
        absl::StrAppend(&one.last_operation, " #", member->operation_number);
      }
      one.last_operation_age = now - member->operation_at;
      one.progress = member->progress;
      one.progress_operation = member->progress_operation;
      one.progress_age = now - member->progress_at;
    }
    report.details.push_back(std::move(one));
  }
  return report;
}

MemberInfo Roster::Info(Instant now, const Member& member) const {
  MemberInfo info;
  info.name = member.name;
  info.incarnation = member.incarnation;
  info.rank = member.rank;
  info.state = member.state;
  info.host = member.host;
  info.addresses = member.addresses;
  info.labels = member.labels;
  info.last_heard = member.join_call != 0 ? absl::ZeroDuration() : now - member.last_heard;
  info.progress = member.progress;
  info.progress_operation = member.progress_operation;
  info.progress_age = now - member.progress_at;
  return info;
}

std::vector<MemberInfo> Roster::Infos(Instant now) const {
  std::vector<MemberInfo> infos;
  infos.reserve(members_.size());
  for (const Member* member : seats_) {
    if (member != nullptr) infos.push_back(Info(now, *member));
  }
  for (const auto& [name, member] : members_) {
    if (member->rank < 0) infos.push_back(Info(now, *member));
  }
  return infos;
}

}  // namespace cohort::coordinator
