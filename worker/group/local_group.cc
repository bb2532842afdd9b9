#include "worker/group/local_group.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/shm/heap.h"
#include "base/status_macros.h"
#include "base/threads/mutex.h"
#include "base/threads/timed_mutex.h"
#include "worker/group/bootstrap/unique_id_exchange.h"
#include "worker/group/connections/secure_connections.h"
#include "worker/group/flight_recorder/flight_export.h"
#include "worker/group/membership/gather_member_objects.h"

namespace cohort::worker {
namespace {

using client::CallOptions;

// The heap from which all groups of the process allocate.
absl::StatusOr<std::shared_ptr<shm::Heap>> ProcessHeap() {
  static Mutex* const mutex = new Mutex();
  static auto* const shared = new std::weak_ptr<shm::Heap>();
  MutexLock lock(mutex);
  std::shared_ptr<shm::Heap> heap = shared->lock();
  if (heap == nullptr) {
    COHORT_ASSIGN_OR_RETURN(heap, shm::Heap::Create("cohort-heap", shm::Heap::DefaultCapacity()));
    *shared = heap;
  }
  return heap;
}

client::RoundOptions RoundOf(absl::Duration timeout) {
  client::RoundOptions round;
  round.timeout = timeout;
  return round;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalGroup>> LocalGroup::Create(LocalGroupOptions options) {
  if (options.bootstrap.placement == Placement::kHost) {
    options.gpu_context = nullptr;
  } else if (options.gpu_context == nullptr) {
    return NoGpu(options.membership.group, options.bootstrap.placement);
  }
  if (options.bootstrap.heap == nullptr) {
    COHORT_ASSIGN_OR_RETURN(options.bootstrap.heap, ProcessHeap());
  }
  if (!options.tls.has_value()) {
    COHORT_ASSIGN_OR_RETURN(options.tls, RankTlsOfEnvironment());
  }
  options.bootstrap.tls = options.tls->state;
  auto group = absl::WrapUnique(new LocalGroup(std::move(options)));
  group->options_.membership.report_tensors = [reporter = group->reporter_] {
    return reporter->Report();
  };
  group->reporter_->Start([&recorder = group->flight_recorder()] {
    return TensorWaitReporter::Look{recorder.Read(),
                                    recorder.ReadWaits(WaitLog::kRanks, WaitLog::kRanks)};
  });
  const LocalGroupOptions& kept = group->options_;
  COHORT_ASSIGN_OR_RETURN(group->membership_,
                          RankMembership::Join({kept.membership, kept.bootstrap}));
  const Instant deadline = Clock::Steady().Now() + kept.bootstrap.timeout;
  COHORT_ASSIGN_OR_RETURN(Connections connections,
                          group->membership_->Connect(kept.bootstrap.timeout));
  const TimedMutexLock lock(&group->call_mutex_);
  COHORT_RETURN_IF_ERROR(group->Form(std::move(connections), deadline));
  return group;
}

LocalGroup::~LocalGroup() {
  reporter_->Stop();
  if (membership_ == nullptr) return;
  const TimedMutexLock lock(&call_mutex_);
  Drain();
  // The other ranks learn that this rank leaves before its connections close.
  membership_->StopWatching();
  Drop();
  membership_.reset();
}

absl::Status LocalGroup::Form(Connections connections, Instant deadline) {
  COHORT_RETURN_IF_ERROR(SecureConnections(connections, options_.tls->files, deadline));
  connections.gives_way = options_.gives_way;
  COHORT_RETURN_IF_ERROR(Begin(std::move(connections)));
  RankMembership::Callbacks callbacks;
  callbacks.on_left = [this](int rank, const std::string& cause) { NoteLeft(rank, cause); };
  callbacks.on_end = [this, generation = generation()](const std::string& cause) {
    End(cause);
    if (options_.on_end != nullptr) options_.on_end(generation, cause);
  };
  membership_->Notify(std::move(callbacks));
  if (placement() == Placement::kHost) return absl::OkStatus();
  MemberUniqueIds ids(&membership());
  return BeginOnDevice(*options_.gpu_context, ids, options_.bootstrap.timeout);
}

client::FlightRecord LocalGroup::ExportFlightRecord() const {
  const client::ProcessGroupOptions& membership = options_.membership;
  client::FlightRecord record = worker::ExportFlightRecord(flight_recorder().Read());
  record.tenant = membership.shared_connection == nullptr
                      ? membership.connection.tenant
                      : membership.shared_connection->options().tenant;
  record.group = name();
  record.generation = generation();
  record.rank = rank();
  record.world_size = size();
  return record;
}

absl::Status LocalGroup::Rejoin(absl::Duration timeout) {
  // A rank that still waits in the old generation must not wait for this rank.
  End(absl::StrCat("rank ", rank(), " goes on in the next generation"));
  const TimedMutexLock lock(&call_mutex_);
  membership_->StopWatching();
  Drop();
  const Instant deadline = Clock::Steady().Now() + timeout;
  COHORT_ASSIGN_OR_RETURN(Connections connections, membership_->Rejoin(timeout));
  return Form(std::move(connections), deadline);
}

absl::StatusOr<Tensor> LocalGroup::Allocate(DataType type, const Shape& shape, Device device) {
  if (!device.is_host()) return AllocateOn(options_.gpu_context.get(), type, shape, device);
  const std::shared_ptr<shm::Heap>& heap = options_.bootstrap.heap;
  for (const int64_t extent : shape) {
    if (extent < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("a tensor of ", FormatShape(shape), ": an extent is negative"));
    }
  }
  const auto bytes = static_cast<size_t>(ElementCount(shape) * SizeOf(type));
  COHORT_ASSIGN_OR_RETURN(void* const data, heap->Allocate(bytes));
  std::shared_ptr<const void> owner(
      data, [heap](const void* memory) { heap->Free(const_cast<void*>(memory)); });
  return Tensor(data, type, shape, std::move(owner));
}

absl::Status LocalGroup::SendObject(absl::string_view object, int destination,
                                    const CallOptions& options) {
  return membership().Send(object, destination, "", TimeoutOf(options));
}

absl::StatusOr<std::string> LocalGroup::ReceiveObject(int source, const CallOptions& options) {
  return membership().Receive(source, "", TimeoutOf(options));
}

absl::StatusOr<std::string> LocalGroup::BroadcastObject(absl::string_view object, int root,
                                                        const CallOptions& options) {
  return membership().Broadcast(object, root, RoundOf(TimeoutOf(options)));
}

absl::StatusOr<std::vector<std::string>> LocalGroup::AllGatherObjects(absl::string_view object,
                                                                      const CallOptions& options) {
  COHORT_ASSIGN_OR_RETURN(const client::ObjectList objects,
                          membership().AllGather(object, RoundOf(TimeoutOf(options))));
  return objects.ToStrings();
}

absl::StatusOr<std::vector<std::string>> LocalGroup::AllGatherObjectsOf(
    absl::Span<const int> members, absl::string_view object, const CallOptions& options) {
  return worker::AllGatherObjectsOf(membership(), members, object, TimeoutOf(options));
}

void LocalGroup::Abort(const absl::Status& cause) {
  const std::string why = absl::StrCat("rank ", rank(), " aborted: ", cause.message());
  End(why);
  // Ranks that are in no call learn it too.
  membership_->EndForAll(why);
}

}  // namespace cohort::worker
