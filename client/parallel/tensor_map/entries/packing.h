// Which parts of a broadcast map travel together: its entries with the small tensors of the host in
// the front, and the small tensors of GPUs. All other tensors travel alone. All ranks compute it
// from the same entries.
//
//   front := code(1 byte: 0) 7 bytes, size of entries(8 bytes) entries, { tensor at multiples of 64
//   }
//          | code(1 byte: a status' code) 7 bytes, text       of a root that cannot send
#ifndef COHORT_CLIENT_PARALLEL_TENSOR_MAP_ENTRIES_PACKING_H_
#define COHORT_CLIENT_PARALLEL_TENSOR_MAP_ENTRIES_PACKING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/tensor/tensor.h"
#include "client/parallel/tensor_map/entries/entries.h"

namespace cohort::parallel {

// Tensors of up to so many bytes travel, and are allocated, together with others.
inline constexpr int64_t kSmallOnHost = int64_t{16} << 10;
inline constexpr int64_t kSmallOnGpu = int64_t{64} << 10;

class Packing {
 public:
  Packing() = default;
  // `all_of_host`: the front takes large tensors of the host, too.
  static Packing Of(size_t entry_bytes, const std::vector<TensorEntry>& tensors,
                    bool all_of_host = false);

  int64_t front_bytes() const { return front_bytes_; }
  // The bytes of the small tensors on GPUs; 0 if there are fewer than two.
  int64_t gpu_bytes() const { return gpu_bytes_; }
  // Whether tensors travel after the front.
  bool has_more() const { return alone_ > 0 || gpu_bytes_ > 0; }

  // Whether tensor `index` travels with others, in the front or on the GPU; or by itself. An empty
  // tensor does neither.
  bool is_packed(size_t index) const { return offsets_[index] >= 0; }
  bool is_alone(size_t index) const { return offsets_[index] == kAlone; }
  // A view of a packed tensor in `memory`, the front or the memory of the packed tensors on the
  // GPU.
  Tensor ViewOf(size_t index, const TensorEntry& entry, const Tensor& memory) const;

 private:
  static constexpr int64_t kAlone = -1;
  static constexpr int64_t kEmpty = -2;

  std::vector<int64_t> offsets_;
  int64_t front_bytes_ = 0;
  int64_t gpu_bytes_ = 0;
  int64_t alone_ = 0;
};

// Precondition: `front` has room for the entries.
void WriteEntries(absl::string_view entries, const Tensor& front);
std::string EncodeError(const absl::Status& why);
// Parses untrusted bytes; never OK.
absl::Status DecodeError(absl::string_view error);
// Parses untrusted bytes. Errors: the root's, if it refused; INVALID_ARGUMENT (not a front).
absl::StatusOr<absl::string_view> EntriesIn(const Tensor& front);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_TENSOR_MAP_ENTRIES_PACKING_H_
