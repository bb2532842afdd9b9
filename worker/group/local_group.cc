#include "worker/group/local_group.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/status_macros.h"

namespace cohort::worker {
namespace {

using client::CallOptions;
using client::EventKind;
using client::Sizes;

// From which all groups of the process allocate.
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

// A Rejoin has failed, and none has followed.
absl::Status NotFormed() {
  return absl::AbortedError("the group has not been formed again: Rejoin has failed");
}

// Such as: rank 3 (trainer-3 on host-a) is lost: LEASE_EXPIRED, nothing heard for 30s.
std::string Describe(const client::GroupEvent& event) {
  const client::Cause& cause = event.cause;
  std::string text;
  const std::optional<int> rank = cause.rank.has_value() ? cause.rank : event.rank;
  const std::string& member = cause.member.empty() ? event.member : cause.member;
  if (rank.has_value()) absl::StrAppend(&text, "rank ", *rank, " ");
  if (!member.empty()) {
    absl::StrAppend(&text, "(", member, cause.host.empty() ? "" : absl::StrCat(" on ", cause.host),
                    ") ");
  }
  absl::StrAppend(&text, text.empty() ? "the group: " : "ended the generation: ",
                  client::CauseKindName(cause.kind));
  if (!cause.detail.empty()) absl::StrAppend(&text, ", ", cause.detail);
  return text;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalGroup>> LocalGroup::Create(LocalGroupOptions options) {
  if (options.bootstrap.heap == nullptr) {
    COHORT_ASSIGN_OR_RETURN(options.bootstrap.heap, ProcessHeap());
  }
  auto group = absl::WrapUnique(new LocalGroup(std::move(options)));
  client::ProcessGroupOptions& membership = group->options_.membership;
  group->coordinator_address_ = membership.shared_connection != nullptr
                                    ? membership.shared_connection->options().address
                                    : membership.connection.address;
  membership.on_event = [group = group.get(),
                         next = membership.on_event](const client::GroupEvent& event) {
    group->OnEvent(event);
    if (next != nullptr) next(event);
  };
  COHORT_ASSIGN_OR_RETURN(group->membership_, client::ProcessGroup::Create(membership));
  COHORT_RETURN_IF_ERROR(group->Form(group->options_.bootstrap.timeout));
  return group;
}

LocalGroup::~LocalGroup() {
  Drop();
  membership_.reset();
}

void LocalGroup::Drop() {
  {
    MutexLock lock(&end_mutex_);
    current_ = nullptr;
  }
  // The others hear that this rank leaves before its connections close.
  formed_.watch.reset();
  verbs_.reset();
  formed_.communicator.reset();
}

absl::Status LocalGroup::Form(absl::Duration timeout) {
  Drop();
  BootstrapOptions bootstrap = options_.bootstrap;
  bootstrap.timeout = timeout;
  COHORT_ASSIGN_OR_RETURN(formed_, FormCommunicator(*membership_, coordinator_address_, bootstrap));
  verbs_ = std::make_unique<TensorVerbs>(
      formed_.communicator.get(),
      [this](DataType type, const Shape& shape) { return Allocate(type, shape); });
  MutexLock lock(&end_mutex_);
  current_ = formed_.communicator.get();
  current_generation_ = membership_->generation();
  // What ended meanwhile was told while there was nothing to end.
  if (ended_generation_ == current_generation_) current_->Abort(ended_);
  return absl::OkStatus();
}

absl::Status LocalGroup::Rejoin(absl::Duration timeout) {
  MutexLock lock(&call_mutex_);
  const Instant deadline = Clock::Steady().Now() + timeout;
  const auto left = [deadline] { return deadline - Clock::Steady().Now(); };
  const std::string why = absl::StrCat("rank ", rank(), " goes on in the next generation");
  while (true) {
    // Whoever still waits in the old generation must not wait for this rank.
    if (formed_.communicator != nullptr) formed_.communicator->Abort(why);
    Drop();
    // Ranks of one host know of a death long before the coordinator does: for it, the generation
    // may be in order still. That it is over already is no error.
    const absl::Status reported = membership_->ReportError(why, /*fatal=*/true);
    if (!reported.ok() && !absl::IsAborted(reported)) return reported;
    COHORT_RETURN_IF_ERROR(membership_->Rejoin(left()));
    const absl::Status formed = Form(left());
    // The next may break as well, before it stands.
    if (!absl::IsAborted(formed) || left() <= absl::ZeroDuration()) return formed;
  }
}

void LocalGroup::OnEvent(const client::GroupEvent& event) {
  const bool ends = event.kind == EventKind::kBroken || event.kind == EventKind::kClosed ||
                    event.kind == EventKind::kLost || event.kind == EventKind::kLeft;
  if (!ends) return;
  MutexLock lock(&end_mutex_);
  // What is told late of a generation does not end the next.
  if (event.generation <= ended_generation_) return;
  ended_ = Describe(event);
  ended_generation_ = event.generation;
  if (current_ != nullptr && current_generation_ == ended_generation_) current_->Abort(ended_);
}

Instant LocalGroup::DeadlineOf(const CallOptions& options) const {
  return Clock::Steady().Now() + options.timeout.value_or(options_.timeout);
}

client::RoundOptions LocalGroup::RoundOf(const CallOptions& options) const {
  client::RoundOptions round;
  round.timeout = options.timeout.value_or(options_.timeout);
  return round;
}

absl::StatusOr<Tensor> LocalGroup::Allocate(DataType type, const Shape& shape) {
  const std::shared_ptr<shm::Heap>& heap = options_.bootstrap.heap;
  const auto bytes = static_cast<size_t>(ElementCount(shape) * SizeOf(type));
  COHORT_ASSIGN_OR_RETURN(void* const data, heap->Allocate(bytes));
  std::shared_ptr<const void> owner(
      data, [heap](const void* memory) { heap->Free(const_cast<void*>(memory)); });
  return Tensor(data, type, shape, std::move(owner));
}

absl::Status LocalGroup::AllReduce(const Tensor& input, const Tensor& output,
                                   const Reduction& reduction, const CallOptions& options) {
  MutexLock lock(&call_mutex_);
  if (verbs_ == nullptr) return NotFormed();
  return verbs_->AllReduce(input, output, reduction, DeadlineOf(options));
}

absl::Status LocalGroup::Reduce(const Tensor& input, const Tensor& output,
                                const Reduction& reduction, int root, const CallOptions& options) {
  MutexLock lock(&call_mutex_);
  if (verbs_ == nullptr) return NotFormed();
  return verbs_->Reduce(input, output, reduction, root, DeadlineOf(options));
}

absl::Status LocalGroup::Broadcast(const Tensor& tensor, int root, const CallOptions& options) {
  MutexLock lock(&call_mutex_);
  if (verbs_ == nullptr) return NotFormed();
  return verbs_->Broadcast(tensor, root, DeadlineOf(options));
}

absl::Status LocalGroup::AllGather(const Tensor& input, const Tensor& output, int dim,
                                   const CallOptions& options) {
  MutexLock lock(&call_mutex_);
  if (verbs_ == nullptr) return NotFormed();
  return verbs_->AllGather(input, output, dim, DeadlineOf(options));
}

absl::Status LocalGroup::ReduceScatter(const Tensor& input, const Tensor& output, int dim,
                                       const Reduction& reduction, const CallOptions& options) {
  MutexLock lock(&call_mutex_);
  if (verbs_ == nullptr) return NotFormed();
  return verbs_->ReduceScatter(input, output, dim, reduction, DeadlineOf(options));
}

absl::Status LocalGroup::AllToAll(const Tensor& input, const Tensor& output,
                                  const CallOptions& options) {
  MutexLock lock(&call_mutex_);
  if (verbs_ == nullptr) return NotFormed();
  return verbs_->AllToAll(input, output, DeadlineOf(options));
}

absl::Status LocalGroup::Gather(const Tensor& input, const Tensor& output, int dim, int root,
                                const CallOptions& options) {
  MutexLock lock(&call_mutex_);
  if (verbs_ == nullptr) return NotFormed();
  return verbs_->Gather(input, output, dim, root, DeadlineOf(options));
}

absl::Status LocalGroup::Scatter(const Tensor& input, const Tensor& output, int dim, int root,
                                 const CallOptions& options) {
  MutexLock lock(&call_mutex_);
  if (verbs_ == nullptr) return NotFormed();
  return verbs_->Scatter(input, output, dim, root, DeadlineOf(options));
}

absl::Status LocalGroup::AllGatherV(const Tensor& input, const Tensor& output, int dim,
                                    const Sizes& sizes, const CallOptions& options) {
  MutexLock lock(&call_mutex_);
  if (verbs_ == nullptr) return NotFormed();
  return verbs_->AllGatherV(input, output, dim, sizes, DeadlineOf(options));
}

absl::Status LocalGroup::ReduceScatterV(const Tensor& input, const Tensor& output, int dim,
                                        const Sizes& sizes, const Reduction& reduction,
                                        const CallOptions& options) {
  MutexLock lock(&call_mutex_);
  if (verbs_ == nullptr) return NotFormed();
  return verbs_->ReduceScatterV(input, output, dim, sizes, reduction, DeadlineOf(options));
}

absl::Status LocalGroup::GatherV(const Tensor& input, const Tensor& output, int dim,
                                 const Sizes& sizes, int root, const CallOptions& options) {
  MutexLock lock(&call_mutex_);
  if (verbs_ == nullptr) return NotFormed();
  return verbs_->GatherV(input, output, dim, sizes, root, DeadlineOf(options));
}

absl::Status LocalGroup::AllToAllV(const Tensor& input, const Sizes& input_sizes,
                                   const Tensor& output, const Sizes& output_sizes,
                                   const CallOptions& options) {
  MutexLock lock(&call_mutex_);
  if (verbs_ == nullptr) return NotFormed();
  return verbs_->AllToAllV(input, input_sizes, output, output_sizes, DeadlineOf(options));
}

absl::Status LocalGroup::Exchange(absl::Span<const client::TensorTransfer> transfers,
                                  const CallOptions& options) {
  MutexLock lock(&call_mutex_);
  if (verbs_ == nullptr) return NotFormed();
  return verbs_->Exchange(transfers, DeadlineOf(options));
}

absl::StatusOr<Sizes> LocalGroup::ExchangeSizes(int64_t own, const CallOptions& options) {
  MutexLock lock(&call_mutex_);
  if (verbs_ == nullptr) return NotFormed();
  return verbs_->ExchangeSizes(own, DeadlineOf(options));
}

absl::Status LocalGroup::SendObject(absl::string_view object, int destination,
                                    const CallOptions& options) {
  return membership_->Send(object, destination, "", RoundOf(options).timeout);
}

absl::StatusOr<std::string> LocalGroup::ReceiveObject(int source, const CallOptions& options) {
  return membership_->Receive(source, "", RoundOf(options).timeout);
}

absl::StatusOr<std::string> LocalGroup::BroadcastObject(absl::string_view object, int root,
                                                        const CallOptions& options) {
  return membership_->Broadcast(object, root, RoundOf(options));
}

absl::StatusOr<std::vector<std::string>> LocalGroup::AllGatherObjects(absl::string_view object,
                                                                      const CallOptions& options) {
  COHORT_ASSIGN_OR_RETURN(const client::ObjectList objects,
                          membership_->AllGather(object, RoundOf(options)));
  std::vector<std::string> result;
  for (size_t rank = 0; rank < objects.size(); ++rank) result.emplace_back(objects[rank]);
  return result;
}

absl::Status LocalGroup::Barrier(const CallOptions& options) {
  return membership_->Barrier(RoundOf(options));
}

void LocalGroup::Abort(const absl::Status& cause) {
  MutexLock lock(&end_mutex_);
  if (current_ != nullptr) {
    current_->Abort(absl::StrCat("rank ", rank(), " aborted: ", cause.message()));
  }
}

}  // namespace cohort::worker
