// A tensor map as bytes, without its tensors' elements: what travels ahead of them.
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
#ifndef COHORT_CLIENT_PARALLEL_TENSOR_MAP_ENTRIES_H_
#define COHORT_CLIENT_PARALLEL_TENSOR_MAP_ENTRIES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/tensor.h"
#include "client/parallel/tensor_map/tensor_map.h"

namespace cohort::parallel {

// The most that a map may have. Kept by who sends and by who receives, so they do not change with
// who is asked: a map that can be sent can be received.
inline constexpr int kMaxDepth = 32;                          // of maps and lists in each other
inline constexpr int64_t kMaxValues = int64_t{1} << 20;       // of all levels
inline constexpr int64_t kMaxEntryBytes = int64_t{64} << 20;  // but for tensors
inline constexpr int kMaxDims = 64;                           // of a tensor
inline constexpr int64_t kMaxTensorBytes = int64_t{1} << 56;  // of one, and of all together
inline constexpr int kMaxParts = 1 << 20;                     // of a tensor

// What of a tensor travels ahead of its elements.
struct TensorEntry {
  DataType type = DataType::kU8;
  bool on_gpu = false;
  // 1: it comes whole. More: who sends it has sent that part of the flat elements which is its
  // rank's, of so many; those who receive gather them.
  int parts = 1;
  Shape shape;

  int64_t count() const { return ElementCount(shape); }
  int64_t bytes() const { return count() * SizeOf(type); }
  // Of what is sent: all elements, or the part's.
  int64_t sent_count() const { return count() / parts; }

  // Such as: bf16 [3, 4], or, where it is sent in parts: bf16 [3, 4] in 2 parts
  std::string ToString() const;
};

struct EncodedMap {
  std::string entries;
  // In the order of the entries, and what was encoded of each.
  std::vector<Tensor> tensors;
  std::vector<TensorEntry> tensor_entries;
};

// Into how many parts a tensor goes.
using PartsOf = absl::FunctionRef<absl::StatusOr<int>(WayTo way, const Tensor& tensor)>;

// Errors: INVALID_ARGUMENT (names the way to what is nested too deeply, to a tensor that has no
// memory or does not divide into its parts); RESOURCE_EXHAUSTED (more than the limits above); those
// of `parts`.
absl::StatusOr<EncodedMap> EncodeMap(const TensorMap& map, PartsOf parts);
absl::StatusOr<EncodedMap> EncodeMap(const TensorMap& map);  // all whole

// A map whose tensors have not come yet.
class DecodedMap {
 public:
  // Bytes of anybody. Errors: INVALID_ARGUMENT (what EncodeMap does not make; says what is wrong
  // with it), RESOURCE_EXHAUSTED (more than the limits above).
  static absl::StatusOr<DecodedMap> Parse(absl::string_view entries);

  // In the order of the entries.
  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  void Fill(size_t index, Tensor tensor) { *slots_[index] = std::move(tensor); }
  // Once all are filled.
  TensorMap Take() && { return std::move(map_); }

 private:
  friend class EntryReader;

  TensorMap map_;
  std::vector<TensorEntry> tensors_;
  std::vector<std::shared_ptr<Tensor>> slots_;  // of map_
};

// Values in which no tensor is. Errors: as of maps; INVALID_ARGUMENT (names the way to a tensor).
absl::StatusOr<std::string> EncodeValue(const Value& value);
absl::StatusOr<Value> DecodeValue(absl::string_view bytes);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_TENSOR_MAP_ENTRIES_H_
