#include "worker/daemon/sessions/session.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/access/role.h"
#include "base/rpc/random_bits.h"
#include "base/status_macros.h"
#include "base/text/printable.h"

namespace cohort::worker {
namespace {

// A limit, because clients' names are shown to people.
constexpr size_t kMaxNameBytes = 64;
// `ended_fd_` and the heap.
constexpr int kOwnDescriptors = 2;
constexpr absl::string_view kThisSession = "this session holds";

// Freed memory of one session takes little of what all may have.
size_t MostKept(int64_t tensor_bytes) {
  if (tensor_bytes == 0) return shm::Heap::kKept;
  return std::min(shm::Heap::kKept, static_cast<size_t>(tensor_bytes / 16));
}

Payer PayerOf(const Session::Client& client) { return {client.identity, client.tenant}; }

absl::Status UnknownGroup(uint64_t group) {
  return absl::NotFoundError(absl::StrCat("this session has no group ", group));
}

}  // namespace

absl::StatusOr<std::shared_ptr<Session>> Session::Create(Client client, const Quotas& quotas) {
  auto descriptors =
      std::make_shared<QuotaShare>(quotas.descriptors, kThisSession, PayerOf(client));
  COHORT_ASSIGN_OR_RETURN(HeldQuota own,
                          HeldQuota::Take(descriptors, kOwnDescriptors, "a session"));
  UniqueFd ended(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (ended.get() < 0) return absl::ResourceExhaustedError("no file descriptors are left");
  client.name = Printable(absl::string_view(client.name).substr(0, kMaxNameBytes));
  client.host = Printable(absl::string_view(client.host).substr(0, kMaxNameBytes));
  return std::shared_ptr<Session>(new Session(std::move(client), std::move(ended), quotas,
                                              std::move(descriptors), std::move(own)));
}

Session::Session(Client client, UniqueFd ended_fd, const Quotas& quotas,
                 std::shared_ptr<QuotaShare> descriptors, HeldQuota own)
    : id_(RandomBits()),
      client_(std::move(client)),
      ended_fd_(std::move(ended_fd)),
      calls_(PayerOf(client_)),
      descriptors_(std::move(descriptors)),
      own_descriptors_(std::move(own)),
      most_kept_(MostKept(quotas.tensor_bytes->limits().max_in_all)),
      tensor_share_(
          std::make_shared<QuotaShare>(quotas.tensor_bytes, kThisSession, PayerOf(client_))),
      tensor_bytes_(std::make_shared<HeldQuota>(tensor_share_)) {}

std::string Session::Describe() const {
  return absl::StrCat(client_.name.empty() ? "a program without a name" : client_.name,
                      ", process ", client_.pid,
                      client_.host.empty() ? "" : absl::StrCat(" on ", client_.host));
}

absl::StatusOr<std::shared_ptr<shm::Heap>> Session::heap() {
  MutexLock lock(&mutex_);
  if (heap_ == nullptr) {
    auto charge = [held = tensor_bytes_](int64_t more) { return held->Add(more, "a tensor"); };
    COHORT_ASSIGN_OR_RETURN(heap_, shm::Heap::Create("cohort-session", shm::Heap::DefaultCapacity(),
                                                     most_kept_, std::move(charge)));
  }
  return heap_;
}

absl::StatusOr<std::shared_ptr<shm::Heap>> Session::AttachHeap() {
  tensor_bytes_->Waive();
  return heap();
}

absl::StatusOr<TensorMemory> Session::Allocate(int64_t bytes) {
  COHORT_ASSIGN_OR_RETURN(std::shared_ptr<shm::Heap> heap, this->heap());
  COHORT_ASSIGN_OR_RETURN(void* const data, heap->Allocate(static_cast<size_t>(bytes)));
  TensorMemory memory;
  memory.data = static_cast<char*>(data);
  memory.bytes = bytes;
  memory.owner = std::shared_ptr<const void>(
      data, [heap](const void* freed) { heap->Free(const_cast<void*>(freed)); });
  return memory;
}

uint64_t Session::NextGroup() {
  MutexLock lock(&mutex_);
  return ++last_group_;
}

absl::Status Session::AddGroup(uint64_t group, std::shared_ptr<ClientRank> entry) {
  MutexLock lock(&mutex_);
  if (ended_) return absl::AbortedError(absl::StrCat("the session has ended: ", cause_));
  groups_[group] = std::move(entry);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<ClientRank>> Session::FindGroup(uint64_t group) const {
  MutexLock lock(&mutex_);
  const auto found = groups_.find(group);
  if (found == groups_.end()) return UnknownGroup(group);
  return found->second;
}

absl::StatusOr<std::shared_ptr<ClientRank>> Session::TakeGroup(uint64_t group) {
  MutexLock lock(&mutex_);
  const auto found = groups_.find(group);
  if (found == groups_.end()) return UnknownGroup(group);
  std::shared_ptr<ClientRank> entry = std::move(found->second);
  groups_.erase(found);
  return entry;
}

std::map<uint64_t, std::shared_ptr<ClientRank>> Session::groups() const {
  MutexLock lock(&mutex_);
  return groups_;
}

absl::Status Session::CheckTenants(const Caller& caller) const {
  MutexLock lock(&mutex_);
  for (const auto& [number, entry] : groups_) {
    COHORT_RETURN_IF_ERROR(caller.Require(Role::kMember, entry->tenant()));
  }
  return absl::OkStatus();
}

bool Session::MayBelongTo(const Rights& rights) const {
  if (rights.HighestRole() < Role::kMember) return false;
  MutexLock lock(&mutex_);
  return std::all_of(groups_.begin(), groups_.end(), [&rights](const auto& group) {
    return rights.RoleIn(group.second->tenant()) >= Role::kMember;
  });
}

void Session::SetListener(Listener* listener) {
  MutexLock lock(&listener_mutex_);
  listener_ = listener;
}

void Session::Notify(const v1::SessionEvent& event) {
  MutexLock lock(&listener_mutex_);
  if (listener_ != nullptr) listener_->OnEvent(event);
}

bool Session::End(absl::string_view cause) {
  {
    MutexLock lock(&mutex_);
    if (ended_) return false;
    ended_ = true;
    cause_ = std::string(cause);
  }
  eventfd_write(ended_fd_.get(), 1);
  joining_.Cancel(absl::AbortedError(absl::StrCat("the session has ended: ", cause)));
  for (const auto& [number, entry] : groups()) entry->Abort(cause);
  MutexLock lock(&listener_mutex_);
  if (listener_ != nullptr) listener_->OnEnded(cause);
  return true;
}

void Session::Leave() {
  std::map<uint64_t, std::shared_ptr<ClientRank>> groups;
  std::string cause;
  {
    MutexLock lock(&mutex_);
    groups.swap(groups_);
    cause = cause_;
  }
  // Calls in flight hold the tensors that they still need.
  tensors_.Close();
  for (const auto& [number, entry] : groups) entry->Leave(cause);
  groups.clear();
  MutexLock lock(&mutex_);
  heap_.reset();
}

bool Session::ended() const {
  MutexLock lock(&mutex_);
  return ended_;
}

}  // namespace cohort::worker
