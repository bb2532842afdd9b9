#include "base/collective/collective.h"

#include "absl/strings/str_cat.h"

namespace cohort {

absl::string_view NameOf(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "all_reduce";
    case Collective::kReduce:
      return "reduce";
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kAllGather:
      return "all_gather";
    case Collective::kReduceScatter:
      return "reduce_scatter";
    case Collective::kAllToAll:
      return "all_to_all";
    case Collective::kGather:
      return "gather";
    case Collective::kScatter:
      return "scatter";
    case Collective::kAllGatherV:
      return "all_gather_v";
    case Collective::kReduceScatterV:
      return "reduce_scatter_v";
    case Collective::kGatherV:
      return "gather_v";
    case Collective::kAllToAllV:
      return "all_to_all_v";
    case Collective::kExchangeSizes:
      return "exchange_sizes";
    case Collective::kExchange:
      return "exchange";
    case Collective::kFail:
      return "fail";
    case Collective::kBarrier:
      return "barrier";
    case Collective::kReplay:
      return "replay";
  }
  return "unknown collective";
}

bool IsCollective(int value) {
  return value > 0 && value <= static_cast<int>(Collective::kReplay) && value != 15 && value != 17;
}

std::string Describe(const FlatCall& call) {
  if (call.collective == Collective::kBarrier) return std::string(NameOf(call.collective));
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
