#include "client/parallel/moe/rows/gather_rows.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "client/parallel/collectives/results/allocate.h"
#include "client/parallel/moe/rows/packed_rows.h"

namespace cohort::parallel {
namespace {

// Precedes each rank's rows: the fingerprints of its meaning and of the sizes.
constexpr int64_t kHeaderBytes = 16;
// Up to so many bytes in all, every block has the size of the largest: that is one plain exchange.
constexpr int64_t kEvenBytes = int64_t{128} << 10;
// Up to so many bytes, results share the memory in which they arrived.
constexpr int64_t kLittleBytes = int64_t{16} << 10;
// No two tensors share a cache line.
constexpr int64_t kLineBytes = 64;

int64_t Lines(int64_t bytes) { return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes; }

// The tensors that travel together, and their places. The same on all ranks that give the same.
struct Parcel {
  absl::InlinedVector<const Tensor*, 4> inputs;
  absl::InlinedVector<Tensor, 4> outputs;
  absl::InlinedVector<size_t, 4> places;  // of outputs, in all results
  // Each rank's block has the header and its rows. Blocks have one size, or each the size of its
  // rows.
  bool even = false;
  int64_t row_bytes = 0;
  int64_t most_bytes = 0;  // of a block
  Tensor sent;
  Tensor came;

  int64_t BlockBytes(int64_t rows) const {
    return even ? most_bytes : kHeaderBytes + rows * row_bytes;
  }
};

// The places of the parcel's tensors. A small parcel is one allocation, which the results keep.
absl::Status MakeRoom(client::Group& group, const client::Sizes& sizes, int64_t rows,
                      Parcel& parcel) {
  int64_t results = 0;
  for (const Tensor* const input : parcel.inputs) {
    const int64_t row = RowBytes(*input);
    parcel.row_bytes += row;
    results += Lines(rows * row);
  }
  const int64_t most = *std::max_element(sizes.begin(), sizes.end());
  parcel.most_bytes = Lines(kHeaderBytes + most * parcel.row_bytes);
  const auto ranks = static_cast<int64_t>(sizes.size());
  parcel.even = parcel.most_bytes <= kEvenBytes / ranks;
  const int64_t own = parcel.BlockBytes(sizes[static_cast<size_t>(group.rank())]);
  int64_t all = 0;
  for (const int64_t size : sizes) all += parcel.BlockBytes(size);
  const int64_t travel = Lines(own) + all;

  const bool together = results + travel <= kLittleBytes;
  COHORT_ASSIGN_OR_RETURN(const Tensor kept,
                          Allocate(group, DataType::kU8, {together ? results + travel : results}));
  char* at = static_cast<char*>(kept.data());
  for (const Tensor* const input : parcel.inputs) {
    Shape shape = input->shape();
    shape[0] = rows;
    parcel.outputs.emplace_back(at, input->type(), std::move(shape), kept.owner());
    at += Lines(parcel.outputs.back().bytes());
  }
  std::shared_ptr<const void> owner = kept.owner();
  if (!together) {
    COHORT_ASSIGN_OR_RETURN(const Tensor room, Allocate(group, DataType::kU8, {travel}));
    at = static_cast<char*>(room.data());
    owner = room.owner();
  }
  parcel.sent = Tensor(at, DataType::kU8, {own}, owner);
  parcel.came = Tensor(at + Lines(own), DataType::kU8, {all}, std::move(owner));
  return absl::OkStatus();
}

// One exchange of bytes.
absl::Status GatherParcel(client::Group& group, const Parcel& parcel, const client::Sizes& sizes,
                          const Meaning& what, const client::CallDeadline& deadline) {
  // Blocks of one size do not show which rank's sizes differ.
  Fingerprint said;
  said.Add(what.fingerprint);
  for (const int64_t size : sizes) said.Add(static_cast<uint64_t>(size));
  const auto text = [&] {
    return absl::StrCat(what.text(), ", with rows by rank [", absl::StrJoin(sizes, ", "), "]");
  };
  const Meaning meaning = {FingerprintOf(said), text};
  char* const block = static_cast<char*>(parcel.sent.data());
  std::memcpy(block, &meaning.fingerprint, sizeof meaning.fingerprint);
  const absl::Status packed =
      PackRows(parcel.inputs, 0, sizes[static_cast<size_t>(group.rank())], block + kHeaderBytes);
  if (!packed.ok()) return group.FailCollective(packed, deadline.Left());
  if (parcel.even) {
    COHORT_RETURN_IF_ERROR(group.AllGather(parcel.sent, parcel.came, 0, deadline.Left()));
  } else {
    client::Sizes bytes;
    bytes.reserve(sizes.size());
    for (const int64_t size : sizes) bytes.push_back(parcel.BlockBytes(size));
    COHORT_RETURN_IF_ERROR(group.AllGatherV(parcel.sent, parcel.came, 0, bytes, deadline.Left()));
  }

  const auto* const blocks = static_cast<const char*>(parcel.came.data());
  const char* from = blocks;
  for (const int64_t size : sizes) {
    if (std::memcmp(from, blocks, sizeof meaning.fingerprint) != 0) {
      return ExplainDifference(group, meaning, deadline);
    }
    from += parcel.BlockBytes(size);
  }
  from = blocks;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    COHORT_RETURN_IF_ERROR(UnpackRows(from + kHeaderBytes, begin, size, parcel.outputs));
    begin += size;
    from += parcel.BlockBytes(size);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Tensor>> GatherRows(client::Group& group,
                                               absl::Span<const Tensor* const> tensors,
                                               const client::Sizes& sizes, const Meaning& meaning,
                                               bool agreed, const client::CallDeadline& deadline) {
  const int64_t rows = SumOf(sizes);
  std::vector<Tensor> outputs(tensors.size());
  absl::InlinedVector<size_t, 4> alone;
  Parcel parcel;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = *tensors[i];
    int64_t bytes = 0;
    const bool is_countable = !__builtin_mul_overflow(rows, RowBytes(tensor), &bytes);
    if (tensors.size() > 1 && tensor.device().is_host() && is_countable && bytes <= kPackedBytes) {
      parcel.inputs.push_back(&tensor);
      parcel.places.push_back(i);
      continue;
    }
    Shape shape = tensor.shape();
    shape[0] = rows;
    absl::StatusOr<Tensor> output = Allocate(group, tensor.type(), shape, tensor.device());
    if (!output.ok()) return group.FailCollective(output.status(), deadline.Left());
    alone.push_back(i);
    outputs[i] = *std::move(output);
  }
  // Ranks compare their meanings before large tensors move. A single tensor's call compares itself,
  // and on a stream ranks do not wait.
  if (!parcel.inputs.empty()) {
    const absl::Status allocated = MakeRoom(group, sizes, rows, parcel);
    if (!allocated.ok()) return group.FailCollective(allocated, deadline.Left());
    COHORT_RETURN_IF_ERROR(GatherParcel(group, parcel, sizes, meaning, deadline));
    for (size_t i = 0; i < parcel.places.size(); ++i) {
      outputs[parcel.places[i]] = std::move(parcel.outputs[i]);
    }
  } else if (!agreed && tensors.size() > 1 && !deadline.has_stream()) {
    COHORT_RETURN_IF_ERROR(ExchangeAgreed(group, 0, meaning, deadline).status());
  }
  for (const size_t at : alone) {
    COHORT_RETURN_IF_ERROR(group.AllGatherV(*tensors[at], outputs[at], 0, sizes, deadline.Left()));
  }
  return outputs;
}

}  // namespace cohort::parallel
