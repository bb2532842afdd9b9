// Sends values from one rank to all others by a queue, by the plain ring and by the same queue over
// streams; and, between two ranks, a value there and back.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/parallel/queue/message_queue.h"
#include "cohort/v1/queue.pb.h"
#include "tests/benchmark/patterns/comparisons.h"
#include "tests/benchmark/patterns/plain_ring.h"

namespace cohort::benchmark {
namespace {

constexpr int64_t kBytes[] = {1024, 1 << 20};

using Queue = std::unique_ptr<parallel::MessageQueue>;

struct Ends {
  Ends(Queue queue, Queue stream, PlainRing ring)
      : queue(std::move(queue)), stream(std::move(stream)), ring(std::move(ring)) {}

  Queue queue;
  Queue stream;
  PlainRing ring;
  std::string value;  // the value to write
  std::string copy;   // the value that was read
};

absl::Status ByQueue(parallel::MessageQueue& queue, const std::string& value, std::string* copy) {
  if (queue.is_writer()) return queue.Enqueue(value);
  return queue.DequeueView([&](absl::string_view there) {
    copy->assign(there.data(), there.size());
    return absl::OkStatus();
  });
}

absl::Status ByRing(Ends& ends) {
  return ends.queue->is_writer() ? ends.ring.Enqueue(ends.value) : ends.ring.Dequeue(&ends.copy);
}

// Creates a queue whose readers cannot map its memory, and so read a stream.
absl::StatusOr<Queue> CreateStream(client::Group& group) {
  const bool writes = group.rank() == 0;
  Queue own;
  std::string handle;
  if (writes) {
    parallel::QueueOptions options;
    options.listen = "127.0.0.1:0";
    COHORT_ASSIGN_OR_RETURN(own, parallel::MessageQueue::CreateExternal("stream", options));
    v1::QueueHandle parsed;
    if (!parsed.ParseFromString(own->handle())) {
      return absl::InternalError("a malformed queue handle");
    }
    parsed.clear_local();
    handle = parsed.SerializeAsString();
  }
  COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> handles, group.AllGatherObjects(handle));
  if (!writes) {
    return parallel::MessageQueue::Open(handles[0], absl::StrCat("rank ", group.rank()));
  }
  COHORT_RETURN_IF_ERROR(own->AwaitReaders(group.size() - 1));
  return own;
}

// Two queues and two rings between two ranks, one for each direction.
struct BothDirections {
  BothDirections(Queue there, Queue back, PlainRing ring_there, PlainRing ring_back)
      : queues{std::move(there), std::move(back)},
        rings{std::move(ring_there), std::move(ring_back)} {}

  Queue queues[2];
  PlainRing rings[2];
  std::string value;
  std::string copy;
};

absl::StatusOr<Comparison> RoundTrip(client::Group& group, const std::string& scratch,
                                     int64_t bytes) {
  parallel::QueueOptions options;
  COHORT_ASSIGN_OR_RETURN(Queue there, parallel::MessageQueue::Create(group, options));
  options.writer_rank = 1;
  COHORT_ASSIGN_OR_RETURN(Queue back, parallel::MessageQueue::Create(group, options));
  const int rank = group.rank();
  COHORT_ASSIGN_OR_RETURN(
      PlainRing ring_there,
      PlainRing::Open(absl::StrCat(scratch, "/there-", bytes), 1, rank == 0 ? -1 : 0));
  COHORT_ASSIGN_OR_RETURN(
      PlainRing ring_back,
      PlainRing::Open(absl::StrCat(scratch, "/back-", bytes), 1, rank == 0 ? 0 : -1));
  auto directions = std::make_shared<BothDirections>(std::move(there), std::move(back),
                                                     std::move(ring_there), std::move(ring_back));
  directions->value.assign(static_cast<size_t>(bytes), 'v');
  Comparison comparison;
  comparison.pattern = "queue_round_trip";
  comparison.parameters = {{"bytes", bytes}};
  comparison.implementations = {
      {"cohort",
       [directions] {
         for (const Queue& queue : directions->queues) {
           COHORT_RETURN_IF_ERROR(ByQueue(*queue, directions->value, &directions->copy));
         }
         return absl::OkStatus();
       }},
      {"plain_ring", [directions, rank] {
         for (int direction = 0; direction < 2; ++direction) {
           PlainRing& ring = directions->rings[direction];
           COHORT_RETURN_IF_ERROR(direction == rank ? ring.Enqueue(directions->value)
                                                    : ring.Dequeue(&directions->copy));
         }
         return absl::OkStatus();
       }}};
  return comparison;
}

}  // namespace

absl::StatusOr<std::vector<Comparison>> QueueComparisons(client::Group& group,
                                                         const std::string& scratch) {
  std::vector<Comparison> comparisons;
  for (const int64_t bytes : kBytes) {
    COHORT_ASSIGN_OR_RETURN(Queue queue, parallel::MessageQueue::Create(group));
    COHORT_ASSIGN_OR_RETURN(Queue stream, CreateStream(group));
    const int readers = group.size() - 1;
    COHORT_ASSIGN_OR_RETURN(PlainRing ring,
                            PlainRing::Open(absl::StrCat(scratch, "/ring-", readers, "-", bytes),
                                            readers, group.rank() - 1));
    auto ends = std::make_shared<Ends>(std::move(queue), std::move(stream), std::move(ring));
    ends->value.assign(static_cast<size_t>(bytes), 'v');
    Comparison comparison;
    comparison.pattern = "queue";
    comparison.parameters = {{"readers", readers}, {"bytes", bytes}};
    comparison.implementations = {
        {"cohort", [ends] { return ByQueue(*ends->queue, ends->value, &ends->copy); }},
        {"plain_ring", [ends] { return ByRing(*ends); }},
        {"cohort_stream", [ends] { return ByQueue(*ends->stream, ends->value, &ends->copy); }}};
    comparisons.push_back(std::move(comparison));
    if (group.size() != 2) continue;
    COHORT_ASSIGN_OR_RETURN(comparison, RoundTrip(group, scratch, bytes));
    comparisons.push_back(std::move(comparison));
  }
  return comparisons;
}

}  // namespace cohort::benchmark
