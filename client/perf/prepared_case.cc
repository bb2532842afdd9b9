#include "client/perf/prepared_case.h"

#include <cstring>

#include "base/status_macros.h"

namespace cohort::perf {
namespace {

constexpr int kSpoiled = 0xa5;

void Spoil(const Tensor& tensor) {
  if (tensor.count() > 0) std::memset(tensor.data(), kSpoiled, static_cast<size_t>(tensor.bytes()));
}

}  // namespace

absl::StatusOr<Work> Work::Make(client::Group& group, const Case& run, bool in_place,
                                const MeasureOptions& options) {
  Work work(group, run, options);
  COHORT_RETURN_IF_ERROR(work.MakeTensors(in_place));
  work.input_image_ = work.ImageOf(work.input_);
  work.output_image_ = work.ImageOf(work.output_);
  return work;
}

Tensor Work::ImageOf(const Tensor& tensor) const {
  return on_gpu() ? Tensor::Uninitialized(run_.type, tensor.shape()) : tensor;
}

absl::Status Work::Copy(const Tensor& from, const Tensor& to) const {
  return on_gpu() && from.count() > 0 ? options_.copy(from, to) : absl::OkStatus();
}

int64_t Work::InputCount() const {
  switch (run_.operation) {
    case Collective::kAllGather:
    case Collective::kGather:
      return part();
    case Collective::kScatter:
      return is_root() ? run_.count : 0;
    case Collective::kBroadcast:
      return 0;  // its one tensor counts as output
    default:
      return run_.count;
  }
}

int64_t Work::OutputCount() const {
  switch (run_.operation) {
    case Collective::kReduceScatter:
    case Collective::kScatter:
      return part();
    case Collective::kReduce:
    case Collective::kGather:
      return is_root() ? run_.count : 0;
    default:
      return run_.count;
  }
}

absl::StatusOr<Tensor> Work::Allocate(int64_t count) const {
  const Device device = on_gpu() ? group_.device() : Device::Host();
  if (count == 0) return Tensor(nullptr, run_.type, {0}, nullptr, device);
  if (on_gpu() || options_.registered) return group_.Allocate(run_.type, {count}, device);
  return Tensor::Uninitialized(run_.type, {count});
}

absl::Status Work::MakeTensors(bool in_place) {
  const int64_t input = InputCount();
  const int64_t output = OutputCount();
  if (!in_place || input == 0 || output == 0) {
    COHORT_ASSIGN_OR_RETURN(input_, Allocate(input));
    COHORT_ASSIGN_OR_RETURN(output_, Allocate(output));
    return absl::OkStatus();
  }
  // The smaller tensor is this rank's part of the larger one.
  Tensor& larger = input > output ? input_ : output_;
  Tensor& smaller = input > output ? output_ : input_;
  COHORT_ASSIGN_OR_RETURN(larger, Allocate(run_.count));
  if (input == output) {
    smaller = larger;
    return absl::OkStatus();
  }
  COHORT_ASSIGN_OR_RETURN(smaller, larger.Narrow(0, group_.rank() * part(), part()));
  return absl::OkStatus();
}

absl::Status Work::Run() const {
  if (run_.operation == Collective::kExchange) {
    const int size = group_.size();
    const client::TensorTransfer transfers[] = {
        {true, (group_.rank() + 1) % size, input_},
        {false, (group_.rank() + size - 1) % size, output_}};
    return group_.Exchange(transfers);
  }
  const Tensor& input = run_.operation == Collective::kBroadcast ? output_ : input_;
  CollectiveCall call = MakeCall(run_.operation, input, output_);
  if (HasDim(run_.operation)) call.dim = 0;
  if (HasRoot(run_.operation)) call.root = run_.root;
  call.reduction = run_.reduction;
  return group_.Run(call, input, output_, {});
}

absl::Status Work::Fill(const Pattern& pattern) const {
  Spoil(output_image_);
  if (run_.operation == Collective::kBroadcast) {
    if (is_root()) pattern.Fill(run_.root, 0, run_.count, output_image_.data());
    return Copy(output_image_, output_);
  }
  // In place, one is part of the other, so the output is overwritten first.
  COHORT_RETURN_IF_ERROR(Copy(output_image_, output_));
  if (input_.count() > 0) pattern.Fill(group_.rank(), 0, input_.count(), input_image_.data());
  return Copy(input_image_, input_);
}

absl::StatusOr<int64_t> Work::CountWrong(const Pattern& pattern) const {
  if (output_.count() == 0) return 0;
  COHORT_RETURN_IF_ERROR(Copy(output_, output_image_));
  const int rank = group_.rank();
  const int size = group_.size();
  const auto* const data = static_cast<const char*>(output_image_.data());
  const int64_t part_bytes = part() * SizeOf(run_.type);
  int64_t wrong = 0;
  switch (run_.operation) {
    case Collective::kAllReduce:
    case Collective::kReduce:
      return pattern.CountWrongReduced(0, run_.count, data);
    case Collective::kReduceScatter:
      return pattern.CountWrongReduced(rank * part(), part(), data);
    case Collective::kBroadcast:
      return pattern.CountWrong(run_.root, 0, run_.count, data);
    case Collective::kScatter:
      return pattern.CountWrong(run_.root, rank * part(), part(), data);
    case Collective::kExchange:
      return pattern.CountWrong((rank + size - 1) % size, 0, run_.count, data);
    case Collective::kAllGather:
    case Collective::kGather:
    case Collective::kAllToAll: {
      const int64_t first = run_.operation == Collective::kAllToAll ? rank * part() : 0;
      for (int from = 0; from < size; ++from) {
        wrong += pattern.CountWrong(from, first, part(), data + from * part_bytes);
      }
      return wrong;
    }
    default:
      return wrong;  // not in kOperations
  }
}

}  // namespace cohort::perf
