// The readers of a queue, as its writer sees them.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_RING_QUEUE_READER_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_RING_QUEUE_READER_H_

#include <cstdint>
#include <string>

namespace cohort::parallel {

struct QueueReader {
  std::string name;  // "rank 3"
  std::string path;  // "shared memory", "stream 10.0.0.4:4123"
  int64_t bytes_behind = 0;
  int64_t values_behind = 0;  // for a stream an upper bound: its reader reports now and then
};
struct QueueDeparture {
  std::string name;
  std::string why;
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_RING_QUEUE_READER_H_
