#include "tests/amplification/metrics_messages.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "tests/amplification/raw_message.h"

namespace cohort::amplification {
namespace {

// The server takes requests of 8 KiB.
constexpr size_t kLargest = size_t{8} << 10;
constexpr size_t kTooLarge = size_t{1} << 20;
constexpr int kManyRequests = 2000;

std::string Request(const std::string& method, const std::string& path, const std::string& token,
                    const std::string& headers) {
  const std::string authorization =
      token.empty() ? "" : absl::StrCat("Authorization: Bearer ", token, "\r\n");
  return absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: localhost\r\n", authorization, headers,
                      "\r\n");
}

}  // namespace

std::vector<Message> MetricsMessages(int port, const std::string& token) {
  std::vector<Message> messages;
  for (const std::string method : {"GET", "HEAD", "POST"}) {
    for (const std::string path : {"/metrics", "/other"}) {
      messages.push_back(RawMessage(
          absl::StrCat(method, " ", path), port, [=](Form form) -> std::optional<RawBytes> {
            const std::string small = Request(method, path, token, "");
            const std::string filled = absl::StrCat(
                "X: ", std::string(kLargest - small.size() - sizeof("X: \r\n") + 1, 'x'), "\r\n");
            const std::string largest = Request(method, path, token, filled);
            switch (form) {
              case Form::kLargest:
                return RawBytes{Times(largest, kLargeRequests)};
              case Form::kElements:
                return RawBytes{Request(method, path, token, Times("a:\r\n", kTooLarge / 4))};
              case Form::kUnknown:
              case Form::kCompressed:
                return std::nullopt;
              case Form::kRepeated:
                return RawBytes{Times(small, kManyRequests)};
              case Form::kPartial:
                return RawBytes{largest.substr(0, largest.size() - 1), kConnections};
              case Form::kSilent:
                return RawBytes{method, kConnections};
              case Form::kAbandoned:
                return RawBytes{largest, kConnections, /*then_ends=*/true};
            }
            return std::nullopt;
          }));
    }
  }
  return messages;
}

}  // namespace cohort::amplification
