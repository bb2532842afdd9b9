// Parked sends and receives: their ends without an object, and their descriptions for operators.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/exchange/mailboxes.h"

namespace cohort::coordinator {

void Mailboxes::Forget(Step&, CallId id) {
  if (auto it = receiving_.find(id); it != receiving_.end()) {
    const BoxKey key = it->second;
    receiving_.erase(it);
    boxes_.at(key).receivers.remove_if([id](const Receiver& r) { return r.id == id; });
    DropIfEmpty(key);
    return;
  }
  if (auto it = sending_.find(id); it != sending_.end()) {
    const int64_t sequence = it->second;
    sending_.erase(it);
    auto position = where_.find(sequence);
    if (position == where_.end()) return;
    boxes_.at(position->second.first)
        .by_source.at(position->second.second)
        .at(sequence)
        .sender_call = 0;
  }
}

void Mailboxes::TimeOut(Step& step, CallId id) {
  if (auto it = receiving_.find(id); it != receiving_.end()) {
    const Box& box = boxes_.at(it->second);
    ReceiveReply reply;
    reply.timed_out = true;
    for (const Receiver& receiver : box.receivers) {
      if (receiver.id != id) continue;
      reply.missing = Missing(step.now(), receiver);
      completed_.Add(receiver.operation, group_.shard.limits.max_operations_kept);
    }
    Forget(step, id);
    step.Answer(id, std::move(reply));
    return;
  }
  if (auto it = sending_.find(id); it != sending_.end()) {
    const int64_t sequence = it->second;
    Forget(step, id);
    step.Answer(id, SendReply{sequence, false});
  }
}

std::string Mailboxes::Title(const Receiver& receiver, const std::string& tag) const {
  return absl::StrCat(
      "receive at rank ", receiver.rank, " from ",
      receiver.source.has_value() ? absl::StrCat("rank ", *receiver.source) : "any rank",
      TagText(tag));
}

MissingReport Mailboxes::Missing(Instant now, const Receiver& receiver) const {
  RankSet expected;
  if (receiver.source.has_value()) {
    expected.Add(*receiver.source);
  } else {
    expected = RankSet::All(group_.world_size);
    expected.Remove(receiver.rank);
  }
  MissingReport report = group_.roster.Missing(now, expected, RankSet());
  report.since_first = now - receiver.since;
  return report;
}

void Mailboxes::Describe(Instant now, std::vector<OpenWait>& waits) const {
  for (const auto& [key, box] : boxes_) {
    for (const Receiver& receiver : box.receivers) {
      OpenWait wait;
      wait.operation = Title(receiver, key.second);
      wait.missing = Missing(now, receiver);
      wait.age = now - receiver.since;
      if (const WaitTable::Entry* entry = group_.shard.waits.Find(receiver.id); entry != nullptr) {
        wait.remaining = entry->deadline - now;
      }
      waits.push_back(std::move(wait));
    }
  }
  numbered_sends_.Describe(now, waits);
}

void Mailboxes::Explain(CallId id, ParkedCall& parked) const {
  if (auto it = receiving_.find(id); it != receiving_.end()) {
    for (const Receiver& receiver : boxes_.at(it->second).receivers) {
      if (receiver.id != id) continue;
      parked.rank = receiver.rank;
      parked.operation = Title(receiver, it->second.second);
      parked.waits_on = Missing(absl::InfinitePast(), receiver).missing;
    }
  } else if (auto sent = sending_.find(id); sent != sending_.end()) {
    if (auto position = where_.find(sent->second); position != where_.end()) {
      parked.rank = position->second.second;
      const int destination = position->second.first.first;
      parked.operation = absl::StrCat("send to rank ", destination, ", until consumed");
      parked.waits_on = {RankRange{destination, destination}};
    }
  }
}

}  // namespace cohort::coordinator
