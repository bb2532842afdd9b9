#include "client/parallel/moe/gather_rows.h"

#include <cstddef>
#include <cstring>
#include <numeric>

#include "base/status_macros.h"
#include "client/parallel/collectives/allocate.h"
#include "client/parallel/moe/packed_rows.h"

namespace cohort::parallel {
namespace {

// Which tensors travel together. The same on all ranks that bring the same.
struct Parcel {
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  int64_t row_bytes() const { return RowBytes(inputs); }
};

// Before each rank's rows: the fingerprint of what it means.
constexpr int64_t kHeaderBytes = sizeof(uint32_t);

// One exchange of bytes: of each rank the header and its rows.
absl::Status GatherParcel(client::Group& group, const Parcel& parcel, const client::Sizes& sizes,
                          const std::string& description, const TimeLeft& time) {
  client::Sizes bytes;
  bytes.reserve(sizes.size());
  for (const int64_t rows : sizes) bytes.push_back(kHeaderBytes + rows * parcel.row_bytes());
  const auto own = static_cast<size_t>(group.rank());
  const auto make = [&](int64_t size) { return Allocate(group, DataType::kU8, {size}); };
  const absl::StatusOr<Tensor> input = make(bytes[own]);
  const absl::StatusOr<Tensor> output =
      make(std::accumulate(bytes.begin(), bytes.end(), int64_t{0}));
  if (!input.ok()) return RefuseAs(group, input.status(), time);
  if (!output.ok()) return RefuseAs(group, output.status(), time);
  char* const block = static_cast<char*>(input->data());
  const uint32_t fingerprint = FingerprintOf(description);
  std::memcpy(block, &fingerprint, sizeof fingerprint);
  const absl::Status packed = PackRows(parcel.inputs, 0, sizes[own], block + kHeaderBytes);
  if (!packed.ok()) return RefuseAs(group, packed, time);
  COHORT_RETURN_IF_ERROR(group.AllGatherV(*input, *output, 0, bytes, time.Options()));

  const char* from = static_cast<const char*>(output->data());
  for (const int64_t size : bytes) {
    if (std::memcmp(from, output->data(), kHeaderBytes) != 0) {
      return ExplainDifference(group, description, time);
    }
    from += size;
  }
  from = static_cast<const char*>(output->data());
  int64_t begin = 0;
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    COHORT_RETURN_IF_ERROR(UnpackRows(from + kHeaderBytes, begin, sizes[rank], parcel.outputs));
    begin += sizes[rank];
    from += bytes[rank];
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Tensor>> GatherRows(client::Group& group,
                                               const std::vector<Tensor>& tensors,
                                               const client::Sizes& sizes,
                                               const std::string& description, bool agreed,
                                               const TimeLeft& time) {
  const int64_t rows = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  std::vector<Tensor> outputs;
  std::vector<size_t> alone;
  Parcel parcel;
  for (const Tensor& tensor : tensors) {
    Shape shape = tensor.shape();
    shape[0] = rows;
    absl::StatusOr<Tensor> output = Allocate(group, tensor.type(), shape, tensor.device());
    if (!output.ok()) return RefuseAs(group, output.status(), time);
    if (tensors.size() > 1 && tensor.device().is_host() && output->bytes() <= kPackedBytes) {
      parcel.inputs.push_back(tensor);
      parcel.outputs.push_back(*output);
    } else {
      alone.push_back(outputs.size());
    }
    outputs.push_back(*std::move(output));
  }
  // First what tells whether ranks mean the same. One tensor says it itself, and on a stream nobody
  // waits.
  if (!parcel.inputs.empty()) {
    COHORT_RETURN_IF_ERROR(GatherParcel(group, parcel, sizes, description, time));
  } else if (!agreed && tensors.size() > 1 && !time.Options().stream.has_value()) {
    COHORT_RETURN_IF_ERROR(ExchangeAgreed(group, 0, description, time).status());
  }
  for (const size_t at : alone) {
    COHORT_RETURN_IF_ERROR(group.AllGatherV(tensors[at], outputs[at], 0, sizes, time.Options()));
  }
  return outputs;
}

}  // namespace cohort::parallel
