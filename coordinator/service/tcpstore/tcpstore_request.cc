#include "coordinator/service/tcpstore/tcpstore_request.h"

#include <cstring>
#include <utility>

#include "absl/base/config.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
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

// The fields of a request, in their order: texts, which are keys and then values, and a number. A
// list has its count first, and the texts of each element.
struct Layout {
  bool list = false;
  size_t keys = 0;
  size_t values = 0;
  size_t number_bytes = 0;

  size_t texts() const { return keys + values; }
};

Layout LayoutOf(Operation operation) {
  switch (operation) {
    case Operation::kValidate:
    case Operation::kPing:
      return {false, 0, 0, sizeof(uint32_t)};
    case Operation::kSet:
    case Operation::kAppend:
    case Operation::kQueuePush:
      return {false, 1, 1, 0};
    case Operation::kCompareSet:
      return {false, 1, 2, 0};
    case Operation::kGet:
    case Operation::kDelete:
    case Operation::kQueuePop:
    case Operation::kQueueLen:
      return {false, 1, 0, 0};
    case Operation::kAdd:
    case Operation::kBarrier:
      return {false, 1, 0, sizeof(int64_t)};
    case Operation::kCheck:
    case Operation::kWait:
    case Operation::kMultiGet:
      return {true, 1, 0, 0};
    case Operation::kMultiSet:
      return {true, 1, 1, 0};
    case Operation::kNumKeys:
    case Operation::kCancelWait:
    case Operation::kListKeys:
      break;
  }
  return {};
}

uint64_t SizeAt(absl::string_view bytes, size_t at) {
  uint64_t size = 0;
  std::memcpy(&size, bytes.data() + at, sizeof(size));
  return size;
}

absl::Status CheckSize(uint64_t size, const char* limit, size_t most) {
  if (size <= most) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("a request has a size of ", size, ", over ", limit, " (", most, ")"));
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

absl::Status RequestReader::Begin(Dialect dialect, uint8_t byte) {
  if (dialect == Dialect::kTorch1 && byte == kWatchKey1) {
    return absl::UnimplementedError("watch_key of PyTorch 1.13 is not supported");
  }
  operation_ = OperationOf(dialect, byte);
  if (!operation_.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("TCPStore has no operation ", byte));
  }
  const Layout layout = LayoutOf(*operation_);
  at_ = 1;
  counted_ = !layout.list;
  texts_left_ = layout.list ? 0 : layout.texts();
  return absl::OkStatus();
}

absl::StatusOr<bool> RequestReader::Scan(absl::string_view bytes) {
  const Layout layout = LayoutOf(*operation_);
  while (!counted_ || texts_left_ > 0) {
    if (bytes.size() < at_ + sizeof(uint64_t)) return false;
    const uint64_t size = SizeAt(bytes, at_);
    if (!counted_) {
      COHORT_RETURN_IF_ERROR(CheckSize(size, "max_keys of a request", limits_.max_keys));
      counted_ = true;
      texts_left_ = size * layout.texts();
      at_ += sizeof(uint64_t);
      continue;
    }
    const size_t place = layout.texts() - 1 - (texts_left_ - 1) % layout.texts();
    COHORT_RETURN_IF_ERROR(place < layout.keys
                               ? CheckSize(size, "max_key_bytes", limits_.max_key_bytes)
                               : CheckSize(size, "max_value_bytes", limits_.max_value_bytes));
    if (bytes.size() < at_ + sizeof(uint64_t) + size) return false;
    at_ += sizeof(uint64_t) + size;
    --texts_left_;
  }
  return bytes.size() >= at_ + layout.number_bytes;
}

absl::Status RequestReader::Fill(absl::string_view bytes, Request* request) const {
  const Layout layout = LayoutOf(*operation_);
  request->operation = *operation_;
  request->keys.clear();
  request->values.clear();
  request->number = 0;
  size_t at = 1 + (layout.list ? sizeof(uint64_t) : 0);
  for (size_t place = 0; at < at_; place = (place + 1) % layout.texts()) {
    const absl::string_view text = bytes.substr(at + sizeof(uint64_t), SizeAt(bytes, at));
    at += sizeof(uint64_t) + text.size();
    if (place < layout.keys && !IsUtf8(text)) {
      return absl::InvalidArgumentError("a key is not UTF-8");
    }
    (place < layout.keys ? request->keys : request->values).push_back(text);
  }
  std::memcpy(&request->number, bytes.data() + at, layout.number_bytes);
  if (*operation_ == Operation::kValidate && request->number != kMagic) {
    return absl::InvalidArgumentError("validate has the wrong number");
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> RequestReader::Read(Dialect dialect, absl::string_view bytes,
                                           Request* request) {
  if (bytes.empty()) return 0;
  if (at_ == 0) COHORT_RETURN_IF_ERROR(Begin(dialect, static_cast<uint8_t>(bytes.front())));
  absl::StatusOr<bool> whole = Scan(bytes);
  if (!whole.ok()) return whole.status();
  if (!*whole) {
    if (bytes.size() < limits_.max_message_bytes) return 0;
    return absl::ResourceExhaustedError(
        absl::StrCat("a request is over max_message_bytes (", limits_.max_message_bytes, ")"));
  }
  COHORT_RETURN_IF_ERROR(Fill(bytes, request));
  return std::exchange(at_, 0) + LayoutOf(*operation_).number_bytes;
}

}  // namespace cohort::coordinator::tcpstore
