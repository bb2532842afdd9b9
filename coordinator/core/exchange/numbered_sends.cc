#include "coordinator/core/exchange/numbered_sends.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace cohort::coordinator {
namespace {

std::string SendTitle(int source, const SendCall& call) {
  return absl::StrCat("send #", call.order, " of rank ", source, " to rank ", call.destination,
                      TagText(call.tag));
}

std::string OrderRowId(int source, const SendCall& call) {
  return absl::StrCat(source, absl::string_view("\0", 1), call.destination,
                      absl::string_view("\0", 1), call.tag);
}

}  // namespace

NumberedSends::~NumberedSends() {
  for (const auto& [id, position] : holding_) group_.shard.waits.Done(id);
}

absl::Status NumberedSends::Hold(Step& step, const Member& sender, HeldSend send) {
  const Limits& limits = group_.shard.limits;
  const OrderKey key = KeyOf(sender.rank, send.call);
  auto it = ordered_.find(key);
  if (it == ordered_.end()) {
    if (static_cast<int64_t>(ordered_.size()) >= limits.max_ordered_mailboxes) {
      return absl::ResourceExhaustedError(
          absl::StrCat(SendTitle(sender.rank, send.call), ": group ", group_.key.group, " has ",
                       ordered_.size(), " mailboxes with numbered sends; max_ordered_mailboxes is ",
                       limits.max_ordered_mailboxes));
    }
    it = ordered_.try_emplace(key).first;
  }
  Ordered& ordered = it->second;
  const int64_t order = send.call.order;
  const int64_t next = ordered.last + 1;
  absl::Status refused;
  auto same = ordered.held.find(order);
  if (order < next) {
    refused = absl::AlreadyExistsError(absl::StrCat(SendTitle(sender.rank, send.call),
                                                    ": that number was used by an "
                                                    "earlier send; the next is #",
                                                    next));
  } else if (order - next >= limits.max_send_window) {
    refused = absl::ResourceExhaustedError(
        absl::StrCat(SendTitle(sender.rank, send.call), " is ", order - next, " ahead of #", next,
                     ", which has not come; max_send_window is ", limits.max_send_window));
  } else if (same != ordered.held.end() &&
             (send.operation.empty() || same->second.operation != send.operation)) {
    refused = absl::AlreadyExistsError(absl::StrCat(
        SendTitle(sender.rank, send.call), ": another send with that number waits for #", next));
  }
  if (!refused.ok()) {
    if (ordered.last == 0 && ordered.held.empty()) ordered_.erase(it);
    return refused;
  }
  if (same != ordered.held.end()) {
    const HeldSend older = Unhold(it, order);
    step.Fail(older.id, absl::CancelledError("a repeat of this call replaced it"));
    it = ordered_.try_emplace(key).first;
  }
  send.since = step.now();
  if (order > next) {
    holding_[send.id] = {key, order};
    group_.shard.waits.Park(send.id, this, *group_.tally, step.now(), send.deadline);
  }
  it->second.held.emplace(order, std::move(send));
  return absl::OkStatus();
}

std::optional<HeldSend> NumberedSends::TakeNext(int sender, const SendCall& mailbox) {
  auto it = ordered_.find(KeyOf(sender, mailbox));
  if (it == ordered_.end() || it->second.held.empty()) return std::nullopt;
  const int64_t order = it->second.held.begin()->first;
  if (order != it->second.last + 1) return std::nullopt;
  return Unhold(it, order);
}

void NumberedSends::MarkSent(Step& step, int sender, const SendCall& call) {
  ordered_[KeyOf(sender, call)].last = call.order;
  if (!step.keeps_records()) return;
  step.Write(group_.key, RecordKind::kSendOrder, OrderRowId(sender, call),
             SendOrderRecord{group_.generation, sender, call.destination, call.tag, call.order});
}

void NumberedSends::Clear(Step& step) {
  ordered_.clear();
  step.EraseAll(group_.key, RecordKind::kSendOrder);
}

void NumberedSends::Restore(const SendOrderRecord& record) {
  ordered_[OrderKey(record.destination, record.tag, record.source)].last = record.last;
}

HeldSend NumberedSends::Unhold(std::map<OrderKey, Ordered>::iterator ordered, int64_t order) {
  auto it = ordered->second.held.find(order);
  HeldSend send = std::move(it->second);
  ordered->second.held.erase(it);
  if (ordered->second.last == 0 && ordered->second.held.empty()) ordered_.erase(ordered);
  if (holding_.erase(send.id) != 0) group_.shard.waits.Done(send.id);
  return send;
}

void NumberedSends::Abort(Step& step, std::optional<int> rank, const Cause& cause) {
  std::vector<std::pair<OrderKey, int64_t>> ended;
  for (const auto& [id, position] : holding_) {
    const auto& [destination, tag, source] = position.first;
    if (!rank.has_value() || destination == *rank || source == *rank) ended.push_back(position);
  }
  for (const auto& [key, order] : ended) {
    const HeldSend send = Unhold(ordered_.find(key), order);
    group_.Abort(step, send.id, SendTitle(std::get<2>(key), send.call), cause);
  }
}

void NumberedSends::Forget(Step&, CallId id) {
  const auto it = holding_.find(id);
  if (it == holding_.end()) return;
  const auto [key, order] = it->second;
  Unhold(ordered_.find(key), order);
}

void NumberedSends::TimeOut(Step& step, CallId id) {
  const auto [key, order] = holding_.at(id);
  auto it = ordered_.find(key);
  const int64_t next = it->second.last + 1;
  const HeldSend send = Unhold(it, order);
  step.Fail(id, absl::DeadlineExceededError(absl::StrCat(
                    "group ", group_.key.group, ", ", SendTitle(std::get<2>(key), send.call),
                    " waited ", absl::FormatDuration(step.now() - send.since), " for #", next,
                    ", which did not come; the object was not sent")));
}

void NumberedSends::Describe(Instant now, std::vector<OpenWait>& waits) const {
  for (const auto& [key, ordered] : ordered_) {
    for (const auto& [order, send] : ordered.held) {
      const int source = std::get<2>(key);
      OpenWait wait;
      wait.operation = absl::StrCat(SendTitle(source, send.call), " after #", ordered.last + 1);
      RankSet expected;
      expected.Add(source);
      wait.missing = group_.roster.Missing(now, expected, RankSet());
      wait.missing.since_first = wait.age = now - send.since;
      wait.remaining = send.deadline - now;
      waits.push_back(std::move(wait));
    }
  }
}

void NumberedSends::Explain(CallId id, ParkedCall& parked) const {
  const auto& [key, order] = holding_.at(id);
  const Ordered& ordered = ordered_.at(key);
  parked.rank = std::get<2>(key);
  parked.operation = absl::StrCat(SendTitle(parked.rank, ordered.held.at(order).call), " after #",
                                  ordered.last + 1);
  parked.waits_on = {RankRange{parked.rank, parked.rank}};
}

}  // namespace cohort::coordinator
