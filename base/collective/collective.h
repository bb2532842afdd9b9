// Collective calls on flat memory, and their keys of 24 bytes, which ranks compare.
#ifndef COHORT_BASE_COLLECTIVE_COLLECTIVE_H_
#define COHORT_BASE_COLLECTIVE_COLLECTIVE_H_

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/collective/reduction.h"
#include "base/tensor/data_type.h"

namespace cohort {

// The collective of a call, in every layer. The values are those of v1.Collective; they travel
// between processes and never change. Records of calls also have numbers for messages, for calls of
// one rank, and for replays.
enum class Collective : uint8_t {
  kUnknown = 0,  // another process called something that this version does not know
  kAllReduce = 1,
  kReduce = 2,
  kBroadcast = 3,
  kAllGather = 4,
  kReduceScatter = 5,
  kAllToAll = 6,
  kGather = 7,
  kScatter = 8,
  kAllGatherV = 9,
  kReduceScatterV = 10,
  kGatherV = 11,
  kAllToAllV = 12,
  kExchangeSizes = 13,
  kExchange = 14,      // messages: only the two ranks of each call it
  kAwaitStreams = 15,  // only this rank calls it
  kFail = 16,          // one rank fails the collective that the other ranks call
  kAwaitMessage = 17,  // only this rank calls it
  kBarrier = 18,
  kReplay = 19,              // the calls of a recorded sequence, on a GPU
  kAllReduceCoalesced = 20,  // of several tensors at once
};

// "all_reduce", ...; "unknown" for kUnknown and for a number without a name. The text lives for
// ever and ends with a NUL byte.
absl::string_view NameOf(Collective collective);
// Returns the collective with this name, or kUnknown.
Collective FindCollective(absl::string_view name);
// Whether `value`, which another process sent, is a Collective and not kUnknown.
bool IsCollective(int value);
// Returns the collective of a number that another process sent, or kUnknown.
inline Collective CollectiveOf(int value) {
  return IsCollective(value) ? static_cast<Collective>(value) : Collective::kUnknown;
}

inline bool Reduces(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduce ||
         collective == Collective::kReduceScatter || collective == Collective::kReduceScatterV ||
         collective == Collective::kAllReduceCoalesced;
}
// Whether ranks pass tensors to the collective. False for messages and for calls without tensors.
inline bool MovesTensors(Collective collective) {
  return (collective >= Collective::kAllReduce && collective <= Collective::kAllToAllV) ||
         collective == Collective::kAllReduceCoalesced;
}
// Whether each rank's part has its own size.
inline bool IsRagged(Collective collective) {
  return collective >= Collective::kAllGatherV && collective <= Collective::kAllToAllV;
}
// Whether the ranks' parts are along a dimension of a tensor.
inline bool HasDim(Collective collective) {
  return collective >= Collective::kAllGather && collective <= Collective::kAllToAllV;
}
// Whether only the root has an input.
inline bool IsFromRoot(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kScatter;
}
// Whether only the root has an output.
inline bool IsToRoot(Collective collective) {
  return collective == Collective::kReduce || collective == Collective::kGather ||
         collective == Collective::kGatherV;
}
inline bool HasRoot(Collective collective) {
  return IsFromRoot(collective) || IsToRoot(collective);
}

// One tensor in flat memory.
struct FlatTensor {
  const void* input = nullptr;
  void* output = nullptr;
  int64_t count = 0;  // elements
};

// A collective call on flat, contiguous memory. Shapes and dimensions are in CollectiveCall, of
// which `tag` carries the digest.
struct FlatCall {
  Collective collective = Collective::kBarrier;
  DataType type = DataType::kU8;
  // Only of a broadcast: a rank may return before the other ranks have called it.
  bool eager = false;
  int root = 0;         // if HasRoot(collective)
  int64_t count = 0;    // elements of each rank's part
  Reduction reduction;  // if Reduces(collective)
  // A digest of the other parts of the call that have to be the same on all ranks. Communicators
  // compare it like the count.
  uint32_t tag = 0;
  // Only of an all_reduce in GPU memory: further tensors that it reduces, like its own input and
  // output. They are not empty, and valid only during the call. `tag` covers them.
  absl::Span<const FlatTensor> also;
};

// The tag of a barrier with which a rank fails a collective that the others call; no other call has
// it.
constexpr uint32_t kFailedTag = 0x9E55D1C7;

// A text such as: all_reduce of 4096 bf16 by sum; broadcast of 10 f32, root 3.
std::string Describe(const FlatCall& call);

// A FlatCall in a fixed size, which ranks compare byte by byte. A key read from another process may
// hold anything.
struct CollectiveKey {
  // From the lowest bit: collective 5, type 5, reduction 4, step 3, root 15, tag 32.
  uint64_t what = 0;
  int64_t count = 0;
  uint64_t scale = 0;  // the bits of a double, only of ReduceOp::kPreMulSum

  // The most ranks of a group whose roots fit.
  static constexpr int kMaxRanks = 1 << 15;

  friend bool operator==(const CollectiveKey& a, const CollectiveKey& b) {
    return a.what == b.what && a.count == b.count && a.scale == b.scale;
  }
  friend bool operator!=(const CollectiveKey& a, const CollectiveKey& b) { return !(a == b); }

  int collective() const { return static_cast<int>(what & 0x1F); }
  int type() const { return static_cast<int>(what >> 5 & 0x1F); }
  int op() const { return static_cast<int>(what >> 10 & 0xF); }
  int step() const { return static_cast<int>(what >> 14 & 0x7); }
  int root() const { return static_cast<int>(what >> 17 & 0x7FFF); }
  uint32_t tag() const { return static_cast<uint32_t>(what >> 32); }
};
static_assert(sizeof(CollectiveKey) == 24, "it travels as it is");

// `step`, 0..7, tells the exchanges of one call apart.
inline CollectiveKey KeyOf(const FlatCall& call, int step = 0) {
  CollectiveKey key;
  key.what = static_cast<uint64_t>(call.collective) | static_cast<uint64_t>(call.type) << 5 |
             static_cast<uint64_t>(step) << 14 | static_cast<uint64_t>(call.tag) << 32;
  key.count = call.count;
  if (HasRoot(call.collective)) key.what |= static_cast<uint64_t>(call.root & 0x7FFF) << 17;
  if (!Reduces(call.collective)) return key;
  key.what |= static_cast<uint64_t>(call.reduction.op) << 10;
  if (call.reduction.op == ReduceOp::kPreMulSum) {
    std::memcpy(&key.scale, &call.reduction.scale, sizeof(key.scale));
  }
  return key;
}

// The call of a key from another process; nullopt: the key is not valid.
std::optional<FlatCall> CallOf(const CollectiveKey& key);
// Describes the call of a key, or the numbers of a key that is not valid.
std::string Describe(const CollectiveKey& key);

}  // namespace cohort

#endif  // COHORT_BASE_COLLECTIVE_COLLECTIVE_H_
