// Questions of operators about a group: missing ranks, waiting calls, counts.
#include <algorithm>
#include <initializer_list>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/group/group.h"
#include "coordinator/core/members/tensor_waits.h"

namespace cohort::coordinator {
namespace {

constexpr size_t kWaitsShown = 100;
constexpr size_t kDumped = 10000;

}  // namespace

void Group::Answer(Step& step, Call& call, WhoIsMissingCall& body) {
  if (body.ask) events_.AskForReports(step);
  WhoIsMissingReply reply;
  reply.group = context_.key.group;
  reply.generation = context_.generation;
  reply.state = state_;
  reply.cause = state_ == GroupState::kActive ? Cause{} : cause_;
  reply.world_size = context_.world_size;
  if (state_ == GroupState::kForming && !context_.roster.members().empty()) {
    OpenWait wait;
    wait.operation = absl::StrCat("join of generation ", context_.generation);
    wait.missing = MissingRanks(step.now());
    Instant since = step.now(), deadline = step.now();
    for (const auto& [id, name] : joins_) {
      const WaitTable::Entry* entry = shard_.waits.Find(id);
      if (entry == nullptr) continue;
      since = std::min(since, entry->since);
      deadline = std::max(deadline, entry->deadline);
    }
    wait.age = step.now() - since;
    wait.remaining = deadline - step.now();
    reply.waits.push_back(std::move(wait));
  }
  if (proposal_.has_value()) {
    OpenWait wait;
    wait.operation = absl::StrCat("view proposal ", proposal_->view.id, " of ", proposal_->view.proposer);
    wait.missing =
        context_.roster.Missing(step.now(), proposal_->needed, proposal_->acknowledged);
    reply.waits.push_back(std::move(wait));
  }
  rounds_.Describe(step.now(), reply.waits);
  mailboxes_.Describe(step.now(), reply.waits);
  unique_ids_.Describe(step.now(), reply.waits, reply.inits);
  std::stable_sort(reply.waits.begin(), reply.waits.end(),
                   [](const OpenWait& a, const OpenWait& b) { return a.age > b.age; });
  if (reply.waits.size() > kWaitsShown) reply.waits.resize(kWaitsShown);
  if (state_ != GroupState::kForming) DescribeTensorWaits(step.now(), context_, reply);
  step.Answer(call.id, std::move(reply));
}

void Group::Answer(Step& step, Call& call, DumpWaitsCall&) {
  DumpWaitsReply reply;
  std::vector<CallId> ids;
  for (const WaitOwner* const owner : std::initializer_list<const WaitOwner*>{
           this, &rounds_, &mailboxes_, &mailboxes_.numbered_sends(), &unique_ids_, &store_}) {
    const std::vector<CallId> some = shard_.waits.IdsOf(*owner);
    ids.insert(ids.end(), some.begin(), some.end());
  }
  for (CallId id : ids) {
    const WaitTable::Entry* entry = shard_.waits.Find(id);
    if (store_.IsWatch(id)) continue;
    ++reply.total_count;
    if (reply.calls.size() == kDumped) continue;
    ParkedCall& parked = reply.calls.emplace_back();
    parked.group = context_.key.group;
    entry->owner->Explain(id, parked);
    const Member* member = entry->owner == &store_ ? context_.roster.BySession(store_.SessionOf(id))
                                                   : context_.roster.ByRank(parked.rank);
    if (member != nullptr) {
      parked.member = member->name;
      parked.rank = member->rank;
    }
    parked.age = step.now() - entry->since;
    parked.remaining = entry->deadline - step.now();
  }
  step.Answer(call.id, std::move(reply));
}

void Group::Answer(Step& step, Call& call, StatsCall&) {
  StatsReply reply;
  reply.object_count = mailboxes_.object_count();
  reply.unacknowledged_count = mailboxes_.unacknowledged_count();
  reply.open_round_count = rounds_.open_count();
  reply.round_name_count = rounds_.name_count();
  reply.waiter_count = waiter_count();
  reply.bytes_held = context_.ledger->held();
  reply.barriers_released = rounds_.released_barriers();
  reply.objects_expired = mailboxes_.expired_count();
  reply.key_count = store_.key_count();
  step.Answer(call.id, reply);
}

}  // namespace cohort::coordinator
