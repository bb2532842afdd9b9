// Collectives on parts of different sizes, in one of three ways. If all sizes are equal, they run
// as collectives on equal parts. Small parts are padded to the largest: one collective for all,
// instead of one or two for each part. Large parts go one by one, directly to their offsets.
#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/communicator/argument_error.h"
#include "worker/communicator/mismatch.h"
#include "worker/group/collectives/mismatch_text.h"
#include "worker/group/collectives/tensor_collectives.h"
#include "worker/group/collectives/tensor_parts.h"

namespace cohort::worker {
namespace {

// The most bytes that all padded parts have together.
constexpr int64_t kPadded = int64_t{128} << 10;

enum class Way { kEqual, kPadded, kParts };

int64_t Largest(absl::Span<const int64_t> sizes) {
  return *std::max_element(sizes.begin(), sizes.end());
}

// All ranks choose the same way, unless they called different collectives.
Way WayOf(const CollectiveCall& call) {
  const int64_t largest = Largest(call.sizes);
  if (*std::min_element(call.sizes.begin(), call.sizes.end()) == largest) return Way::kEqual;
  const int64_t row = RowCount(call.shape, call.dim) * SizeOf(call.type);
  const auto ranks = static_cast<int64_t>(call.sizes.size());
  return row == 0 || largest <= kPadded / row / ranks ? Way::kPadded : Way::kParts;
}

// Calls body(rank, begin, count) for each part that is not empty, in elements of flat memory.
template <typename Body>
void ForEachPart(absl::Span<const int64_t> sizes, int64_t row, const Body& body) {
  int64_t begin = 0;
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    const int64_t count = sizes[rank] * row;
    if (count > 0) body(static_cast<int>(rank), begin, count);
    begin += count;
  }
}

// Checks that the part lies at `in_place`, its own location in the whole, or outside of the whole.
absl::Status CheckApart(const CollectiveCall& call, const Tensor& part, const Tensor& whole,
                        const char* in_place) {
  if (part.count() == 0 || whole.count() == 0) return absl::OkStatus();
  const auto* const a = static_cast<const char*>(part.data());
  const auto* const b = static_cast<const char*>(whole.data());
  if (a == in_place || a + part.bytes() <= b || b + whole.bytes() <= a) return absl::OkStatus();
  return InvalidCall(call, "input and output overlap, but not in the way of an in-place call");
}

// The number of elements before a rank's part.
int64_t Before(absl::Span<const int64_t> sizes, int rank) {
  return std::accumulate(sizes.begin(), sizes.begin() + rank, int64_t{0});
}

}  // namespace

absl::StatusOr<int64_t> TensorCollectives::CheckSizes(const CollectiveCall& call) const {
  const absl::Span<const int64_t> sizes = call.sizes;
  CollectiveCall shown = call;
  shown.sizes = {};
  if (static_cast<int>(sizes.size()) != size()) {
    return InvalidCall(
        shown, absl::StrCat(sizes.size(), " sizes, and not one for each of ", size(), " ranks"));
  }
  int64_t sum = 0;
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    if (sizes[rank] < 0) {
      return InvalidCall(shown, absl::StrCat("a size of ", sizes[rank], " for rank ", rank));
    }
    if (__builtin_add_overflow(sum, sizes[rank], &sum)) {
      return InvalidCall(shown, "the sizes' sum is larger than memory");
    }
  }
  return sum;
}

absl::Status TensorCollectives::AllGatherV(const CollectiveCall& call, const Tensor& input,
                                           const Tensor& output, Instant deadline) {
  COHORT_ASSIGN_OR_RETURN(const int64_t sum, CheckSizes(call));
  const int64_t own = call.sizes[static_cast<size_t>(rank())];
  COHORT_RETURN_IF_ERROR(CheckInput(call, input, {input.shape(), call.dim, own}));
  COHORT_RETURN_IF_ERROR(CheckOutput(call, output, {input.shape(), call.dim, sum}));
  const Way way = WayOf(call);
  if (way == Way::kEqual) return EqualAllGather(call, input, output, deadline);
  if (way == Way::kPadded) return PaddedAllGather(call, input, output, deadline);
  return BroadcastParts(call, input, output, deadline);
}

absl::Status TensorCollectives::PaddedAllGather(const CollectiveCall& call, const Tensor& input,
                                                const Tensor& output, Instant deadline) {
  const int64_t pitch = Largest(call.sizes) * RowCount(call.shape, call.dim);
  const int64_t bytes = pitch * SizeOf(call.type);
  COHORT_ASSIGN_OR_RETURN(char* const all,
                          scratch_.Take(ContiguousScratch::kOutput, bytes * size()));
  char* const own = all + bytes * rank();
  COHORT_RETURN_IF_ERROR(location_.Copy(input, Flat(own, call.type, input.shape())));
  const absl::Status status = RunFlat(call, Collective::kAllGather, own, all, pitch, deadline);
  if (!status.ok()) return Finish(call, status, deadline);
  return FinishCopied(call, UnpackParts(all, pitch, output, call.dim, call.sizes, Copier()),
                      deadline);
}

absl::Status TensorCollectives::BroadcastParts(const CollectiveCall& call, const Tensor& input,
                                               const Tensor& output, Instant deadline) {
  const int64_t row = RowCount(call.shape, call.dim);
  const int64_t element = SizeOf(call.type);
  const bool direct = HasFlatParts(output, call.dim);
  char* all = static_cast<char*>(output.data());
  if (!direct) {
    COHORT_ASSIGN_OR_RETURN(all, scratch_.Take(ContiguousScratch::kOutput, output.bytes()));
  }
  char* const own = all + Before(call.sizes, rank()) * row * element;
  const void* from = input.data();
  if (!input.contiguous()) {
    from = own;
    COHORT_RETURN_IF_ERROR(location_.Copy(input, Flat(own, call.type, input.shape())));
  } else if (direct) {
    COHORT_RETURN_IF_ERROR(CheckApart(call, input, output, own));
  }
  absl::Status status;
  CollectiveCall part = call;
  ForEachPart(call.sizes, row, [&](int root, int64_t begin, int64_t count) {
    if (!status.ok()) return;
    part.root = root;
    status = RunFlat(part, Collective::kBroadcast, from, all + begin * element, count, deadline);
  });
  if (!status.ok() || direct) return Finish(call, status, deadline);
  return FinishCopied(call, UnpackParts(all, 0, output, call.dim, call.sizes, Copier()), deadline);
}

absl::Status TensorCollectives::ReduceScatterV(const CollectiveCall& call, const Tensor& input,
                                               const Tensor& output, Instant deadline) {
  COHORT_ASSIGN_OR_RETURN(const int64_t sum, CheckSizes(call));
  const int64_t own = call.sizes[static_cast<size_t>(rank())];
  COHORT_RETURN_IF_ERROR(CheckOutput(call, output, {output.shape(), call.dim, own}));
  COHORT_RETURN_IF_ERROR(CheckInput(call, input, {output.shape(), call.dim, sum}));
  const Way way = WayOf(call);
  if (way == Way::kEqual) return EqualReduceScatter(call, input, output, deadline);
  if (way == Way::kPadded) return PaddedReduceScatter(call, input, output, deadline);
  return ReduceParts(call, input, output, deadline);
}

absl::Status TensorCollectives::PaddedReduceScatter(const CollectiveCall& call, const Tensor& input,
                                                    const Tensor& output, Instant deadline) {
  const int64_t pitch = Largest(call.sizes) * RowCount(call.shape, call.dim);
  const int64_t bytes = pitch * SizeOf(call.type);
  COHORT_ASSIGN_OR_RETURN(char* const all,
                          scratch_.Take(ContiguousScratch::kInput, bytes * size()));
  // The reduction covers the padding too: zeros are valid numbers, and fast ones.
  COHORT_RETURN_IF_ERROR(location_.Clear(all, bytes * size()));
  COHORT_RETURN_IF_ERROR(PackParts(input, call.dim, call.sizes, pitch, all, Copier()));
  char* const own = all + bytes * rank();
  const absl::Status status = RunFlat(call, Collective::kReduceScatter, all, own, pitch, deadline);
  return Finish(call, status, own, output, deadline);
}

absl::Status TensorCollectives::ReduceParts(const CollectiveCall& call, const Tensor& input,
                                            const Tensor& output, Instant deadline) {
  const int64_t row = RowCount(call.shape, call.dim);
  const int64_t element = SizeOf(call.type);
  const bool direct = HasFlatParts(input, call.dim);
  char* all = static_cast<char*>(input.data());
  if (!direct) {
    COHORT_ASSIGN_OR_RETURN(all, scratch_.Take(ContiguousScratch::kInput, input.bytes()));
    COHORT_RETURN_IF_ERROR(PackParts(input, call.dim, call.sizes, 0, all, Copier()));
  } else if (output.contiguous()) {
    const char* const own = all + Before(call.sizes, rank()) * row * element;
    COHORT_RETURN_IF_ERROR(CheckApart(call, output, input, own));
  }
  COHORT_ASSIGN_OR_RETURN(void* const to, FlatMemory(output));
  absl::Status status;
  CollectiveCall part = call;
  ForEachPart(call.sizes, row, [&](int root, int64_t begin, int64_t count) {
    if (!status.ok()) return;
    part.root = root;
    status = RunFlat(part, Collective::kReduce, all + begin * element,
                     root == rank() ? to : nullptr, count, deadline);
  });
  return Finish(call, status, to, output, deadline);
}

absl::Status TensorCollectives::GatherV(const CollectiveCall& call, const Tensor& input,
                                        const Tensor& output, Instant deadline) {
  COHORT_ASSIGN_OR_RETURN(const int64_t sum, CheckSizes(call));
  const int64_t own = call.sizes[static_cast<size_t>(rank())];
  COHORT_RETURN_IF_ERROR(CheckInput(call, input, {input.shape(), call.dim, own}));
  if (rank() == call.root) {
    COHORT_RETURN_IF_ERROR(CheckOutput(call, output, {input.shape(), call.dim, sum}));
  }
  const Way way = WayOf(call);
  if (way == Way::kEqual) return EqualGather(call, input, output, deadline);
  if (way == Way::kPadded) return PaddedGather(call, input, output, deadline);
  return SendParts(call, input, output, deadline);
}

absl::Status TensorCollectives::PaddedGather(const CollectiveCall& call, const Tensor& input,
                                             const Tensor& output, Instant deadline) {
  const int64_t pitch = Largest(call.sizes) * RowCount(call.shape, call.dim);
  const int64_t bytes = pitch * SizeOf(call.type);
  const bool is_root = rank() == call.root;
  COHORT_ASSIGN_OR_RETURN(
      char* const all, scratch_.Take(ContiguousScratch::kOutput, is_root ? bytes * size() : bytes));
  char* const own = is_root ? all + bytes * rank() : all;
  COHORT_RETURN_IF_ERROR(location_.Copy(input, Flat(own, call.type, input.shape())));
  const absl::Status status = RunFlat(call, Collective::kGather, own, all, pitch, deadline);
  if (!status.ok() || !is_root) return Finish(call, status, deadline);
  return FinishCopied(call, UnpackParts(all, pitch, output, call.dim, call.sizes, Copier()),
                      deadline);
}

absl::Status TensorCollectives::SendParts(const CollectiveCall& call, const Tensor& input,
                                          const Tensor& output, Instant deadline) {
  const int64_t row = RowCount(call.shape, call.dim);
  const int64_t element = SizeOf(call.type);
  if (rank() != call.root) {
    COHORT_ASSIGN_OR_RETURN(const void* const from, Load(input));
    absl::Status status = RunFlat(call, Collective::kBarrier, nullptr, nullptr, 0, deadline);
    if (status.ok() && input.count() > 0) {
      Transfer send = Transfer::Send(call.root, from, input.count(), call.type);
      send.tag = Digest(call);
      status = communicator_.Exchange({send}, deadline);
    }
    return Finish(call, status, deadline);
  }
  const bool direct = HasFlatParts(output, call.dim);
  char* all = static_cast<char*>(output.data());
  if (!direct) {
    COHORT_ASSIGN_OR_RETURN(all, scratch_.Take(ContiguousScratch::kOutput, output.bytes()));
  }
  char* const own = all + Before(call.sizes, rank()) * row * element;
  if (direct && input.contiguous()) {
    COHORT_RETURN_IF_ERROR(CheckApart(call, input, output, own));
  }
  absl::Status status = RunFlat(call, Collective::kBarrier, nullptr, nullptr, 0, deadline);
  if (status.ok()) {
    status = location_.Copy(input, Flat(own, call.type, input.shape()));
  }
  if (status.ok()) {
    std::vector<Transfer> receives;
    ForEachPart(call.sizes, row, [&](int peer, int64_t begin, int64_t count) {
      if (peer == rank()) return;
      receives.push_back(Transfer::Receive(peer, all + begin * element, count, call.type));
    });
    for (Transfer& receive : receives) receive.tag = Digest(call);
    status = communicator_.Exchange(receives, deadline);
  }
  if (!status.ok()) return Finish(call, status, deadline);
  if (!direct) status = UnpackParts(all, 0, output, call.dim, call.sizes, Copier());
  return FinishCopied(call, status, deadline);
}

absl::Status TensorCollectives::AllToAllV(const CollectiveCall& own_call, const Tensor& input,
                                          const Tensor& output, Instant deadline) {
  const absl::Span<const int64_t> input_sizes = own_call.sizes;
  const absl::Span<const int64_t> output_sizes = own_call.output_sizes;
  COHORT_RETURN_IF_ERROR(CheckFirstDim(own_call));
  CollectiveCall call = own_call;
  COHORT_ASSIGN_OR_RETURN(const int64_t sent, CheckSizes(call));
  COHORT_RETURN_IF_ERROR(CheckInput(call, input, {input.shape(), 0, sent}));
  call.sizes = output_sizes;
  COHORT_ASSIGN_OR_RETURN(const int64_t received, CheckSizes(call));
  COHORT_RETURN_IF_ERROR(CheckOutput(call, output, {input.shape(), 0, received}));
  call.sizes = {};  // each rank has its own
  if (input.contiguous() && output.contiguous()) {
    COHORT_RETURN_IF_ERROR(CheckApart(call, input, output, nullptr));
  }

  const auto ranks = static_cast<size_t>(size());
  all_sizes_.resize(2 * ranks * ranks);
  int64_t* const own = all_sizes_.data() + 2 * size() * rank();
  std::copy(input_sizes.begin(), input_sizes.end(), own);
  std::copy(output_sizes.begin(), output_sizes.end(), own + size());
  FlatCall exchange = FlatCallOf(call, Collective::kAllGather, 2 * size());
  exchange.type = DataType::kI64;
  const absl::Status ran = host_.Run(exchange, own, all_sizes_.data(), deadline);
  if (IsMismatch(ran)) {
    bool mixed = false;
    const absl::Status told = Explain(Describe(call), ran, deadline, CallForm::kAllToAllV, &mixed);
    return mixed ? AllToAllV(own_call, input, output, deadline) : told;
  }
  if (!ran.ok()) return Finish(call, ran, deadline);
  COHORT_RETURN_IF_ERROR(CheckCounterparts(call));
  const bool equal = std::all_of(all_sizes_.begin(), all_sizes_.end(),
                                 [&](int64_t size) { return size == all_sizes_[0]; });
  if (equal) return EqualAllToAll(call, input, output, deadline, nullptr);
  return ExchangeParts(call, input, input_sizes, output, output_sizes, deadline);
}

absl::Status TensorCollectives::CheckCounterparts(const CollectiveCall& call) const {
  const auto ranks = static_cast<size_t>(size());
  for (size_t from = 0; from < ranks; ++from) {
    for (size_t to = 0; to < ranks; ++to) {
      const int64_t sent = all_sizes_[from * 2 * ranks + to];
      const int64_t expected = all_sizes_[to * 2 * ranks + ranks + from];
      if (sent == expected) continue;
      // All ranks find the same error, so this rank need not tell the others.
      return Unmarked(
          InvalidCall(call, absl::StrCat("rank ", from, " sends ", sent, " to rank ", to,
                                         ", which expects ", expected, " from it")));
    }
  }
  return absl::OkStatus();
}

absl::Status TensorCollectives::ExchangeParts(const CollectiveCall& call, const Tensor& input,
                                              absl::Span<const int64_t> input_sizes,
                                              const Tensor& output,
                                              absl::Span<const int64_t> output_sizes,
                                              Instant deadline) {
  const int64_t row = RowCount(call.shape, 0);
  const int64_t element = SizeOf(call.type);
  COHORT_ASSIGN_OR_RETURN(const void* const packed, Load(input));
  COHORT_ASSIGN_OR_RETURN(void* const to, FlatMemory(output));
  const auto* const from = static_cast<const char*>(packed);
  std::vector<Transfer> transfers;
  const char* own = nullptr;
  absl::Status copied;
  ForEachPart(input_sizes, row, [&](int peer, int64_t begin, int64_t count) {
    const char* const part = from + begin * element;
    if (peer == rank()) {
      own = part;
    } else {
      transfers.push_back(Transfer::Send(peer, part, count, call.type));
    }
  });
  ForEachPart(output_sizes, row, [&](int peer, int64_t begin, int64_t count) {
    char* const part = static_cast<char*>(to) + begin * element;
    if (peer == rank()) {
      copied = location_.Copy(Flat(own, call.type, {count}), Flat(part, call.type, {count}));
    } else {
      transfers.push_back(Transfer::Receive(peer, part, count, call.type));
    }
  });
  for (Transfer& transfer : transfers) transfer.tag = Digest(call);
  absl::Status status = communicator_.Exchange(transfers, deadline);
  status.Update(copied);
  if (status.ok()) status = Store(to, output);
  return FinishCopied(call, status, deadline);
}

absl::Status TensorCollectives::ExchangeSizes(const CollectiveCall& call, const Tensor& input,
                                              const Tensor& output, Instant deadline) {
  const int64_t own = *static_cast<const int64_t*>(input.data());
  if (own < 0) return InvalidCall(call, absl::StrCat("a size of ", own));
  return Finish(call,
                RunFlat(call, Collective::kAllGather, input.data(), output.data(), 1, deadline),
                deadline);
}

}  // namespace cohort::worker
