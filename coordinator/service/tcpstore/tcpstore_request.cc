#include "coordinator/service/tcpstore/tcpstore_request.h"

#include <cstring>
#include <optional>

#include "absl/base/config.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/text/utf8.h"

namespace cohort::coordinator::tcpstore {
namespace {

static_assert(ABSL_IS_LITTLE_ENDIAN, "the protocol is read in place");

// PyTorch 1.13 has this operation. Its numbers are smaller by one before this one, and equal after.
constexpr uint8_t kWatchKey1 = 7;
constexpr uint8_t kCancelWait = static_cast<uint8_t>(Operation::kCancelWait);
constexpr uint8_t kBarrier = static_cast<uint8_t>(Operation::kBarrier);
constexpr size_t kMagicEnd = 1 + sizeof(kMagic);
constexpr size_t kFirstNumberEnd = 1 + sizeof(uint64_t);

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    if (static_cast<unsigned char>(text.front()) < 0x80) {
      text.remove_prefix(1);
      continue;
    }
    const size_t bytes = DecodeUtf8(text).bytes;
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

bool StartsWithMagic(absl::string_view first) {
  return first.size() >= kMagicEnd && std::memcmp(first.data() + 1, &kMagic, sizeof(kMagic)) == 0;
}

std::optional<Operation> OperationOf(Dialect dialect, uint8_t byte) {
  if (dialect == Dialect::kTorch2) {
    return byte <= kBarrier ? std::make_optional(static_cast<Operation>(byte)) : std::nullopt;
  }
  if (byte > kCancelWait) return std::nullopt;
  return static_cast<Operation>(byte < kWatchKey1 ? byte + 1 : byte);
}

// Reads fields from the front of some bytes. After the first field that is not there completely,
// and after an error, it reads nothing more.
class Fields {
 public:
  Fields(absl::string_view bytes, const RequestLimits& limits) : left_(bytes), limits_(limits) {}

  template <typename T>
  T Number() {
    T value = 0;
    const absl::string_view bytes = Take(sizeof(T));
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }

  absl::string_view Key() {
    const absl::string_view key = Text("max_key_bytes", limits_.max_key_bytes);
    if (status_.ok() && !IsUtf8(key)) status_ = absl::InvalidArgumentError("a key is not UTF-8");
    return key;
  }
  absl::string_view Value() { return Text("max_value_bytes", limits_.max_value_bytes); }
  size_t Count() { return Size("max_keys of a request", limits_.max_keys); }

  bool reads() const { return status_.ok() && !ended_; }
  const absl::Status& status() const { return status_; }
  absl::string_view left() const { return left_; }

 private:
  absl::string_view Take(size_t size) {
    if (!reads() || left_.size() < size) {
      ended_ = true;
      return {};
    }
    const absl::string_view taken = left_.substr(0, size);
    left_.remove_prefix(size);
    return taken;
  }

  size_t Size(const char* limit, size_t most) {
    const auto size = Number<uint64_t>();
    if (size <= most) return size;
    if (status_.ok()) {
      status_ = absl::ResourceExhaustedError(
          absl::StrCat("a request has a size of ", size, ", over ", limit, " (", most, ")"));
    }
    return 0;
  }
  absl::string_view Text(const char* limit, size_t most) { return Take(Size(limit, most)); }

  absl::string_view left_;
  const RequestLimits& limits_;
  bool ended_ = false;
  absl::Status status_;
};

void ReadFields(Fields& fields, Request* request) {
  const auto keys = [&](bool with_values) {
    const size_t count = fields.Count();
    for (size_t i = 0; i < count && fields.reads(); ++i) {
      request->keys.push_back(fields.Key());
      if (with_values) request->values.push_back(fields.Value());
    }
  };
  switch (request->operation) {
    case Operation::kValidate:
    case Operation::kPing:
      request->number = fields.Number<uint32_t>();
      break;
    case Operation::kSet:
    case Operation::kAppend:
    case Operation::kQueuePush:
      request->keys.push_back(fields.Key());
      request->values.push_back(fields.Value());
      break;
    case Operation::kCompareSet:
      request->keys.push_back(fields.Key());
      request->values.push_back(fields.Value());
      request->values.push_back(fields.Value());
      break;
    case Operation::kGet:
    case Operation::kDelete:
    case Operation::kQueuePop:
    case Operation::kQueueLen:
      request->keys.push_back(fields.Key());
      break;
    case Operation::kAdd:
    case Operation::kBarrier:
      request->keys.push_back(fields.Key());
      request->number = fields.Number<int64_t>();
      break;
    case Operation::kCheck:
    case Operation::kWait:
    case Operation::kMultiGet:
      keys(false);
      break;
    case Operation::kMultiSet:
      keys(true);
      break;
    case Operation::kNumKeys:
    case Operation::kCancelWait:
    case Operation::kListKeys:
      break;
  }
}

}  // namespace

const char* OperationName(Operation operation) {
  static constexpr const char* kNames[] = {
      "validate",  "set",       "compare_set", "get",  "add",        "check",     "wait",
      "num_keys",  "delete",    "append",      "multi_get", "multi_set", "cancel_wait", "ping",
      "queue_push", "queue_pop", "queue_len",  "list_keys", "barrier"};
  return kNames[static_cast<size_t>(operation)];
}

ProtocolMatch MatchTcpStore(absl::string_view first) {
  const auto byte = static_cast<uint8_t>(first.front());
  if (byte > kCancelWait) return ProtocolMatch::kOther;
  if (byte == 0) {
    if (first.size() < kMagicEnd) return ProtocolMatch::kUndecided;
    if (StartsWithMagic(first)) return ProtocolMatch::kMatch;
  }
  const Operation operation = *OperationOf(Dialect::kTorch1, byte);
  if (operation == Operation::kNumKeys || operation == Operation::kCancelWait) {
    return ProtocolMatch::kMatchWithSilent;
  }
  if (first.size() < kFirstNumberEnd) return ProtocolMatch::kUndecided;
  // A length or a number of keys, both far below 2^32.
  constexpr absl::string_view kZeros("\0\0\0\0", 4);
  return absl::EndsWith(first.substr(0, kFirstNumberEnd), kZeros) ? ProtocolMatch::kMatchWithSilent
                                                                 : ProtocolMatch::kOther;
}

Dialect DialectOf(absl::string_view first) {
  return first.front() == 0 && StartsWithMagic(first) ? Dialect::kTorch2 : Dialect::kTorch1;
}

absl::StatusOr<size_t> ReadRequest(Dialect dialect, const RequestLimits& limits,
                                   absl::string_view bytes, Request* request) {
  if (bytes.empty()) return 0;
  const auto byte = static_cast<uint8_t>(bytes.front());
  if (dialect == Dialect::kTorch1 && byte == kWatchKey1) {
    return absl::UnimplementedError("watch_key of PyTorch 1.13 is not supported");
  }
  const std::optional<Operation> operation = OperationOf(dialect, byte);
  if (!operation.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("TCPStore has no operation ", byte));
  }
  request->operation = *operation;
  request->keys.clear();
  request->values.clear();
  Fields fields(bytes.substr(1), limits);
  ReadFields(fields, request);
  if (!fields.status().ok()) return fields.status();
  if (!fields.reads()) {
    if (bytes.size() < limits.max_message_bytes) return 0;
    return absl::ResourceExhaustedError(absl::StrCat(
        "a request is over max_message_bytes (", limits.max_message_bytes, ")"));
  }
  if (request->operation == Operation::kValidate && request->number != kMagic) {
    return absl::InvalidArgumentError("validate has the wrong number");
  }
  return bytes.size() - fields.left().size();
}

}  // namespace cohort::coordinator::tcpstore
