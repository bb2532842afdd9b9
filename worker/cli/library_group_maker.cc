#include "worker/cli/library_group_maker.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/status_macros.h"
#include "client/collective/remote/remote_group.h"
#include "worker/group/attached_group.h"
#include "worker/group/gpu/open_gpu.h"
#include "worker/group/local_group.h"

namespace cohort::worker {
namespace {

using GroupOr = absl::StatusOr<std::unique_ptr<client::Group>>;

// For a copy, which waits for no rank.
constexpr absl::Duration kCopy = absl::Minutes(1);

GroupOr MakeLocal(const cli::GroupRequest& request, std::shared_ptr<GpuContext> gpu) {
  LocalGroupOptions options;
  if (gpu != nullptr) {
    options.bootstrap.placement = Placement::kBoth;
    options.gpu_context = std::move(gpu);
  }
  options.membership.connection = request.coordinator;
  options.membership.group = request.group;
  options.membership.rank = request.rank;
  options.membership.world_size = request.world_size;
  options.membership.member = request.member;
  options.membership.join_timeout = request.form_timeout;
  options.membership.timeout = request.form_timeout;
  options.membership.on_waiting = request.on_waiting;
  options.bootstrap.timeout = request.form_timeout;
  options.timeout = request.call_timeout;
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<LocalGroup> group, LocalGroup::Create(options));
  return group;
}

client::RemoteGroupOptions RemoteRankOptions(const cli::GroupRequest& request) {
  client::RemoteGroupOptions options;
  options.worker.address = request.worker;
  options.worker.client_name = "cohort";
  options.worker.connect_timeout = std::min(request.form_timeout, absl::Seconds(10));
  options.coordinator = request.coordinator.address;
  options.tenant = request.coordinator.tenant;
  options.group = request.group;
  options.rank = request.rank;
  options.world_size = request.world_size;
  options.member = request.member;
  options.join_timeout = request.form_timeout;
  options.timeout = request.call_timeout;
  return options;
}

class Maker final : public cli::GroupMaker {
 public:
  GroupOr Make(const cli::GroupRequest& request) override {
    switch (request.form) {
      case cli::GroupForm::kLocal:
        COHORT_RETURN_IF_ERROR(Open(request));
        return MakeLocal(request, gpu_);
      case cli::GroupForm::kAttached:
        return AttachedGroup::Create(RemoteRankOptions(request));
      case cli::GroupForm::kRemote:
        return client::RemoteGroup::Create(RemoteRankOptions(request));
    }
    return absl::InvalidArgumentError("no such form of a group");
  }

  absl::Status Copy(const Tensor& from, const Tensor& to) override {
    if (gpu_ == nullptr) return CopyTensor(from, to);
    return gpu_->Copy({{from, to}}, std::nullopt, kCopy);
  }
  absl::StatusOr<int> CountGpus() override { return worker::CountGpus(); }

 private:
  // The GPU, if one is wanted.
  absl::Status Open(const cli::GroupRequest& request) {
    gpu_ = nullptr;
    if (!request.gpu.has_value()) return absl::OkStatus();
    int number = *request.gpu;
    if (number == cli::kGpuOfRank) {
      COHORT_ASSIGN_OR_RETURN(const int count, worker::CountGpus());
      number = request.rank % count;
    }
    COHORT_ASSIGN_OR_RETURN(gpu_, OpenGpu(number));
    return absl::OkStatus();
  }

  std::shared_ptr<GpuContext> gpu_;  // of the group that was made last
};

}  // namespace

std::unique_ptr<cli::GroupMaker> MakeGroupMaker() { return std::make_unique<Maker>(); }

}  // namespace cohort::worker
