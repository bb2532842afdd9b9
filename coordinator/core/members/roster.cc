#include "coordinator/core/members/roster.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/incarnation_hash.h"

namespace cohort::coordinator {
namespace {

int64_t FencedCost(const Cause& why) {
  return SlotCost<std::pair<Id128, Cause>>() + static_cast<int64_t>(sizeof(Id128)) +
         CostOf(why.member) + CostOf(why.host) + CostOf(why.detail);
}

int64_t PastIncarnationCost(const std::string& name) {
  return static_cast<int64_t>(sizeof(std::pair<std::string, int64_t>)) + CostOf(name);
}

}  // namespace

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
    slot_count_ = std::max(slot_count_, added.rank + 1);
    by_rank_[added.rank] = &added;
  }
  members_[added.name] = std::move(member);
  tally_.account()->Count(QuotaKind::kMembers, 1);
  Recharge(added);
  return added;
}

void Roster::Recharge(Member& member) {
  // Progress and the last operation change with every call, and are short.
  constexpr int64_t kChangingTexts = 2 * 144;
  const int64_t texts = CostOf(member.host) + CostOf(member.addresses) + CostOf(member.labels) +
                        CostOf(member.identity);
  if (member.charge.bytes() == 0) member.charge = Charge(tally_, MemoryKind::kMembers);
  // Its MemberInfo is kept for calls that ask for all members.
  member.charge.Set(NodeCost<std::pair<std::string, std::unique_ptr<Member>>>() +
                    BlockCost(sizeof(Member)) + SlotCost<std::pair<Id128, Member*>>() +
                    SlotCost<std::pair<int, Member*>>() + BlockCost(sizeof(MemberInfo)) +
                    kChangingTexts + 3 * CostOf(member.name) + 2 * texts);
}

void Roster::Remove(Member& member, const Cause& why) {
  FenceSession(member.session, why);
  RememberIncarnation(member);
  ReleaseRank(member);
  members_.erase(members_.find(member.name));
  tally_.account()->Count(QuotaKind::kMembers, -1);
}

void Roster::Fence(Member& member, const Cause& why) {
  FenceSession(member.session, why);
  member.session = Id128{};
}

void Roster::Replace(Member& member, int64_t incarnation, const Id128& session, const Cause& why) {
  FenceSession(member.session, why);
  RememberIncarnation(member);
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

void Roster::AssignRank(Member& member, int rank) {
  ReleaseRank(member);
  slot_count_ = std::max(slot_count_, rank + 1);
  by_rank_[rank] = &member;
  member.rank = rank;
}

void Roster::ReleaseRank(Member& member) {
  if (member.rank >= 0 && ByRank(member.rank) == &member) by_rank_.erase(member.rank);
  member.rank = -1;
}

const Cause* Roster::WhyFenced(const Id128& session) const {
  auto it = fenced_.find(session);
  return it == fenced_.end() ? nullptr : &it->second;
}

bool Roster::WasReplaced(absl::string_view name, int64_t incarnation) const {
  bool is_past = false, superseded = false;
  for (const auto& [past_name, past_incarnation] : past_incarnations_) {
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

void Roster::RememberIncarnation(const Member& member) {
  past_incarnations_.emplace_back(member.name, member.incarnation);
  fenced_charge_.Add(PastIncarnationCost(member.name));
  if (past_incarnations_.size() <= kFencedKept) return;
  fenced_charge_.Add(-PastIncarnationCost(past_incarnations_.front().first));
  past_incarnations_.pop_front();
}

void Roster::FenceSession(const Id128& session, const Cause& why) {
  if (session.empty()) return;
  sessions_.erase(session);
  if (fenced_.insert({session, why}).second) {
    fenced_order_.push_back(session);
    fenced_charge_.Add(FencedCost(why));
  }
  if (fenced_order_.size() > kFencedKept) {
    auto oldest = fenced_.find(fenced_order_.front());
    fenced_charge_.Add(-FencedCost(oldest->second));
    fenced_.erase(oldest);
    fenced_order_.pop_front();
  }
}

int Roster::CountLive() const {
  int live = 0;
  for (const auto& [name, member] : members_) live += member->live() ? 1 : 0;
  return live;
}

bool Roster::AnyLive() const {
  // On from the member that was found last: those before it were lost before it.
  const auto found = [this](auto from, auto to) {
    for (; from != to; ++from) {
      if (!from->second->live()) continue;
      if (from->first != last_live_) last_live_ = from->first;
      return true;
    }
    return false;
  };
  const auto last = members_.lower_bound(last_live_);
  return found(last, members_.end()) || found(members_.begin(), last);
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
    if (const Member* member = ByRank(rank); member != nullptr) {
      one.member = member->name;
      one.host = member->host;
      one.last_heard = now - member->last_heard;
      one.attached = !member->streams.empty();
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
  if (member.hashed_incarnation != member.incarnation) {
    member.hashed_incarnation = member.incarnation;
    member.incarnation_hash = IncarnationHash(member.incarnation);
  }
  info.incarnation_hash = member.incarnation_hash;
  info.rank = member.rank;
  info.state = member.state;
  info.host = member.host;
  info.addresses = member.addresses;
  info.labels = member.labels;
  info.last_heard = member.join_call != 0 ? absl::ZeroDuration() : now - member.last_heard;
  info.attached = !member.streams.empty();
  info.progress = member.progress;
  info.progress_operation = member.progress_operation;
  info.progress_age = now - member.progress_at;
  return info;
}

std::vector<MemberInfo> Roster::Infos(Instant now) const {
  std::vector<MemberInfo> infos;
  infos.reserve(members_.size());
  for (const auto& [rank, member] : by_rank_) infos.push_back(Info(now, *member));
  for (const auto& [name, member] : members_) {
    if (member->rank < 0) infos.push_back(Info(now, *member));
  }
  return infos;
}

}  // namespace cohort::coordinator
