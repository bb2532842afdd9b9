#include "tests/fuzz/tcpstore_check.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text/utf8.h"

namespace cohort::coordinator::fuzz {
namespace {

using tcpstore::Dialect;
using tcpstore::Operation;
using tcpstore::Request;

// Small, so that short inputs exceed them.
constexpr tcpstore::RequestLimits kLimits{16, 8, 32, 256};
// The listener's bound for a decision.
constexpr size_t kDecisionBytes = 24;
constexpr size_t kMaxErrorBytes = 256;
constexpr uint8_t kWatchKey1 = 7;

absl::Status Broken(absl::string_view what) { return absl::InternalError(what); }

template <typename T>
std::string NumberBytes(T number) {
  return std::string(reinterpret_cast<const char*>(&number), sizeof(number));
}
std::string TextBytes(absl::string_view text) {
  return absl::StrCat(NumberBytes<uint64_t>(text.size()), text);
}

// PyTorch 1.13 has watch_key as its operation 7, and no validate.
uint8_t ByteOf(Dialect dialect, Operation operation) {
  const auto byte = static_cast<uint8_t>(operation);
  return dialect == Dialect::kTorch2 || byte > kWatchKey1 ? byte : static_cast<uint8_t>(byte - 1);
}

// The bytes with which a client of PyTorch sends the request.
std::string Encode(Dialect dialect, const Request& request) {
  std::string bytes(1, static_cast<char>(ByteOf(dialect, request.operation)));
  switch (request.operation) {
    case Operation::kValidate:
    case Operation::kPing:
      return bytes + NumberBytes(static_cast<uint32_t>(request.number));
    case Operation::kCheck:
    case Operation::kWait:
    case Operation::kMultiGet:
    case Operation::kMultiSet:
      bytes += NumberBytes<uint64_t>(request.keys.size());
      break;
    default:
      break;
  }
  for (size_t i = 0; i < request.keys.size(); ++i) {
    bytes += TextBytes(request.keys[i]);
    if (request.operation == Operation::kMultiSet) bytes += TextBytes(request.values[i]);
  }
  if (request.operation != Operation::kMultiSet) {
    for (const absl::string_view value : request.values) bytes += TextBytes(value);
  }
  if (request.operation == Operation::kAdd || request.operation == Operation::kBarrier) {
    bytes += NumberBytes(request.number);
  }
  return bytes;
}

absl::Status CheckTexts(const std::vector<absl::string_view>& texts, absl::string_view within,
                        size_t most) {
  for (const absl::string_view text : texts) {
    if (text.size() > most) return Broken("a text is over its limit");
    if (text.empty()) continue;
    const bool inside = text.data() >= within.data() &&
                        text.data() + text.size() <= within.data() + within.size();
    if (!inside) return Broken("a text lies beyond its request");
  }
  return absl::OkStatus();
}

absl::Status CheckRequest(Dialect dialect, absl::string_view bytes, const Request& request) {
  COHORT_RETURN_IF_ERROR(CheckTexts(request.keys, bytes, kLimits.max_key_bytes));
  COHORT_RETURN_IF_ERROR(CheckTexts(request.values, bytes, kLimits.max_value_bytes));
  for (absl::string_view key : request.keys) {
    while (!key.empty()) {
      const size_t size = DecodeUtf8(key).bytes;
      if (size == 0) return Broken("a key is not UTF-8");
      key.remove_prefix(size);
    }
  }
  const bool has_pairs = request.operation == Operation::kMultiSet;
  if (request.keys.size() > kLimits.max_keys) return Broken("too many keys");
  if (has_pairs && request.keys.size() != request.values.size()) {
    return Broken("multi_set has not a value for each key");
  }
  const char* const name = tcpstore::OperationName(request.operation);
  if (Encode(dialect, request) != bytes) return Broken(absl::StrCat(name, " encodes differently"));
  // By one reader, in pieces, and by one that gets as many bytes at once.
  Request again;
  tcpstore::RequestReader pieces(kLimits);
  for (size_t size = 0; size < bytes.size(); ++size) {
    const absl::string_view part = bytes.substr(0, size);
    const auto at_once = tcpstore::RequestReader(kLimits).Read(dialect, part, &again);
    const bool waits = at_once.ok() ? *at_once == 0 : size >= kLimits.max_message_bytes;
    if (!waits) return Broken(absl::StrCat(name, " is read from ", size, " of its bytes"));
    if (pieces.Read(dialect, part, &again) != at_once) {
      return Broken(absl::StrCat(name, " differs in pieces of a byte after ", size));
    }
    if (!at_once.ok()) return absl::OkStatus();
  }
  const auto last = pieces.Read(dialect, bytes, &again);
  if (!last.ok() || *last != bytes.size() || Encode(dialect, again) != bytes) {
    return Broken(absl::StrCat(name, " in pieces of a byte is another request"));
  }
  return absl::OkStatus();
}

absl::Status CheckRefusal(const absl::Status& error) {
  if (error.message().size() > kMaxErrorBytes) return Broken("an error is too long");
  if (absl::IsInvalidArgument(error) || absl::IsUnimplemented(error) ||
      absl::IsResourceExhausted(error)) {
    return absl::OkStatus();
  }
  return Broken(error.ToString());
}

// Returns the decision for the protocol of a connection that sends `input`.
absl::Status CheckMatch(absl::string_view input, ProtocolMatch* decision) {
  *decision = ProtocolMatch::kUndecided;
  for (size_t size = 1; size <= std::min(input.size(), kDecisionBytes + 1); ++size) {
    const ProtocolMatch match = tcpstore::MatchTcpStore(input.substr(0, size));
    if (*decision != ProtocolMatch::kUndecided && match != *decision) {
      return Broken("more bytes change the decision for a protocol");
    }
    *decision = match;
  }
  if (*decision == ProtocolMatch::kUndecided && input.size() >= kDecisionBytes) {
    return Broken("the decision for a protocol comes late");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTcpStore(absl::string_view input, std::vector<Operation>* operations) {
  ProtocolMatch match = ProtocolMatch::kUndecided;
  COHORT_RETURN_IF_ERROR(CheckMatch(input, &match));
  if (match == ProtocolMatch::kUndecided || match == ProtocolMatch::kOther) return absl::OkStatus();
  const Dialect dialect = tcpstore::DialectOf(input);
  absl::string_view left = input;
  Request request;
  tcpstore::RequestReader reader(kLimits);
  while (true) {
    const auto size = reader.Read(dialect, left, &request);
    if (!size.ok()) return CheckRefusal(size.status());
    if (*size == 0) {
      return left.size() < kLimits.max_message_bytes
                 ? absl::OkStatus()
                 : Broken("an incomplete request is over max_message_bytes");
    }
    if (*size > left.size()) return Broken("a request is longer than its bytes");
    COHORT_RETURN_IF_ERROR(CheckRequest(dialect, left.substr(0, *size), request));
    if (operations != nullptr) operations->push_back(request.operation);
    left.remove_prefix(*size);
  }
}

std::map<std::string, std::string> SampleTcpStoreInputs() {
  const std::vector<absl::string_view> one = {"key"}, two = {"key", "b"}, none;
  const std::vector<Request> requests = {
      {Operation::kSet, one, {"value"}, 0},
      {Operation::kCompareSet, one, {"", "value"}, 0},
      {Operation::kGet, one, none, 0},
      {Operation::kAdd, one, none, -5},
      {Operation::kCheck, two, none, 0},
      {Operation::kWait, two, none, 0},
      {Operation::kNumKeys, none, none, 0},
      {Operation::kDelete, one, none, 0},
      {Operation::kAppend, one, {"value"}, 0},
      {Operation::kMultiGet, two, none, 0},
      {Operation::kMultiSet, two, {"value", ""}, 0},
      {Operation::kCancelWait, none, none, 0},
      {Operation::kPing, none, none, 77},
      {Operation::kQueuePush, one, {"value"}, 0},
      {Operation::kQueuePop, one, none, 0},
      {Operation::kQueueLen, one, none, 0},
      {Operation::kListKeys, none, none, 0},
      {Operation::kBarrier, one, none, 2},
  };
  const std::string hello =
      Encode(Dialect::kTorch2, {Operation::kValidate, none, none, tcpstore::kMagic});
  // The first request of PyTorch 1.13 begins with a length, by which the coordinator knows it.
  const std::string first = Encode(Dialect::kTorch1, {Operation::kAdd, {"init/"}, none, 1});
  std::map<std::string, std::string> inputs;
  std::string all2 = hello, all1 = first;
  for (const Request& request : requests) {
    const std::string name = tcpstore::OperationName(request.operation);
    inputs["torch2_" + name] = hello + Encode(Dialect::kTorch2, request);
    all2 += Encode(Dialect::kTorch2, request);
    if (request.operation > Operation::kCancelWait) continue;
    inputs["torch1_" + name] = first + Encode(Dialect::kTorch1, request);
    all1 += Encode(Dialect::kTorch1, request);
  }
  inputs["torch1_all"] = all1;
  inputs["torch2_all"] = all2;
  inputs["torch1_watch_key"] = absl::StrCat(first, std::string(1, kWatchKey1), TextBytes("key"));
  inputs["wrong_magic"] = Encode(Dialect::kTorch2, {Operation::kValidate, none, none, 1});
  inputs["wrong_operation"] = hello + "\xff";
  inputs["key_is_not_utf8"] =
      hello + Encode(Dialect::kTorch2, {Operation::kGet, {"\xff"}, none, 0});
  inputs["key_is_too_long"] = absl::StrCat(hello, "\x03", NumberBytes(~uint64_t{0}));
  inputs["too_many_keys"] = absl::StrCat(hello, "\x06", NumberBytes<uint64_t>(9));
  std::string many = absl::StrCat(hello, "\x0b", NumberBytes<uint64_t>(8));
  for (int i = 0; i < 8; ++i) {
    many += TextBytes(std::string(16, 'k')) + TextBytes(std::string(32, 'v'));
  }
  inputs["message_is_too_long"] = many.substr(0, many.size() - 1);
  inputs["other_protocol"] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  return inputs;
}

}  // namespace cohort::coordinator::fuzz
