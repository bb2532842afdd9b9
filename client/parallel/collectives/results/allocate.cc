#include "client/parallel/collectives/results/allocate.h"

#include <cstdint>
#include <new>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/tensor/data_type.h"

namespace cohort::parallel {

absl::Status CheckCountable(DataType type, const Shape& shape) {
  const auto wrong = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("a tensor of ", NameOf(type), " ", FormatShape(shape), ": ", why));
  };
  for (const int64_t extent : shape) {
    if (extent < 0) return wrong("an extent is negative");
  }
  if (CountableBytes(type, shape).has_value()) return absl::OkStatus();
  return wrong("it has more bytes than can be counted");
}

absl::StatusOr<Tensor> Allocate(client::Group& group, DataType type, const Shape& shape,
                                Device device) {
  COHORT_RETURN_IF_ERROR(CheckCountable(type, shape));
  try {
    return group.Allocate(type, shape, device);
  } catch (const std::bad_alloc&) {
    // A daemon's client that shares no memory with it allocates tensors in its own memory.
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for a tensor of ", NameOf(type), " ", FormatShape(shape)));
  }
}

}  // namespace cohort::parallel
