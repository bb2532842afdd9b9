// Proposals: how the members agree on the next generation, one proposal at a time.
#include <algorithm>
#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "coordinator/core/group/group.h"

namespace cohort::coordinator {
namespace {
constexpr size_t kDecidedKept = 16;

int64_t SizeOfView(const GroupContext& context, const RankSet& remove,
                   const ProposeViewCall& call) {
  return context.world_size - remove.count() + static_cast<int64_t>(call.add.size());
}

// Returns the ranks that the proposed view removes, lost ones included. Errors: INVALID_ARGUMENT
// (no such rank; too few or too many members), FAILED_PRECONDITION (adds a member that is no
// candidate, or one twice).
absl::StatusOr<RankSet> RemovedBy(GroupContext& context, const ProposeViewCall& call) {
  RankSet remove = RankSet::FromRanges(call.remove);
  if (remove.last() >= context.world_size) {
    return absl::InvalidArgumentError(absl::StrCat("remove names rank ", remove.last(),
                                                   "; the world size is ", context.world_size));
  }
  for (const auto& [rank, cause] : context.gone) remove.Add(rank);
  for (size_t i = 0; i < call.add.size(); ++i) {
    const Member* added = context.roster.ByName(call.add[i]);
    const auto here = call.add.begin() + static_cast<std::ptrdiff_t>(i);
    const bool twice = std::find(call.add.begin(), here, call.add[i]) != here;
    if (added == nullptr || added->state != MemberState::kCandidate || twice) {
      return absl::FailedPreconditionError(
          absl::StrCat("add names ", call.add[i],
                       twice ? " twice" : ", which is no candidate of group ",
                       twice ? "" : context.key.group));
    }
  }
  const int64_t size = SizeOfView(context, remove, call);
  const int64_t max_members = context.shard.limits.max_members;
  const int64_t fewest = context.spec.fixed() ? 1 : context.spec.min_members;
  const int64_t most = context.spec.fixed() ? max_members : context.spec.max_members;
  if (size >= std::max<int64_t>(fewest, 1) && size <= std::min(most, max_members)) return remove;
  return absl::InvalidArgumentError(absl::StrCat("the view would have ", size, " members; group ",
                                                 context.key.group, " takes ", fewest, " to ",
                                                 most));
}

}  // namespace

void Group::Answer(Step& step, Call& call, ProposeViewCall& body) {
  // A repeat may come after the commit, from the generation before.
  Member* member = Admit(step, call, "propose view", AllowedIn::kAnyGeneration);
  if (member == nullptr) return;
  const Id128 operation = call.caller.operation_id;
  const uint64_t asked = Fingerprint(body);
  if (operations_.Repeated<ViewReply>(step, call.id, operation, asked, body)) return;
  const auto used_before = [&] {
    step.Fail(call.id,
              FirstAnswers::UsedBefore(operation, "another view proposal", DescribeRequest(body)));
  };
  for (const auto& [id, decided] : decided_) {
    if (operation.empty() || decided.operation != operation) continue;
    if (decided.fingerprint != asked) return used_before();
    ViewReply reply = ViewFor(member->name, decided.outcome);
    reply.cause = decided.cause;
    step.Answer(call.id, std::move(reply));
    return;
  }
  if (Admit(step, call, "propose view", AllowedIn::kActiveOrBroken) == nullptr) return;
  if (proposal_.has_value()) {
    Proposal& open = *proposal_;
    if (!operation.empty() && open.operation == operation) {  // a repeat: it waits on
      if (open.fingerprint != asked) return used_before();
      if (open.proposer_call != 0) {
        shard_.waits.Done(open.proposer_call);
        open.calls.erase(open.proposer_call);
        step.Fail(open.proposer_call, absl::CancelledError("a repeat of this call replaced it"));
      }
      open.proposer_call = call.id;
      open.calls[call.id] = member->name;
      shard_.waits.Park(call.id, this, *context_.tally, step.now(), step.now() + call.wait);
      return;
    }
    const Cause cause = {CauseKind::kViewChanged, open.view.proposer,  open.proposer_rank, "", "",
                         context_.generation,     step.now()};
    step.Fail(call.id,
              absl::AbortedError(absl::StrCat("group ", context_.key.group,
                                              ": a view proposal is in progress by member ",
                                              open.view.proposer, " (rank ", open.proposer_rank, ")")),
              context_.Explain("propose view", cause));
    return;
  }

  const absl::StatusOr<RankSet> remove = RemovedBy(context_, body);
  if (!remove.ok()) {
    const bool explained = absl::IsFailedPrecondition(remove.status());
    step.Fail(call.id, remove.status(),
              explained ? context_.Explain("propose view", Cause{}) : nullptr);
    return;
  }
  Proposal& proposal = proposal_.emplace();
  proposal.view.id = context_.NextNumber();
  proposal.view.proposer = member->name;
  proposal.view.base_generation = context_.generation;
  proposal.view.remove = remove->ToRanges();
  proposal.view.add = body.add;
  proposal.view.world_size = static_cast<int>(SizeOfView(context_, *remove, body));
  proposal.remove = *remove;
  proposal.needed = RankSet::All(context_.world_size).Minus(*remove);
  proposal.needed.Remove(member->rank);
  proposal.drop_silent = body.drop_silent;
  proposal.operation = operation;
  proposal.fingerprint = asked;
  proposal.proposer_call = call.id;
  proposal.proposer_rank = member->rank;
  proposal.calls[call.id] = member->name;
  shard_.waits.Park(call.id, this, *context_.tally, step.now(), step.now() + call.wait);
  // The proposer may die silently; the proposal must not stay forever.
  proposal.timer = shard_.timers.Schedule(step.now() + call.wait, [this](Step& s) {
    if (!proposal_.has_value()) return;
    proposal_->timer = 0;
    ProposalTimedOut(s);
  });
  const ViewProposal view = proposal.view;
  events_.NotifyOfProposal(step, EventKind::kViewProposed, view, Cause{});
  DecideIfAcknowledged(step);
}

void Group::Answer(Step& step, Call& call, AckViewCall& body) {
  Member* member = Admit(step, call, "acknowledge view", AllowedIn::kAnyGeneration);
  if (member == nullptr) return;
  if (auto it = decided_.find(body.proposal); it != decided_.end()) {
    ViewReply reply = ViewFor(member->name, it->second.outcome);
    reply.cause = it->second.cause;
    step.Answer(call.id, std::move(reply));
    return;
  }
  if (!proposal_.has_value() || proposal_->view.id != body.proposal) {
    step.Fail(call.id, absl::NotFoundError(absl::StrCat("group ", context_.key.group,
                                                        " has no view proposal ", body.proposal)));
    return;
  }
  Proposal& proposal = *proposal_;
  proposal.calls[call.id] = member->name;
  shard_.waits.Park(call.id, this, *context_.tally, step.now(), step.now() + call.wait);
  if (body.refuse && proposal.needed.Contains(member->rank)) {
    Cause cause = CauseOf(CauseKind::kReported, *member,
                          absl::StrCat("refused the view", body.reason.empty() ? "" : ": ", body.reason),
                          step.now());
    EndProposal(step, ViewReply::Outcome::kRefused, cause);
    return;
  }
  if (proposal.needed.Contains(member->rank)) proposal.acknowledged.Add(member->rank);
  DecideIfAcknowledged(step);
}

void Group::DecideIfAcknowledged(Step& step) {
  if (proposal_->needed.Minus(proposal_->acknowledged).empty()) CommitProposal(step);
}

ViewReply Group::ViewFor(const std::string& name, ViewReply::Outcome outcome) const {
  ViewReply reply;
  reply.outcome = outcome;
  reply.generation = context_.generation;
  reply.world_size = context_.world_size;
  reply.revision = events_.newest();
  auto it = context_.roster.members().find(name);
  if (it != context_.roster.members().end()) reply.rank = it->second->rank;
  return reply;
}

void Group::CommitProposal(Step& step) {
  Proposal proposal = *std::move(proposal_);
  proposal_.reset();
  shard_.timers.Cancel(proposal.timer);

  const Member* proposer = context_.roster.ByName(proposal.view.proposer);
  Cause cause = CauseOf(CauseKind::kViewChanged,
                        absl::StrCat("generation ", context_.generation + 1, " follows with ",
                                     proposal.view.world_size, " members"),
                        step.now());
  cause.member = proposal.view.proposer;
  if (proposer != nullptr && proposer->rank >= 0) cause.rank = proposer->rank;

  rounds_.Break(step, cause, false);
  rounds_.Clear(step);
  mailboxes_.Break(step, cause);
  mailboxes_.Clear(step);
  unique_ids_.Break(step, cause);
  unique_ids_.Clear(step);
  // The cause of the generation's end. If it broke, members get the cause of the break, not the new
  // view.
  if (state_ != GroupState::kBroken) cause_ = cause;
  context_.gone.clear();
  ++context_.generation;

  std::vector<std::string> added = proposal.view.add;
  auto next_added = added.begin();
  std::vector<Member*> order;
  for (int rank = 0; rank < context_.roster.slot_count(); ++rank) {
    Member* member = context_.roster.ByRank(rank);
    if (!proposal.remove.Contains(rank)) {
      if (member != nullptr) order.push_back(member);
      continue;
    }
    if (member != nullptr) {
      EndIncarnation(step, *member, cause);
      EraseMember(step, *member);
      context_.roster.Remove(*member, cause);
    }
    if (next_added != added.end()) order.push_back(context_.roster.ByName(*next_added++));
  }
  while (next_added != added.end()) order.push_back(context_.roster.ByName(*next_added++));
  order.erase(std::remove(order.begin(), order.end(), nullptr), order.end());

  for (Member* member : order) context_.roster.ReleaseRank(*member);
  context_.roster.Resize(0);
  for (Member* member : order) {
    context_.roster.AssignRank(*member, context_.roster.slot_count());
    member->state = MemberState::kActive;
    member->last_heard = member->progress_at = step.now();
    WriteMember(step, *member);
  }
  context_.world_size = static_cast<int>(order.size());
  state_ = GroupState::kActive;
  member_infos_.reset();
  WriteGroup(step);

  operations_.Remember(step, context_.key, proposal.operation, proposal.fingerprint,
                       ViewFor(proposal.view.proposer, ViewReply::Outcome::kCommitted),
                       shard_.limits);
  decided_[proposal.view.id] =
      Decided{ViewReply::Outcome::kCommitted, Cause{}, proposal.operation, proposal.fingerprint};
  if (decided_.size() > kDecidedKept) decided_.erase(decided_.begin());
  events_.NotifyOfProposal(step, EventKind::kViewCommitted, proposal.view, Cause{});
  for (const auto& [id, name] : proposal.calls) {
    shard_.waits.Done(id);
    step.Answer(id, ViewFor(name, ViewReply::Outcome::kCommitted));
  }
  for (Member* member : order) {
    if (member->join_call != 0) AnswerJoin(step, *member);
  }
  shard_.timers.Cancel(liveness_timer_);  // progress counts from now, perhaps by a shorter time
  ScheduleLiveness(step.now());
}

void Group::EndProposal(Step& step, ViewReply::Outcome outcome, const Cause& cause) {
  Proposal proposal = *std::move(proposal_);
  proposal_.reset();
  shard_.timers.Cancel(proposal.timer);
  decided_[proposal.view.id] = Decided{outcome, cause, proposal.operation, proposal.fingerprint};
  if (decided_.size() > kDecidedKept) decided_.erase(decided_.begin());
  events_.NotifyOfProposal(step, EventKind::kViewRefused, proposal.view, cause);
  for (const auto& [id, name] : proposal.calls) {
    shard_.waits.Done(id);
    ViewReply reply = ViewFor(name, outcome);
    reply.cause = cause;
    if (outcome == ViewReply::Outcome::kTimedOut) {
      reply.missing = context_.roster.Missing(step.now(), proposal.needed, proposal.acknowledged);
    }
    step.Answer(id, std::move(reply));
  }
}

void Group::ProposalTimedOut(Step& step) {
  Proposal& proposal = *proposal_;
  if (!proposal.drop_silent) {
    EndProposal(step, ViewReply::Outcome::kTimedOut, Cause{});
    return;
  }
  const RankSet silent = proposal.needed.Minus(proposal.acknowledged);
  const int stay = proposal.view.world_size - silent.count();
  if (stay < (context_.spec.fixed() ? 1 : context_.spec.min_members)) {
    EndProposal(step, ViewReply::Outcome::kTimedOut, Cause{});
    return;
  }
  for (int rank : silent.ToVector()) proposal.remove.Add(rank);
  proposal.needed = proposal.acknowledged;
  proposal.view.remove = proposal.remove.ToRanges();
  proposal.view.world_size = stay;
  CommitProposal(step);
}

// A member that is gone cannot acknowledge. If the proposal removes it, its loss does not matter.
void Group::MemberGoneFromProposal(Step& step, const Member& member, const Cause& cause) {
  if (!proposal_.has_value()) return;
  if (member.name == proposal_->view.proposer) {
    EndProposal(step, ViewReply::Outcome::kRefused, cause);
    return;
  }
  const bool to_be_added = std::find(proposal_->view.add.begin(), proposal_->view.add.end(),
                                     member.name) != proposal_->view.add.end();
  if (to_be_added || (member.rank >= 0 && proposal_->needed.Contains(member.rank))) {
    EndProposal(step, ViewReply::Outcome::kRefused, cause);
  }
}

}  // namespace cohort::coordinator
