// The rules of objects, queues and keys.
#include <tuple>

#include "absl/strings/str_cat.h"
#include "coordinator/core/testing/invariant_checker.h"

namespace cohort::coordinator {
namespace {

// Longer histories take too long to judge.
constexpr size_t kJudgedHistory = 40;

}  // namespace

void InvariantChecker::Sent(const Stream& stream, int64_t count) {
  if (received_[stream].first < count) sent_[stream].insert(count);
}

void InvariantChecker::Received(const Stream& stream, int64_t count, int64_t sequence) {
  ++objects_received_;
  auto& [last_count, last_sequence] = received_[stream];
  const std::string title =
      absl::StrCat("objects from ", stream.source, " to ", stream.destination, " tag \"",
                   stream.tag, "\" of ", stream.group, " generation ", stream.generation);
  if (count <= last_count || sequence <= last_sequence) {
    Fail(absl::StrCat("R6: ", title, ": #", count, " comes after #", last_count));
  }
  last_count = count;
  last_sequence = sequence;
  std::set<int64_t>& sent = sent_[stream];
  auto& [missing, allowed] =
      missed_[{stream.group, stream.generation, stream.destination, stream.tag}];
  while (!sent.empty() && *sent.begin() <= count) {
    if (*sent.begin() < count) ++missing;
    sent.erase(sent.begin());
  }
  if (missing > allowed) {
    Fail(absl::StrCat("R6: ", title, ": one before #", count, " is lost"));
  }
}

void InvariantChecker::MayMiss(const std::string& group, int64_t generation, int destination,
                               const std::string& tag, int64_t lost) {
  missed_[{group, generation, destination, tag}].second += lost;
}

int64_t InvariantChecker::abandoned_receives(const std::string& group) const {
  int64_t abandoned = 0;
  auto present = generation_.find(group);
  for (const auto& [box, counts] : missed_) {
    const bool now = present != generation_.end() && std::get<1>(box) == present->second;
    if (std::get<0>(box) == group && now) abandoned += counts.second;
  }
  return abandoned;
}

void InvariantChecker::Popped(const std::string& value, const Id128& operation) {
  const auto [it, is_first] = popped_.emplace(value, operation);
  if (!is_first && it->second != operation) {
    Fail(absl::StrCat("R9: queue item ", value, " went to two"));
  }
}

void InvariantChecker::KeySeen(const std::string& key, KeyOperation operation) {
  histories_[key].push_back(std::move(operation));
}

void InvariantChecker::CheckQueueDrained() {
  int64_t lost = 0;
  std::string first_lost;
  for (const std::string& value : pushed_) {
    if (popped_.count(value) != 0) continue;
    ++lost;
    if (first_lost.empty()) first_lost = value;
  }
  if (lost > lost_pops_) {
    Fail(absl::StrCat("R9: ", lost, " queue items are lost, such as ", first_lost, ", and ",
                      lost_pops_, " pops of dead processes ended without an answer"));
  }
}

void InvariantChecker::CheckCounter(int64_t value) {
  if (value < added_ || value > added_ + maybe_added_) {
    Fail(absl::StrCat("R10: the counter is ", value, "; ", added_, " was added for sure and ",
                      maybe_added_, " perhaps"));
  }
}

void InvariantChecker::CheckHistories() {
  for (const auto& [key, history] : histories_) {
    if (unknown_keys_.count(key) != 0 || history.size() > kJudgedHistory) continue;
    if (IsLinearizable(history)) continue;
    std::string text;
    for (const KeyOperation& operation : history) {
      absl::StrAppend(&text, "\n  ", operation.ToString());
    }
    Fail(absl::StrCat("the history of key ", key, " is not linearizable:", text));
  }
}

}  // namespace cohort::coordinator
