#include "tests/fuzz/worker/call_check.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cohort/v1/worker.pb.h"
#include "worker/daemon/limits/quota.h"
#include "worker/daemon/methods/collective_request.h"
#include "worker/daemon/tensors/tensor_table.h"
#include "worker/group/in_process_group.h"

namespace cohort::worker::fuzz {
namespace {

constexpr int64_t kMaxInline = 65536;
// More than any tensor here; a heap has its limit, too.
constexpr int64_t kMaxScratch = int64_t{1} << 20;
constexpr int64_t kTensorBytes[] = {0, 64, 4100};

// The collectives of a single rank.
class LoneRank final : public InProcessGroup {
 public:
  LoneRank() : InProcessGroup(absl::Seconds(5)) {}

  absl::Status Start() {
    Connections connections;
    connections.hosts = {{0}};
    connections.paths = {"self"};
    connections.machines = {"here"};
    const TimedMutexLock lock(&call_mutex_);
    return Begin(std::move(connections));
  }

  const std::string& name() const override { return name_; }
  int64_t generation() const override { return 1; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  GpuContext* gpu_context() const override { return nullptr; }
  absl::Status Rejoin(absl::Duration) override { return Never(); }
  absl::StatusOr<Tensor> Allocate(DataType type, const Shape& shape, Device) override {
    if (ElementCount(shape) * SizeOf(type) > kMaxScratch) {
      return absl::ResourceExhaustedError("more than there is");
    }
    return Tensor::Uninitialized(type, shape);
  }
  absl::Status SendObject(absl::string_view, int, const client::CallOptions&) override {
    return Never();
  }
  absl::StatusOr<std::string> ReceiveObject(int, const client::CallOptions&) override {
    return Never();
  }
  absl::StatusOr<std::string> BroadcastObject(absl::string_view, int,
                                              const client::CallOptions&) override {
    return Never();
  }
  absl::StatusOr<std::vector<std::string>> AllGatherObjects(absl::string_view,
                                                            const client::CallOptions&) override {
    return Never();
  }
  absl::StatusOr<std::vector<std::string>> AllGatherObjectsOf(absl::Span<const int>,
                                                              absl::string_view,
                                                              const client::CallOptions&) override {
    return Never();
  }

 private:
  static absl::Status Never() { return absl::UnimplementedError("no such call comes here"); }

  const std::string name_ = "fuzz";
};

TensorMemory Memory(int64_t bytes) {
  auto owner = std::make_shared<std::vector<char>>(static_cast<size_t>(bytes));
  TensorMemory memory;
  memory.data = owner->data();
  memory.bytes = bytes;
  memory.owner = std::move(owner);
  return memory;
}

}  // namespace

absl::Status CheckCall(absl::string_view input, bool* done) {
  v1::RunCollectiveRequest request;
  if (!request.ParseFromArray(input.data(), static_cast<int>(input.size()))) {
    return absl::OkStatus();
  }
  LoneRank group;
  if (const absl::Status started = group.Start(); !started.ok()) {
    return absl::InternalError(started.message());
  }
  TensorTable tensors;
  for (const int64_t bytes : kTensorBytes) {
    if (!tensors.Add(Memory(bytes)).ok()) return absl::InternalError("a tensor is refused");
  }
  v1::RunCollectiveResponse response;
  client::CallOptions options;
  options.timeout = absl::Seconds(5);
  HeldQuota memory;  // counts nothing
  CollectiveRequest call(tensors, kMaxInline, request, &response, memory);
  const absl::Status status = call.Run(group, options);
  if (done != nullptr) *done = status.ok();
  int64_t sent = static_cast<int64_t>(response.output().size());
  for (const std::string& received : response.received()) {
    sent += static_cast<int64_t>(received.size());
  }
  if (sent > kMaxInline) return absl::InternalError(absl::StrCat(sent, " bytes in the answer"));
  switch (status.code()) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kResourceExhausted:
      return absl::OkStatus();
    default:
      return absl::InternalError(absl::StrCat("an unexpected status: ", status.ToString()));
  }
}

std::vector<std::string> SampleCalls() {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  struct Form {
    std::vector<int64_t> shape;
    std::vector<int64_t> strides;
    int64_t first = 0;
  };
  const Form forms[] = {
      {{16}, {}, 0},
      {{16}, {}, 1},
      {{4, 4}, {4, 1}, 0},
      {{4, 4}, {1, 4}, 0},
      {{4}, {-1}, 3},
      {{4}, {-1}, 2},
      {{2, 2}, {0, 1}, 0},
      {{}, {}, 15},
      {{0}, {}, 16},
      {{0, kMost}, {}, 0},
      {{kMost}, {0}, 0},
      {{1 << 20}, {0}, 0},
      {{2}, {kMost}, 0},
      {{2}, {kLeast}, 0},
      {{kMost, kMost}, {}, 0},
      {{-1}, {}, 0},
      {{16}, {}, kMost},
      {{16}, {}, kLeast},
      {{1, 1}, {kMost, kLeast}, 0},
      {{3, 5}, {5, 1}, 0},
      {{2, 2}, {1, 1}, 0},
  };
  std::vector<std::string> samples;
  for (int collective = 0; collective <= v1::Collective_MAX; ++collective) {
    for (const Form& form : forms) {
      for (const bool is_inline : {false, true}) {
        v1::RunCollectiveRequest request;
        request.set_collective(static_cast<v1::Collective>(collective));
        request.set_reduce_op(1);
        v1::TensorRef ref;
        ref.mutable_layout()->set_data_type(static_cast<int>(DataType::kF32));
        ref.mutable_layout()->mutable_shape()->Add(form.shape.begin(), form.shape.end());
        ref.mutable_layout()->mutable_strides()->Add(form.strides.begin(), form.strides.end());
        ref.set_first(form.first);
        if (is_inline) {
          ref.set_inline_(std::string(64, 'x'));
        } else {
          ref.set_tensor(2);
        }
        *request.mutable_input() = ref;
        if (!is_inline) ref.set_tensor(3);
        *request.mutable_output() = ref;
        for (int i = 0; i < 2; ++i) {
          *request.add_tensors()->mutable_input() = request.input();
          request.mutable_tensors(i)->set_in_place(i == 1);
        }
        *request.mutable_tensors(0)->mutable_output() = ref;
        request.add_sizes(form.shape.empty() ? 1 : form.shape[0]);
        request.add_output_sizes(form.shape.empty() ? 1 : form.shape[0]);
        *request.add_transfers()->mutable_tensor() = ref;
        samples.push_back(request.SerializeAsString());
      }
    }
  }
  return samples;
}

}  // namespace cohort::worker::fuzz
