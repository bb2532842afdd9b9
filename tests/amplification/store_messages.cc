#include "tests/amplification/store_messages.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "coordinator/service/tcpstore/tcpstore_request.h"
#include "coordinator/service/tcpstore/testing/tcpstore_test_client.h"
#include "tests/amplification/raw_message.h"

namespace cohort::amplification {
namespace {

using coordinator::tcpstore::Hello;
using coordinator::tcpstore::NumberBytes;
using coordinator::tcpstore::Operation;
using coordinator::tcpstore::RequestLimits;
using coordinator::tcpstore::TextBytes;

constexpr int kManyRequests = 2000;
constexpr size_t kNumber = sizeof(uint64_t);

struct Size {
  size_t key_bytes = 1;
  size_t value_bytes = 1;
  size_t list = 1;  // elements
};

// The fields of a request. The compiler names an operation without a case.
std::string FieldsOf(Operation operation, const Size& size) {
  const std::string key = TextBytes(std::string(size.key_bytes, 'k'));
  const std::string value = TextBytes(std::string(size.value_bytes, 'v'));
  switch (operation) {
    case Operation::kValidate:
    case Operation::kPing:
      return NumberBytes(coordinator::tcpstore::kMagic).substr(0, sizeof(uint32_t));
    case Operation::kSet:
    case Operation::kAppend:
    case Operation::kQueuePush:
      return key + value;
    case Operation::kCompareSet:
      return absl::StrCat(key, TextBytes(""), value);
    case Operation::kGet:
    case Operation::kDelete:
    case Operation::kQueuePop:
    case Operation::kQueueLen:
      return key;
    case Operation::kAdd:
    case Operation::kBarrier:
      return key + NumberBytes(2);
    case Operation::kCheck:
    case Operation::kWait:
    case Operation::kMultiGet:
      return NumberBytes(size.list) + Times(key, static_cast<int>(size.list));
    case Operation::kMultiSet:
      return NumberBytes(size.list) + Times(key + value, static_cast<int>(size.list));
    case Operation::kNumKeys:
    case Operation::kCancelWait:
    case Operation::kListKeys:
      return "";
  }
  return "";
}

std::string RequestOf(Operation operation, const Size& size) {
  return std::string(1, static_cast<char>(operation)) + FieldsOf(operation, size);
}

std::optional<RawBytes> Make(Operation operation, size_t request_bytes, Form form) {
  const RequestLimits limits;
  Size largest;
  largest.key_bytes = limits.max_key_bytes;
  // The limit of a value is half of that of a request (deployment.cc).
  largest.value_bytes = request_bytes / 2;
  const std::string large = RequestOf(operation, largest);
  switch (form) {
    case Form::kLargest:
      return RawBytes{Hello() + Times(large, kLargeRequests)};
    case Form::kElements: {
      Size many;
      // The same key again and again, with an empty value.
      many.value_bytes = 0;
      many.list = std::min(limits.max_keys, request_bytes / (2 * kNumber + 1));
      const bool has_list = RequestOf(operation, many).size() > many.list;
      if (!has_list) return std::nullopt;
      return RawBytes{Hello() + RequestOf(operation, many)};
    }
    case Form::kUnknown:
    case Form::kCompressed:
      return std::nullopt;
    case Form::kRepeated:
      return RawBytes{Hello() + Times(RequestOf(operation, {}), kManyRequests)};
    case Form::kPartial:
      return RawBytes{Hello() + large.substr(0, large.size() - 1), kConnections};
    case Form::kSilent:
      return RawBytes{absl::StrCat(Hello(), std::string(1, static_cast<char>(operation))),
                      kConnections};
    case Form::kAbandoned:
      return RawBytes{Hello() + Times(large, kLargeRequests), 1, /*then_ends=*/true};
  }
  return std::nullopt;
}

}  // namespace

std::vector<Message> StoreMessages(int port, size_t request_bytes) {
  std::vector<Message> messages;
  for (int i = 0; i <= static_cast<int>(Operation::kBarrier); ++i) {
    const auto operation = static_cast<Operation>(i);
    messages.push_back(RawMessage(
        OperationName(operation), port,
        [operation, request_bytes](Form form) { return Make(operation, request_bytes, form); }));
  }
  return messages;
}

}  // namespace cohort::amplification
