// A TCPStore client for tests: makes requests, sends any bytes, and reads answers.
#ifndef COHORT_COORDINATOR_SERVICE_TCPSTORE_TESTING_TCPSTORE_TEST_CLIENT_H_
#define COHORT_COORDINATOR_SERVICE_TCPSTORE_TESTING_TCPSTORE_TEST_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"

namespace cohort::coordinator::tcpstore {

// Parts of requests and answers.
std::string NumberBytes(uint64_t number);
std::string TextBytes(absl::string_view text);
// The operation's number, then its fields.
std::string RequestBytes(int operation, const std::vector<std::string>& fields);
// The first bytes of PyTorch 2.
std::string Hello();

// Thread-compatible.
class TestClient {
 public:
  // Connects to 127.0.0.1, and sends `first`.
  explicit TestClient(int port, absl::string_view first);

  // False: the connection is closed.
  bool Send(absl::string_view bytes);
  // The next `size` bytes, or fewer if the connection ends or nothing comes for `timeout`.
  std::string Read(size_t size, absl::Duration timeout = absl::Seconds(20));
  // Sends the bytes and reads an answer of `size` bytes.
  std::string Ask(absl::string_view bytes, size_t size) {
    Send(bytes);
    return Read(size);
  }
  // Whether the coordinator closes the connection in time.
  bool Closed() { return Read(1).empty() && ended_; }
  // Sends nothing more, but can still read.
  void EndSending();
  // Reads until the coordinator closes the connection. False: it does not do so in time.
  bool ReadAll() {
    while (!Read(1).empty()) {
    }
    return ended_;
  }
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
  bool ended_ = false;
};

}  // namespace cohort::coordinator::tcpstore

#endif  // COHORT_COORDINATOR_SERVICE_TCPSTORE_TESTING_TCPSTORE_TEST_CLIENT_H_
