#include "coordinator/service/tcpstore/tcpstore_calls.h"

#include <cstdint>
#include <cstring>
#include <utility>
#include <variant>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace cohort::coordinator::tcpstore {
namespace {

// A value may be shared from this size on; a smaller one is copied.
constexpr int64_t kSharedBytes = 4096;

// The memory of an answer for each value that it shares, and the most of its own memory.
constexpr int64_t kSharedValueBytes = 256;
constexpr int64_t kMostOwnBytes = int64_t{8} << 20;
// PyTorch's server keeps the values of a queue as long as it runs.
constexpr absl::Duration kQueueExpiration = absl::Hours(24 * 365);

constexpr char kReady = 0;
constexpr char kNotReady = 1;

std::string Text(absl::string_view text) { return std::string(text); }

void AppendText(absl::string_view text, std::string* bytes) {
  AppendNumber(text.size(), bytes);
  bytes->append(text.data(), text.size());
}

void AppendValue(Payload value, AnswerBytes* answer) {
  if (value.size() < kSharedBytes) return AppendText(value.bytes(), &answer->bytes);
  AppendNumber(value.bytes().size(), &answer->bytes);
  answer->values.push_back({answer->bytes.size(), std::move(value)});
}

GetCall MakeGet(const Request& request) {
  GetCall call;
  for (const absl::string_view key : request.keys) call.keys.emplace_back(key);
  return call;
}

// A key that occurs twice has its last value.
PutCall MakeMultiPut(const Request& request) {
  PutCall call;
  absl::flat_hash_map<absl::string_view, size_t> last;
  for (size_t i = 0; i < request.keys.size(); ++i) last[request.keys[i]] = i;
  bool first = true;
  for (size_t i = 0; i < request.keys.size(); ++i) {
    if (last[request.keys[i]] != i) continue;
    if (std::exchange(first, false)) {
      call.key = Text(request.keys[i]);
      call.value = Text(request.values[i]);
    } else {
      call.more.push_back(PutEntry{Text(request.keys[i]), Text(request.values[i])});
    }
  }
  return call;
}

// The keys of `reply` in the order of the request, where one may occur often. A key that is absent
// has an empty value.
absl::Status AppendValues(const Asked& asked, const GetReply& reply, AnswerBytes* answer) {
  absl::flat_hash_map<absl::string_view, const Payload*> values;
  for (const KeyValue& value : reply.values) values[value.key] = &value.value;
  const auto value_of = [&](const std::string& key) {
    const auto found = values.find(key);
    return found == values.end() ? Payload() : *found->second;
  };
  int64_t own_bytes = 0;
  for (const std::string& key : asked.keys) {
    const auto size = static_cast<int64_t>(value_of(key).size());
    own_bytes += static_cast<int64_t>(sizeof(uint64_t)) +
                 (size < kSharedBytes ? size : kSharedValueBytes);
  }
  if (own_bytes > kMostOwnBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the answer about ", asked.keys.size(), " keys needs ", own_bytes,
                     " bytes of memory, over ", kMostOwnBytes, "; get fewer at once"));
  }
  for (const std::string& key : asked.keys) AppendValue(value_of(key), answer);
  return absl::OkStatus();
}

}  // namespace

void AppendNumber(uint64_t number, std::string* bytes) {
  char text[sizeof(number)];
  std::memcpy(text, &number, sizeof(number));
  bytes->append(text, sizeof(text));
}

bool HasCall(Operation operation) {
  switch (operation) {
    case Operation::kValidate:
    case Operation::kPing:
    case Operation::kCancelWait:
    case Operation::kBarrier:
      return false;
    default:
      return true;
  }
}

Method MethodOf(Operation operation) {
  switch (operation) {
    case Operation::kSet:
    case Operation::kCompareSet:
    case Operation::kMultiSet:
      return Method::kPut;
    case Operation::kAdd:
      return Method::kAdd;
    case Operation::kDelete:
      return Method::kDelete;
    case Operation::kAppend:
      return Method::kAppend;
    case Operation::kQueuePush:
      return Method::kQueuePush;
    case Operation::kQueuePop:
      return Method::kQueuePop;
    case Operation::kNumKeys:
    case Operation::kListKeys:
      return Method::kRange;
    case Operation::kBarrier:
      return Method::kBarrier;
    default:
      return Method::kGet;
  }
}

CallBody MakeCall(const Request& request, const std::string& client, Asked* asked) {
  asked->operation = request.operation;
  switch (request.operation) {
    case Operation::kSet:
      return PutCall{Text(request.keys[0]), Text(request.values[0])};
    case Operation::kCompareSet: {
      asked->expected = Text(request.values[0]);
      asked->value = Text(request.values[1]);
      PutCall call{Text(request.keys[0]), asked->value};
      call.expected_value = asked->expected;
      return call;
    }
    case Operation::kMultiSet:
      return MakeMultiPut(request);
    case Operation::kAdd:
      return AddCall{Text(request.keys[0]), request.number};
    case Operation::kDelete:
      return DeleteCall{Text(request.keys[0])};
    case Operation::kAppend:
      return AppendCall{Text(request.keys[0]), Text(request.values[0])};
    case Operation::kQueuePush:
      return QueuePushCall{Text(request.keys[0]), Text(request.values[0]), kQueueExpiration};
    case Operation::kQueuePop:
      return QueuePopCall{Text(request.keys[0])};
    case Operation::kQueueLen: {
      GetCall call;
      call.queues.emplace_back(request.keys[0]);
      return call;
    }
    case Operation::kNumKeys: {
      RangeCall call;
      call.count_only = true;
      return call;
    }
    case Operation::kListKeys: {
      RangeCall call;
      call.keys_only = true;
      call.one_page = true;
      return call;
    }
    case Operation::kMultiGet: {
      GetCall call = MakeGet(request);
      call.any_size = true;
      asked->keys = call.keys;
      return call;
    }
    case Operation::kCheck:
    case Operation::kWait: {
      GetCall call = MakeGet(request);
      call.keys_only = true;
      call.or_queue = true;
      call.wait = request.operation == Operation::kWait;
      if (call.wait) call.client = client;
      return call;
    }
    default:
      return MakeGet(request);
  }
}

absl::Status MakeAnswer(const Asked& asked, const Reply& reply, AnswerBytes* answer) {
  if (!reply.status.ok()) return reply.status;
  std::string& bytes = answer->bytes;
  switch (asked.operation) {
    case Operation::kCompareSet: {
      const auto& put = std::get<PutReply>(reply.body);
      if (put.written) {
        AppendText(asked.value, &bytes);
      } else if (put.current.has_value()) {
        AppendValue(put.current->value, answer);
      } else {
        AppendText(asked.expected, &bytes);
      }
      break;
    }
    case Operation::kGet: {
      const auto& get = std::get<GetReply>(reply.body);
      AppendValue(get.values.empty() ? Payload() : get.values[0].value, answer);
      break;
    }
    case Operation::kMultiGet:
      return AppendValues(asked, std::get<GetReply>(reply.body), answer);
    case Operation::kAdd:
      AppendNumber(static_cast<uint64_t>(std::get<AddReply>(reply.body).value), &bytes);
      break;
    case Operation::kCheck:
      bytes.push_back(std::get<GetReply>(reply.body).missing_keys.empty() ? kReady : kNotReady);
      break;
    case Operation::kWait:
      bytes.push_back(kStopWaiting);
      break;
    case Operation::kNumKeys:
      AppendNumber(static_cast<uint64_t>(std::get<RangeReply>(reply.body).count), &bytes);
      break;
    case Operation::kDelete:
      AppendNumber(static_cast<uint64_t>(std::get<DeleteReply>(reply.body).deleted_count), &bytes);
      break;
    case Operation::kQueuePop: {
      const auto& pop = std::get<QueuePopReply>(reply.body);
      AppendNumber(pop.found ? 1 : 0, &bytes);
      if (pop.found) AppendValue(pop.value, answer);
      break;
    }
    case Operation::kQueueLen:
      AppendNumber(
          static_cast<uint64_t>(std::get<GetReply>(reply.body).queue_lengths.at(0).length), &bytes);
      break;
    case Operation::kListKeys: {
      const auto& range = std::get<RangeReply>(reply.body);
      AppendNumber(range.values.size(), &bytes);
      for (const KeyValue& value : range.values) AppendText(value.key, &bytes);
      break;
    }
    default:  // without an answer
      break;
  }
  return absl::OkStatus();
}

}  // namespace cohort::coordinator::tcpstore
