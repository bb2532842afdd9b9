// What of a broadcast map goes together: its entries with the small tensors of the host, the small
// tensors of GPUs; all others go alone. Computed by all ranks from the same entries.
//
//   front := code(1 byte: 0) 7 bytes, size of entries(8 bytes) entries, { tensor at multiples of 64
//   }
//          | code(1 byte: a status' code) 7 bytes, text       of a root that cannot send
#ifndef COHORT_CLIENT_PARALLEL_TENSOR_MAP_PACKING_H_
#define COHORT_CLIENT_PARALLEL_TENSOR_MAP_PACKING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/tensor.h"
#include "client/parallel/tensor_map/entries.h"

namespace cohort::parallel {

// Up to so many bytes a tensor goes, and is allocated, together with others.
inline constexpr int64_t kSmallOnHost = int64_t{16} << 10;
inline constexpr int64_t kSmallOnGpu = int64_t{64} << 10;

class Packing {
 public:
  Packing() = default;
  // `all_of_host`: large ones of the host go in the front, too.
  static Packing Of(size_t entry_bytes, const std::vector<TensorEntry>& tensors,
                    bool all_of_host = false);

  int64_t front_bytes() const { return front_bytes_; }
  // Of the small tensors on GPUs; 0 if there are less than two.
  int64_t gpu_bytes() const { return gpu_bytes_; }
  // Whether something goes behind the front.
  bool has_more() const { return alone_ > 0 || gpu_bytes_ > 0; }

  // Of tensor `index`: in the front, or with others on the GPU; or by itself. Empty ones are
  // neither.
  bool is_packed(size_t index) const { return offsets_[index] >= 0; }
  bool is_alone(size_t index) const { return offsets_[index] == kAlone; }
  // Of a packed one: where it lies in the front, or in what the others on the GPU lie in.
  Tensor ViewOf(size_t index, const TensorEntry& entry, const Tensor& memory) const;

 private:
  static constexpr int64_t kAlone = -1;
  static constexpr int64_t kEmpty = -2;

  std::vector<int64_t> offsets_;
  int64_t front_bytes_ = 0;
  int64_t gpu_bytes_ = 0;
  int64_t alone_ = 0;
};

// Precondition: `front` has room for them.
void WriteEntries(absl::string_view entries, const Tensor& front);
std::string MakeRefusal(const absl::Status& why);
// Of bytes of anybody; never OK.
absl::Status RefusalIn(absl::string_view refusal);
// Of bytes of anybody. Errors: the root's, if it refused; INVALID_ARGUMENT (it is no front).
absl::StatusOr<absl::string_view> EntriesIn(const Tensor& front);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_TENSOR_MAP_PACKING_H_
