#include "base/collective/collective.h"

#include "absl/strings/str_cat.h"

namespace cohort {

namespace {

constexpr const char* kNames[] = {
    "unknown",
    "all_reduce",
    "reduce",
    "broadcast",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "gather",
    "scatter",
    "all_gather_v",
    "reduce_scatter_v",
    "gather_v",
    "all_to_all_v",
    "exchange_sizes",
    "exchange",
    "await_streams",
    "fail",
    "await_message",
    "barrier",
    "replay",
    "all_reduce_coalesced",
};
constexpr int kNumbers = sizeof(kNames) / sizeof(kNames[0]);
static_assert(kNumbers == static_cast<int>(Collective::kAllReduceCoalesced) + 1,
              "each collective has a name");

}  // namespace

absl::string_view NameOf(Collective collective) {
  const auto number = static_cast<int>(collective);
  return kNames[number < kNumbers ? number : 0];
}

Collective FindCollective(absl::string_view name) {
  int number = kNumbers - 1;
  while (number > 0 && kNames[number] != name) --number;
  return static_cast<Collective>(number);
}

bool IsCollective(int value) { return value > 0 && value < kNumbers; }

std::string Describe(const FlatCall& call) {
  if (call.collective == Collective::kBarrier) {
    return call.tag == kFailedTag ? "a call with a wrong argument"
                                  : std::string(NameOf(call.collective));
  }
  if (call.collective == Collective::kReplay) {
    return absl::StrCat("replay of ", call.count, " recorded calls");
  }
  std::string text =
      absl::StrCat(NameOf(call.collective), " of ", call.count, " ", NameOf(call.type));
  if (Reduces(call.collective)) {
    absl::StrAppend(&text, " by ", NameOf(call.reduction.op));
    if (call.reduction.op == ReduceOp::kPreMulSum) {
      absl::StrAppend(&text, " times ", call.reduction.scale);
    }
  }
  if (HasRoot(call.collective)) absl::StrAppend(&text, ", root ", call.root);
  if (!call.also.empty()) absl::StrAppend(&text, ", and ", call.also.size(), " more tensors");
  return text;
}

std::optional<FlatCall> CallOf(const CollectiveKey& key) {
  if (!IsCollective(key.collective()) || !IsDataType(key.type())) return std::nullopt;
  FlatCall call;
  call.collective = static_cast<Collective>(key.collective());
  call.type = static_cast<DataType>(key.type());
  call.count = key.count;
  call.root = key.root();
  call.tag = key.tag();
  if (!Reduces(call.collective)) return call;
  if (!IsReduceOp(key.op())) return std::nullopt;
  call.reduction.op = static_cast<ReduceOp>(key.op());
  if (call.reduction.op == ReduceOp::kPreMulSum) {
    std::memcpy(&call.reduction.scale, &key.scale, sizeof(key.scale));
  }
  return call;
}

std::string Describe(const CollectiveKey& key) {
  const std::optional<FlatCall> call = CallOf(key);
  if (call.has_value()) return Describe(*call);
  const std::string name = IsCollective(key.collective())
                               ? std::string(NameOf(static_cast<Collective>(key.collective())))
                               : absl::StrCat("collective ", key.collective());
  return absl::StrCat(name, " of ", key.count, " elements of type ", key.type());
}

}  // namespace cohort
