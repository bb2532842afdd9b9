// A group of one rank, for tests of code above groups.
#ifndef COHORT_CLIENT_COLLECTIVE_TESTING_LONE_GROUP_H_
#define COHORT_CLIENT_COLLECTIVE_TESTING_LONE_GROUP_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/collective/group.h"

namespace cohort::client {

// Its collectives copy their input, as with one rank. Ragged collectives and messages are
// UNIMPLEMENTED: a rank alone has little use for them.
class LoneGroup : public Group {
 public:
  // The call with this number, counted from 1 over all collectives, flips a bit of its output.
  int64_t spoils_call = 0;
  // If not OK, the result of all collectives.
  absl::Status error;
  int64_t calls = 0;
  std::vector<std::string> aborts;

  const std::string& name() const override { return name_; }
  int64_t generation() const override { return 1; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  const std::vector<std::string>& paths() const override { return paths_; }
  const std::vector<std::string>& hosts() const override { return hosts_; }
  std::vector<PeerStats> Stats() const override { return {PeerStats()}; }
  absl::Status Rejoin(absl::Duration) override {
    return absl::UnimplementedError("a group of one rank does not end");
  }

  absl::StatusOr<Tensor> Allocate(DataType type, const Shape& shape, Device) override {
    return Tensor::Uninitialized(type, shape);
  }

  absl::Status CopyAll(absl::Span<const TensorCopy> copies, const CallOptions&) override {
    absl::Status status;
    for (const TensorCopy& copy : copies) status.Update(CopyTensor(copy.from, copy.to));
    return status;
  }
  absl::Status FailCollective(const absl::Status& why, const CallOptions&) override {
    return absl::InvalidArgumentError(why.message());
  }

  absl::Status Run(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                   const CallOptions&) override {
    if (call.collective == Collective::kBarrier) return absl::OkStatus();
    if (call.ragged) return NotHere();
    if (call.collective == Collective::kExchangeSizes) return CopyTensor(input, output);
    // With several tensors, `input` and `output` are the first of them.
    for (size_t i = 1; i < call.inputs.size(); ++i) {
      const absl::Status copied = CopyTensor(call.inputs[i], call.outputs[i]);
      if (!copied.ok()) return copied;
    }
    return CopyAndCount(input, output);
  }

  absl::Status Exchange(absl::Span<const TensorTransfer>, const CallOptions&) override {
    return NotHere();
  }
  absl::StatusOr<MessageInfo> AwaitMessage(absl::Span<const int>, const CallOptions&) override {
    return NotHere();
  }

  absl::Status SendObject(absl::string_view, int, const CallOptions&) override { return NotHere(); }
  absl::StatusOr<std::string> ReceiveObject(int, const CallOptions&) override { return NotHere(); }
  absl::StatusOr<std::string> BroadcastObject(absl::string_view object, int,
                                              const CallOptions&) override {
    return std::string(object);
  }
  absl::StatusOr<std::vector<std::string>> AllGatherObjects(absl::string_view object,
                                                            const CallOptions&) override {
    return std::vector<std::string>{std::string(object)};
  }
  absl::StatusOr<std::vector<std::string>> AllGatherObjectsOf(absl::Span<const int>,
                                                              absl::string_view object,
                                                              const CallOptions& options) override {
    return AllGatherObjects(object, options);
  }
  void Abort(const absl::Status& cause) override { aborts.emplace_back(cause.message()); }

 private:
  static absl::Status NotHere() { return absl::UnimplementedError("a rank alone has no other"); }

  absl::Status CopyAndCount(const Tensor& input, const Tensor& output) {
    if (!error.ok()) return error;
    const absl::Status copied = CopyTensor(input, output);
    if (++calls == spoils_call && output.bytes() > 0) {
      auto* const last = static_cast<char*>(output.data()) + output.bytes() - 1;
      *last = static_cast<char>(*last ^ 1);
    }
    return copied;
  }

  const std::string name_ = "alone";
  const std::vector<std::string> paths_ = {"self"};
  const std::vector<std::string> hosts_ = {"here"};
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_TESTING_LONE_GROUP_H_
