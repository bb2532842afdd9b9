#include "client/python/core/group_form.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/status_macros.h"
#include "base/tensor/device.h"
#include "client/collective/remote/remote_group_factory.h"
#include "client/collective/remote/worker_session.h"
#include "client/python/core/open_device.h"
#include "client/python/core/rendezvous.h"
#include "worker/group/attached_group.h"
#include "worker/group/attached_group_factory.h"
#include "worker/group/local_group_factory.h"

namespace cohort::python {
namespace {

bool ReadPlacement(Options& options, Placement* to) {
  std::string name(NameOf(*to));
  if (!options.Get("placement", &name)) return false;
  for (const Placement each : {Placement::kHost, Placement::kDevice, Placement::kBoth}) {
    if (name == NameOf(each)) {
      *to = each;
      return true;
    }
  }
  PyErr_Format(PyExc_ValueError, "placement: expected host, device or both, got %s", name.c_str());
  return false;
}

}  // namespace

bool GroupForm::Read(Options& options) {
  int64_t heap_bytes = 0;
  if (!ReadMembership(options, &local_.membership) ||
      !options.Get("advertised_host", &local_.bootstrap.advertised_host) ||
      !options.Get("host_identity", &local_.bootstrap.host_identity) ||
      !options.Get("host_folder", &local_.bootstrap.host_folder) ||
      !options.Get("device", &device_) || !options.Get("device_heap_bytes", &heap_bytes) ||
      !options.Get("nccl_library", &nccl_library_)) {
    return false;
  }
  if (device_.has_value()) local_.bootstrap.placement = Placement::kBoth;
  if (!ReadPlacement(options, &local_.bootstrap.placement)) return false;
  if (heap_bytes < 0) {
    PyErr_SetString(PyExc_ValueError, "device_heap_bytes: it is negative");
    return false;
  }
  gpu_options_.heap_bytes = static_cast<size_t>(heap_bytes);
  local_.timeout = local_.membership.timeout;
  local_.bootstrap.timeout = local_.membership.join_timeout;
  return ReadWorker(options);
}

bool GroupForm::ReadWorker(Options& options) {
  std::string worker;
  bool attached = false;
  if (!options.Get("worker", &worker) || !options.Get("attached", &attached)) return false;
  const client::ProcessGroupOptions& membership = local_.membership;
  if (worker.empty()) {
    if (!attached) return true;
    PyErr_SetString(PyExc_ValueError, "attached: no worker is given");
    return false;
  }
  const char* const refused = !membership.labels.empty()                  ? "labels"
                              : !local_.bootstrap.advertised_host.empty() ? "advertised_host"
                              : !local_.bootstrap.host_identity.empty()   ? "host_identity"
                                                                          : nullptr;
  if (refused != nullptr) {
    PyErr_Format(PyExc_ValueError, "%s: a rank in a worker daemon does not have it", refused);
    return false;
  }
  client::RemoteGroupOptions& remote = remote_.emplace();
  remote.worker.address = worker;
  remote.worker.host_folder = local_.bootstrap.host_folder;
  remote.worker.connect_timeout =
      std::min(remote.worker.connect_timeout, membership.join_timeout);
  remote.coordinator = membership.connection.address;
  remote.tenant = membership.connection.tenant;
  remote.group = membership.group;
  remote.rank = membership.rank;
  remote.world_size = membership.world_size;
  remote.min_world_size = membership.min_world_size;
  remote.member = membership.member;
  remote.parameters_digest = membership.parameters_digest;
  remote.lease = membership.lease;
  remote.data_expiration = membership.data_expiration;
  remote.join_timeout = membership.join_timeout;
  remote.timeout = local_.timeout;
  remote.attached = attached;
  remote.placement = local_.bootstrap.placement;
  return true;
}

absl::Status GroupForm::OpenGpu() {
  if (!device_.has_value() || gpu_ != nullptr) return absl::OkStatus();
  COHORT_ASSIGN_OR_RETURN(gpu_, OpenDevice(*device_, gpu_options_, nccl_library_));
  local_.gpu_context = gpu_;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<client::Group>> GroupForm::Join(
    std::shared_ptr<client::Cancellation> cancellation) {
  const client::CancellationScope scope(*cancellation);
  COHORT_RETURN_IF_ERROR(OpenGpu());
  if (!remote_.has_value()) {
    worker::LocalGroupOptions options = local_;
    options.membership.cancellation = cancellation;
    options.bootstrap.cancellation = std::move(cancellation);
    return worker::LocalGroup::Create(std::move(options));
  }
  COHORT_ASSIGN_OR_RETURN(remote_->session, client::WorkerSession::Connect(remote_->worker));
  if (remote_->attached) return worker::AttachedGroup::Create(*remote_, gpu_);
  return client::RemoteGroup::Create(*remote_);
}

client::GroupFactory GroupForm::Factory(std::shared_ptr<client::Cancellation> cancellation) const {
  if (!remote_.has_value()) {
    worker::LocalGroupOptions options = local_;
    options.membership.min_world_size = 0;
    options.membership.cancellation = cancellation;
    options.bootstrap.cancellation = std::move(cancellation);
    return worker::LocalGroupFactory(std::move(options));
  }
  return remote_->attached ? worker::AttachedGroupFactory(*remote_, gpu_)
                           : client::RemoteGroupFactory(*remote_);
}

absl::Status GroupForm::AwaitStream(std::optional<void*> stream,
                                    const client::CallOptions& options) const {
  // Without a GPU, the group refuses the arrays.
  if (!stream.has_value() || gpu_ == nullptr) return absl::OkStatus();
  return gpu_->AwaitStream(*stream, options.timeout.value_or(local_.timeout));
}

}  // namespace cohort::python
