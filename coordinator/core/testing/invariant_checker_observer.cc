// The checker's own observations: a watch of each group's events, and a read of each group from
// time to time.
#include "absl/strings/str_cat.h"
#include "coordinator/core/testing/invariant_checker.h"

namespace cohort::coordinator {
namespace {

constexpr absl::Duration kGranule = absl::Milliseconds(250);
constexpr absl::Duration kTimerLag = absl::Milliseconds(20);

Call CallOn(const std::string& group, CallBody body, absl::Duration wait) {
  Call call;
  call.caller.key = GroupKey{"t", group};
  call.wait = wait;
  call.body = std::move(body);
  return call;
}

}  // namespace

void InvariantChecker::Observe(const std::string& group) {
  observed_.push_back(group);
  Watch(group, 0);
  Look(group);
}

void InvariantChecker::OnStart() {
  for (const std::string& group : observed_) Watch(group, 0);
}

void InvariantChecker::Watch(const std::string& group, int64_t from) {
  if (!world_.up() || observed_.empty()) return;
  world_.Ask(
      CallOn(group, WatchGroupCall{from}, absl::Seconds(20)), [this, group](const Reply* reply) {
        if (reply == nullptr) return;  // OnStart watches again
        if (!reply->status.ok()) {
          const int64_t boot = world_.boot();
          world_.After(absl::Milliseconds(20), [this, group, boot] {
            if (boot == world_.boot()) Watch(group, 0);
          });
          return;
        }
        const auto& answer = std::get<WatchGroupReply>(reply->body);
        for (const GroupEvent& event : answer.events) {
          int64_t& last = event_revision_[group];
          if (event.revision <= last) {
            Fail(absl::StrCat("R12: event ", event.revision, " of ", group, " comes after ", last));
          }
          last = std::max(last, event.revision);
          if (event.kind == EventKind::kLost || event.kind == EventKind::kLeft) {
            auto session = sessions_.find({group, event.member});
            if (session != sessions_.end()) fenced_.insert(session->second);
          }
        }
        // Outside of the step that made this event.
        const int64_t boot = world_.boot();
        const int64_t next = answer.closed ? 0 : answer.revision;
        world_.After(absl::ZeroDuration(), [this, group, boot, next] {
          if (boot == world_.boot()) Watch(group, next);
        });
      });
}

void InvariantChecker::Look(const std::string& group) {
  if (observed_.empty()) return;
  if (world_.up()) {
    world_.Ask(CallOn(group, GetGroupCall{}, absl::ZeroDuration()), [this](const Reply* reply) {
      if (reply != nullptr && reply->status.ok()) {
        CheckGroup(std::get<GetGroupReply>(reply->body).group);
      }
    });
  }
  world_.After(world_.random().Between(absl::Milliseconds(50), absl::Milliseconds(400)),
               [this, group] { Look(group); });
}

void InvariantChecker::CheckGroup(const GroupInfo& info) {
  std::set<int> ranks;
  for (const MemberInfo& member : info.members) {
    const bool live =
        member.state == MemberState::kJoining || member.state == MemberState::kActive ||
        member.state == MemberState::kSuspected || member.state == MemberState::kCandidate;
    if (member.rank >= 0 && !ranks.insert(member.rank).second) {
      Fail(absl::StrCat("R2: rank ", member.rank, " of ", info.name, " is taken twice"));
    }
    if (!live) continue;
    // A stream that ended lately extends the lease too.
    if (member.last_heard > info.spec.AttachedLease() + kGranule + kTimerLag) {
      Fail(absl::StrCat("R11: ", member.name, " of ", info.name, " counts as live, last call ",
                        absl::FormatDuration(member.last_heard), " ago"));
    }
    const absl::Duration timeout = info.spec.progress_timeout;
    if (timeout > absl::ZeroDuration() && info.state == GroupState::kActive && member.rank >= 0 &&
        member.progress_age > timeout + kGranule + kTimerLag) {
      Fail(absl::StrCat("R11: ", member.name, " of ", info.name,
                        " counts as live, without progress for ",
                        absl::FormatDuration(member.progress_age)));
    }
  }
  if (info.state == GroupState::kActive) {
    for (int rank = 0; rank < info.world_size; ++rank) {
      if (ranks.count(rank) == 0) {
        Fail(absl::StrCat("R2: rank ", rank, " of active group ", info.name, " has no member"));
      }
    }
    for (const MemberInfo& member : info.members) {
      if (member.rank < 0 && member.state != MemberState::kCandidate) {
        Fail(absl::StrCat("R2: ", member.name, " of active group ", info.name, " has no rank"));
      }
    }
  }
  if (info.bytes_held < 0) Fail(absl::StrCat(info.name, " holds ", info.bytes_held, " bytes"));
}

}  // namespace cohort::coordinator
