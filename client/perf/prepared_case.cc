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
    case Operation::kAllGather:
    case Operation::kGather:
      return part();
    case Operation::kScatter:
      return is_root() ? run_.count : 0;
    case Operation::kBroadcast:
      return 0;  // its one tensor counts as output
    default:
      return run_.count;
  }
}

int64_t Work::OutputCount() const {
  switch (run_.operation) {
    case Operation::kReduceScatter:
    case Operation::kScatter:
      return part();
    case Operation::kReduce:
    case Operation::kGather:
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
  switch (run_.operation) {
    case Operation::kAllReduce:
      return group_.AllReduce(input_, output_, run_.reduction);
    case Operation::kReduce:
      return group_.Reduce(input_, output_, run_.reduction, run_.root);
    case Operation::kBroadcast:
      return group_.Broadcast(output_, run_.root);
    case Operation::kAllGather:
      return group_.AllGather(input_, output_, 0);
    case Operation::kReduceScatter:
      return group_.ReduceScatter(input_, output_, 0, run_.reduction);
    case Operation::kAllToAll:
      return group_.AllToAll(input_, output_);
    case Operation::kGather:
      return group_.Gather(input_, output_, 0, run_.root);
    case Operation::kScatter:
      return group_.Scatter(input_, output_, 0, run_.root);
    case Operation::kSendRecv:
      break;
  }
  const int size = group_.size();
  const client::TensorTransfer transfers[] = {{true, (group_.rank() + 1) % size, input_},
                                              {false, (group_.rank() + size - 1) % size, output_}};
  return group_.Exchange(transfers);
}

absl::Status Work::Fill(const Pattern& pattern) const {
  Spoil(output_image_);
  if (run_.operation == Operation::kBroadcast) {
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
    case Operation::kAllReduce:
    case Operation::kReduce:
      return pattern.CountWrongReduced(0, run_.count, data);
    case Operation::kReduceScatter:
      return pattern.CountWrongReduced(rank * part(), part(), data);
    case Operation::kBroadcast:
      return pattern.CountWrong(run_.root, 0, run_.count, data);
    case Operation::kScatter:
      return pattern.CountWrong(run_.root, rank * part(), part(), data);
    case Operation::kSendRecv:
      return pattern.CountWrong((rank + size - 1) % size, 0, run_.count, data);
    case Operation::kAllGather:
    case Operation::kGather:
      for (int from = 0; from < size; ++from) {
        wrong += pattern.CountWrong(from, 0, part(), data + from * part_bytes);
      }
      return wrong;
    case Operation::kAllToAll:
      for (int from = 0; from < size; ++from) {
        wrong += pattern.CountWrong(from, rank * part(), part(), data + from * part_bytes);
      }
      return wrong;
  }
  return wrong;
}

}  // namespace cohort::perf
