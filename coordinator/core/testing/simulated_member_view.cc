// The agreements of simulated members on the next view and on the live ranks.
#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "coordinator/core/testing/simulated_member.h"

namespace cohort::coordinator {

void SimulatedMember::AckView(const ViewProposal& proposal) {
  for (const auto& [key, operation] : open_) {
    if (operation.slot == kView) return;
  }
  AckViewCall ack;
  ack.proposal = proposal.id;
  ack.refuse = !calm_ && random_.Chance(0.1);
  Begin(kView, std::move(ack), absl::Seconds(3), [this](const Reply* reply) {
    if (!alive_ || reply == nullptr || !reply->status.ok()) {
      if (reply != nullptr && alive_) Over(*reply);
      return;
    }
    const auto& view = std::get<ViewReply>(reply->body);
    if (view.outcome == ViewReply::Outcome::kCommitted) broken_ = true;  // Join returns the rank
  });
}

void SimulatedMember::ProposeView() {
  ProposeViewCall propose;
  if (random_.Chance(0.3)) {
    const int rank = random_.Below(world_size_);
    propose.remove = {RankRange{rank, rank}};
  }
  propose.drop_silent = random_.Chance(0.5);
  Propose(std::move(propose));
}

void SimulatedMember::Grow() {
  Begin(kProgram, GetGroupCall{}, absl::ZeroDuration(), [this](const Reply* reply) {
    if (!alive_) return;
    if (reply == nullptr || !reply->status.ok()) return NextStep();
    ProposeViewCall propose;
    for (const MemberInfo& member : std::get<GetGroupReply>(reply->body).group.members) {
      const int size = world_size_ + static_cast<int>(propose.add.size());
      if (member.state == MemberState::kCandidate && size < plan_.spec.max_members) {
        propose.add.push_back(member.name);
      }
    }
    if (propose.add.empty() || broken_) return NextStep();
    Propose(std::move(propose));
  });
}

void SimulatedMember::Propose(ProposeViewCall propose) {
  Begin(kProgram, std::move(propose), absl::Seconds(4), [this](const Reply* reply) {
    if (!alive_) return;
    NextStep();
    if (reply == nullptr) return;
    if (!reply->status.ok()) {
      const bool busy = absl::StrContains(reply->status.message(), "proposal is in progress");
      const bool too_small = absl::IsInvalidArgument(reply->status);
      const bool no_candidate = absl::IsFailedPrecondition(reply->status);
      if (!busy && !too_small && !no_candidate && !Over(*reply))
        Unexpected(ProposeViewCall{}, *reply);
      return;
    }
    const auto& view = std::get<ViewReply>(reply->body);
    if (view.outcome == ViewReply::Outcome::kCommitted) {
      if (view.rank < 0) {
        is_joined_ = false;
      } else {
        Adopt(view.generation, session_, view.rank, view.world_size);
      }
    }
  });
}

void SimulatedMember::AgreeAlive() {
  EnterRoundCall enter;
  enter.kind = RoundKind::kAgreeAlive;
  enter.name = "alive";
  enter.number = std::max<int64_t>(next_number_["alive"], 1);
  Begin(kProgram, enter, absl::Seconds(2),
        [this, number = enter.number, generation = generation_](const Reply* reply) {
          if (!alive_) return;
          NextStep();
          if (reply == nullptr || generation != generation_) return;
          if (!reply->status.ok()) {
            if (!Over(*reply)) Unexpected(EnterRoundCall{}, *reply);
            return;
          }
          const RoundEnd& end = *std::get<RoundReply>(reply->body).end;
          next_number_["alive"] = std::max(number + 1, end.next_number);
          checker_.AgreedAlive(plan_.group, generation_, number, end);
        });
}

}  // namespace cohort::coordinator
