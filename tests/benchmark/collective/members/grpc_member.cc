// The cost of a call to a worker that does nothing: a unary gRPC call over a Unix socket to this
// rank's own worker. It moves no tensors; Prepare computes the result.
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/rpc/status_conversion.h"
#include "base/status_macros.h"
#include "cohort/v1/worker.grpc.pb.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "tests/benchmark/collective/members/harness/member.h"
#include "tests/benchmark/collective/members/harness/member_buffers.h"
#include "tests/benchmark/collective/members/harness/member_main.h"
#include "tests/benchmark/collective/members/harness/pattern.h"

namespace cohort::benchmark {
namespace {

using Stub = v1::WorkerService::Stub;

absl::Status CallOnce(Stub& stub) {
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  v1::GetWorkerResponse response;
  return FromGrpcStatus(stub.GetWorker(&context, v1::GetWorkerRequest(), &response));
}

class GrpcWork final : public Prepared {
 public:
  static absl::StatusOr<std::unique_ptr<Prepared>> Make(Stub& stub, const Work& work, int rank,
                                                        int members) {
    if (work.collective != Collective::kAllReduce) {
      return absl::UnimplementedError("one operation says it all");
    }
    auto prepared = std::make_unique<GrpcWork>(stub);
    COHORT_ASSIGN_OR_RETURN(prepared->buffers_, Buffers::Allocate(work, rank, members));
    prepared->sum_.resize(static_cast<size_t>(ExtentsOf(work, rank, members).output));
    std::vector<float> input(prepared->sum_.size());
    for (int other = 0; other < members; ++other) {
      FillInput(work, other, members, input.data());
      for (size_t i = 0; i < input.size(); ++i) prepared->sum_[i] += input[i];
    }
    return prepared;
  }

  explicit GrpcWork(Stub& stub) : stub_(stub) {}

  float* input() override { return buffers_.input->data(); }
  float* output() override { return buffers_.output->data(); }

  absl::Status Run(int64_t iterations) override {
    for (int64_t i = 0; i < iterations; ++i) COHORT_RETURN_IF_ERROR(CallOnce(stub_));
    std::memcpy(output(), sum_.data(), sum_.size() * sizeof(float));
    return absl::OkStatus();
  }

 private:
  Stub& stub_;
  Buffers buffers_;
  std::vector<float> sum_;
};

class GrpcMember final : public Member {
 public:
  explicit GrpcMember(const MemberOptions& options)
      : options_(options),
        stub_(v1::WorkerService::NewStub(
            grpc::CreateChannel(absl::StrCat("unix:", options.folder, "/worker-", options.rank),
                                grpc::InsecureChannelCredentials()))) {}

  int rank() const override { return options_.rank; }
  // The call waits for no other rank. During a burst, the calls of all ranks still run at the same
  // time.
  absl::Status Barrier() override { return CallOnce(*stub_); }
  absl::StatusOr<std::unique_ptr<Prepared>> Prepare(const Work& work) override {
    return GrpcWork::Make(*stub_, work, options_.rank, options_.members);
  }

 private:
  const MemberOptions options_;
  const std::unique_ptr<Stub> stub_;
};

}  // namespace
}  // namespace cohort::benchmark

int main(int argc, char** argv) {
  using namespace cohort::benchmark;
  return MemberMain(argc, argv, [](const MemberOptions& options) {
    return absl::StatusOr<std::unique_ptr<Member>>(std::make_unique<GrpcMember>(options));
  });
}
