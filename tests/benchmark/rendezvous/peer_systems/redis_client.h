// The part of Redis's protocol that the benchmark uses: SET, LPUSH and BLPOP over one blocking
// connection.
#ifndef COHORT_TESTS_BENCHMARK_RENDEZVOUS_PEER_SYSTEMS_REDIS_CLIENT_H_
#define COHORT_TESTS_BENCHMARK_RENDEZVOUS_PEER_SYSTEMS_REDIS_CLIENT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cohort::benchmark {

// Not thread-safe: one per thread, as blocking clients of Redis are used.
class RedisClient {
 public:
  static absl::StatusOr<std::unique_ptr<RedisClient>> Connect(int port);
  ~RedisClient();
  RedisClient(const RedisClient&) = delete;
  RedisClient& operator=(const RedisClient&) = delete;

  absl::Status Set(absl::string_view key, absl::string_view value);
  absl::Status Push(absl::string_view list, absl::string_view value);
  // Blocks until the list has an element, at most 30 s (then NOT_FOUND).
  absl::StatusOr<std::string> BlockingPop(absl::string_view list);

 private:
  explicit RedisClient(int fd) : fd_(fd) {}

  absl::Status Send(const std::vector<absl::string_view>& words);
  absl::StatusOr<std::string> ReadLine();
  absl::StatusOr<std::string> ReadBulk();
  // Reads until `buffer_` holds `size` bytes behind `position_`.
  absl::Status Fill(size_t size);

  const int fd_;
  std::string buffer_;
  size_t position_ = 0;
};

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_RENDEZVOUS_PEER_SYSTEMS_REDIS_CLIENT_H_
