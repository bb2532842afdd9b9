// A socket that speaks as NCCL's RAS does, or does not, for tests.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_RAS_TESTING_RAS_SERVER_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_RAS_TESTING_RAS_SERVER_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"
#include "gtest/gtest.h"

namespace cohort::worker {

inline std::string RasRankText(int rank, int pid, int all_reduces, const std::string& error = "0") {
  return absl::StrCat(R"({"rank": )", rank, R"(, "host": "10.0.0.)", rank, R"(", "pid": )", pid,
                      R"(, "cuda_dev": )", rank, R"(, "nvml_dev": 0, "status": {"init_state": 0,)",
                      R"( "async_error": )", error, R"(, "finalize_called": false,)",
                      R"( "destroy_flag": false, "abort_flag": false}, "collective_counts": {)",
                      R"("Broadcast": 2, "AllReduce": )", all_reduces, "}}");
}
inline std::string RasMissingText(int rank, const std::string& unresponsive,
                                  const std::string& dead) {
  return absl::StrCat(R"({"rank": )", rank, R"(, "host": "10.0.0.9", "pid": 77, "cuda_dev": 1,)",
                      R"( "nvml_dev": 1, "status": {"unresponsive": )", unresponsive,
                      R"(, "considered_dead": )", dead, "}}");
}
// As NCCL 2.28 writes it: `ranks` and `missing` as above.
inline std::string RasReportText(const std::string& ranks, const std::string& missing, int size) {
  return absl::StrCat(
      "{\n  \"nccl_version\": \"2.28.9\",\n  \"cuda_runtime_version\": 13000,\n",
      "  \"cuda_driver_version\": 13000,\n  \"timestamp\": \"2026-05-01 10:00:00\",\n",
      "  \"communicators_count\": 1,\n  \"communicators\": [\n    {\n",
      "      \"hash\": \"0x1a\",\n      \"secondary_hash\": \"0x2b:0x3c\",\n      \"size\": ", size,
      ",\n      \"ranks_count\": 2,\n      \"missing_ranks_count\": 2,\n      \"ranks\": [\n",
      ranks, "\n      ],\n      \"missing_ranks\": [\n", missing, "\n      ]\n    }\n  ],\n",
      "  \"ras\": {\n    \"collection_time_sec\": 0.012,\n    \"timeouts_count\": 1\n  }\n}\n");
}
// A report of four ranks. Two answer, and one of them is behind the other; one rank is dead, and
// one is silent.
inline std::string RasSample() {
  return RasReportText(
      absl::StrCat(RasRankText(0, 41, 6), ",\n", RasRankText(1, 42, 5)),
      absl::StrCat(RasMissingText(2, "true", "true"), ",\n", RasMissingText(3, "true", "false")),
      4);
}

// A listener with a thread that serves one client after the other, up to a number of clients.
class RasServer {
 public:
  explicit RasServer(std::function<void(RasServer&)> talk, int clients = 1)
      : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(listen(listener_.get(), clients), 0);
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, talk = std::move(talk), clients] {
      for (int client = 0; client < clients; ++client) {
        if (!IsReady(listener_.get())) return;
        client_ = UniqueFd(accept(listener_.get(), nullptr, nullptr));
        if (client_.get() < 0) return;
        talk(*this);
        client_ = UniqueFd();
      }
    });
  }
  // Waits for no client that has not come.
  ~RasServer() {
    shutdown(listener_.get(), SHUT_RD);
    thread_.join();
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  // The client's next line; empty: it has hung up.
  std::string Line() {
    std::string line;
    char character = 0;
    while (IsReady(client_.get()) && recv(client_.get(), &character, 1, 0) == 1) {
      if (character == '\n') return line;
      line += character;
    }
    return "";
  }
  bool Say(absl::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = send(client_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  // Until the client hangs up.
  void StaySilent() {
    while (!Line().empty()) continue;
  }
  // As NCCL does, up to and with the answer to line `steps`.
  void Behave(int steps) {
    for (int step = 0; step < steps; ++step) {
      lines_.push_back(Line());
      Say(step == 0 ? "SERVER PROTOCOL 2\n" : "OK\n");
    }
  }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  static constexpr absl::Duration kTimeout = absl::Seconds(30);

  static bool IsReady(int fd) {
    pollfd waited = {fd, POLLIN, 0};
    return poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(kTimeout))) > 0;
  }

  UniqueFd listener_;
  UniqueFd client_;
  int port_ = 0;
  std::vector<std::string> lines_;
  std::thread thread_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_RAS_TESTING_RAS_SERVER_H_
