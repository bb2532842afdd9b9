// Values from one rank to all others by a queue, beside the plain ring.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/parallel/queue/message_queue.h"
#include "tests/benchmark/patterns/cells.h"
#include "tests/benchmark/patterns/plain_ring.h"

namespace cohort::benchmark {
namespace {

constexpr int64_t kBytes[] = {1024, 1 << 20};

struct Ends {
  Ends(std::unique_ptr<parallel::MessageQueue> queue, PlainRing ring)
      : queue(std::move(queue)), ring(std::move(ring)) {}

  std::unique_ptr<parallel::MessageQueue> queue;
  PlainRing ring;
  std::string value;  // what is written
  std::string copy;   // what was read
};

absl::Status ByQueue(Ends& ends) {
  if (ends.queue->is_writer()) return ends.queue->Enqueue(ends.value);
  return ends.queue->DequeueView([&](absl::string_view value) {
    ends.copy.assign(value.data(), value.size());
    return absl::OkStatus();
  });
}

absl::Status ByRing(Ends& ends) {
  return ends.queue->is_writer() ? ends.ring.Enqueue(ends.value) : ends.ring.Dequeue(&ends.copy);
}

}  // namespace

absl::StatusOr<std::vector<Contest>> QueueContests(client::Group& group,
                                                   const std::string& scratch) {
  std::vector<Contest> contests;
  for (const int64_t bytes : kBytes) {
    COHORT_ASSIGN_OR_RETURN(std::unique_ptr<parallel::MessageQueue> queue,
                            parallel::MessageQueue::Create(group));
    const int readers = group.size() - 1;
    COHORT_ASSIGN_OR_RETURN(PlainRing ring,
                            PlainRing::Open(absl::StrCat(scratch, "/ring-", readers, "-", bytes),
                                            readers, group.rank() - 1));
    auto ends = std::make_shared<Ends>(std::move(queue), std::move(ring));
    ends->value.assign(static_cast<size_t>(bytes), 'v');
    Contest contest;
    contest.pattern = "queue";
    contest.facts = {{"readers", readers}, {"bytes", bytes}};
    contest.contenders = {{"cohort", [ends] { return ByQueue(*ends); }},
                          {"plain_ring", [ends] { return ByRing(*ends); }}};
    contests.push_back(std::move(contest));
  }
  return contests;
}

}  // namespace cohort::benchmark
