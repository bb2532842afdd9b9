// A tensor map as bytes, without its tensors' elements: these bytes travel before the elements.
//
//   entries := version(1 byte) map
//   map     := count, { text, value }
//   value   := kind(1 byte), one of:
//              null      -
//              bool      1 byte, 0 or 1
//              int       zigzag
//              double    8 bytes, the least significant first
//              text      text
//              bytes     text
//              list      count, { value }
//              tensor    type(1 byte) place(1 byte: 0 host, 1 GPU) parts dims, { extent }
//              map       map
//   text    := length, its bytes
//
// Counts, lengths and extents are varints: 7 bits a byte, the least significant first.
#ifndef COHORT_CLIENT_PARALLEL_TENSOR_MAP_ENTRIES_ENTRIES_H_
#define COHORT_CLIENT_PARALLEL_TENSOR_MAP_ENTRIES_ENTRIES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/tensor/tensor.h"
#include "client/parallel/tensor_map/tensor_map.h"

namespace cohort::parallel {

// Limits of a map. Senders and receivers check the same limits on all ranks, so a map that can be
// sent can be received.
inline constexpr int kMaxDepth = 32;                          // of nested maps and lists
inline constexpr int64_t kMaxValues = int64_t{1} << 20;       // on all levels
inline constexpr int64_t kMaxEntryBytes = int64_t{64} << 20;  // without tensors' elements
inline constexpr int kMaxDims = 64;                           // of a tensor
inline constexpr int64_t kMaxTensorBytes = int64_t{1} << 56;  // of one tensor, and of all together
inline constexpr int kMaxParts = 1 << 20;                     // of a tensor

// The description of a tensor that travels before its elements.
struct TensorEntry {
  DataType type = DataType::kU8;
  bool on_gpu = false;
  // 1: the tensor travels whole. More: each sender sends its rank's part of the flat elements, of
  // so many parts, and the receivers gather the parts.
  int parts = 1;
  Shape shape;

  int64_t count() const { return ElementCount(shape); }
  int64_t bytes() const { return count() * SizeOf(type); }
  // The number of sent elements: all elements, or those of one part.
  int64_t sent_count() const { return count() / parts; }

  // Such as: bf16 [3, 4], or, if it is sent in parts: bf16 [3, 4] in 2 parts
  std::string ToString() const;
};

struct EncodedMap {
  std::string entries;
  // The tensors in the order of the entries, and the entry of each tensor.
  std::vector<Tensor> tensors;
  std::vector<TensorEntry> tensor_entries;
};

// Returns the number of parts in which a tensor is sent.
using PartsOf = absl::FunctionRef<absl::StatusOr<int>(WayTo way, const Tensor& tensor)>;

// Errors: INVALID_ARGUMENT (a value is nested too deeply, or a tensor has no memory or does not
// divide into its parts; names the path to it); RESOURCE_EXHAUSTED (above the limits); those of
// `parts`.
absl::StatusOr<EncodedMap> EncodeMap(const TensorMap& map, PartsOf parts);
absl::StatusOr<EncodedMap> EncodeMap(const TensorMap& map);  // all whole

// A map whose tensors have not arrived yet.
class DecodedMap {
 public:
  // Parses untrusted bytes. Errors: INVALID_ARGUMENT (not the bytes of EncodeMap; says why),
  // RESOURCE_EXHAUSTED (above the limits).
  static absl::StatusOr<DecodedMap> Parse(absl::string_view entries);

  // In the order of the entries.
  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  void Fill(size_t index, Tensor tensor) { *slots_[index] = std::move(tensor); }
  // Precondition: all tensors are filled.
  TensorMap Take() && { return std::move(map_); }

 private:
  friend class EntryReader;

  TensorMap map_;
  std::vector<TensorEntry> tensors_;
  std::vector<std::shared_ptr<Tensor>> slots_;  // of map_
};

// Values without tensors. Errors: as for maps; INVALID_ARGUMENT (names the path to a tensor).
absl::StatusOr<std::string> EncodeValue(const Value& value);
absl::StatusOr<Value> DecodeValue(absl::string_view bytes);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_TENSOR_MAP_ENTRIES_ENTRIES_H_
