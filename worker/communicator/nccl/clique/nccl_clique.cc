#include "worker/communicator/nccl/clique/nccl_clique.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/text/logging.h"
#include "base/threads/thread.h"
#include "worker/communicator/nccl/api/nccl_error.h"
#include "worker/communicator/nccl/clique/nccl_device_lock.h"
#include "worker/cuda/device/cuda_device.h"

namespace cohort::worker {
namespace {

// The most ranks of one root: a larger group has several roots.
constexpr int kRanksPerRoot = 128;
// How long NCCL may take to end something before it is left to itself.
constexpr absl::Duration kEndTimeout = absl::Seconds(2);
// Between two questions.
constexpr absl::Duration kPause = absl::Microseconds(200);

// Keeps what `end` holds: NCCL, which was not told to end, may still use that memory.
void KeepForever(std::function<void(bool)> end) {
  struct Kept {
    Mutex mutex;
    std::vector<std::function<void(bool)>> ends ABSL_GUARDED_BY(mutex);
  };
  static auto* const kept = new Kept;
  MutexLock lock(&kept->mutex);
  kept->ends.push_back(std::move(end));
}

}  // namespace

int NcclRoots(int size) { return (size - 1) / kRanksPerRoot + 1; }

int RankOfNcclRoot(int root) { return root * kRanksPerRoot; }

absl::StatusOr<std::string> NewNcclId(NcclApi& nccl) {
  ncclUniqueId id;
  COHORT_RETURN_IF_ERROR(NcclError(nccl, nccl.GetUniqueId(&id), "ncclGetUniqueId"));
  return std::string(id.internal, sizeof(id.internal));
}

NcclClique::NcclClique(std::shared_ptr<NcclApi> nccl, NcclCliqueOptions options)
    : nccl_(std::move(nccl)), options_(std::move(options)), ending_(std::make_shared<Ending>()) {}

absl::StatusOr<std::unique_ptr<NcclClique>> NcclClique::Form(
    std::shared_ptr<NcclApi> nccl, const NcclCliqueOptions& options, Instant deadline,
    absl::FunctionRef<absl::Status()> standing) {
  std::vector<ncclUniqueId> ids(options.ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (options.ids[i].size() != sizeof(ids[i].internal)) {
      return absl::InvalidArgumentError(absl::StrCat("a unique id of ", options.ids[i].size(),
                                                     " bytes; NCCL's have ",
                                                     sizeof(ids[i].internal)));
    }
    std::memcpy(ids[i].internal, options.ids[i].data(), sizeof(ids[i].internal));
  }
  if (ids.empty()) return absl::InvalidArgumentError("no unique id");
  auto clique = absl::WrapUnique(new NcclClique(std::move(nccl), options));
  NcclApi& api = *clique->nccl_;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.commName = clique->options_.name.c_str();
  const char* call = ids.size() == 1 ? "ncclCommInitRankConfig" : "ncclCommInitRankScalable";
  absl::Status status = NcclDeviceLock::Run(options.device, deadline, [&] {
    const ncclResult_t result =
        ids.size() == 1
            ? api.CommInitRankConfig(&clique->comm_, options.size, ids[0], options.rank, &config)
            : api.CommInitRankScalable(&clique->comm_, options.size, options.rank,
                                       static_cast<int>(ids.size()), ids.data(), &config);
    return NcclError(api, result, call);
  });
  if (status.ok() && clique->comm_ == nullptr) {
    status = absl::InternalError(absl::StrCat(call, " returned no communicator"));
  }
  if (status.ok()) status = clique->AwaitCalls(call, deadline, standing);
  if (!status.ok()) {
    clique->revoked_ = true;  // no other rank ends it together with this one
    return status;
  }
  return clique;
}

absl::Status NcclClique::RunAside(std::shared_ptr<Ending> ending, int device, bool last,
                                  absl::Duration timeout, std::function<void(bool)> end) {
  struct Shared {
    Mutex mutex;
    bool done = false;
    bool late = false;
    // Given back when time is up: a call that does not return must not keep other groups from the
    // device.
    std::optional<NcclDeviceLock::Guard> guard;
  };
  const auto shared = std::make_shared<Shared>();
  const Instant time_is_up = Clock::Steady().Now() + timeout;
  auto run = [shared, ending = std::move(ending), device, last, timeout, time_is_up,
              end = std::move(end)]() mutable {
    {
      MutexLock lock(&ending->mutex);
      bool has_lock = false;
      if (Clock::Steady().Now() < time_is_up) {
        absl::StatusOr<NcclDeviceLock::Guard> guard =
            NcclDeviceLock::Of(device).Acquire(time_is_up - timeout / 2);
        MutexLock taken(&shared->mutex);
        has_lock = guard.ok() && !shared->late;
        if (has_lock) shared->guard.emplace(*std::move(guard));
      }
      const absl::StatusOr<cuda::CurrentDevice> current = cuda::CurrentDevice::Set(device);
      if (!ending->gone) end(has_lock);
      ending->gone = ending->gone || last;
    }
    {
      MutexLock lock(&shared->mutex);
      shared->guard.reset();
    }
    // An object that ends with it may need the lock.
    end = nullptr;
    MutexLock lock(&shared->mutex);
    shared->done = true;
  };
  COHORT_RETURN_IF_ERROR(StartDetachedThread("cohort-nccl-end", std::move(run)));
  MutexLock lock(&shared->mutex);
  const bool done = shared->mutex.AwaitWithTimeout(absl::Condition(&shared->done),
                                                   time_is_up - Clock::Steady().Now());
  shared->late = !done;
  shared->guard.reset();
  if (done) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("NCCL's call did not return within ", absl::FormatDuration(timeout)));
}

NcclClique::~NcclClique() {
  if (comm_ == nullptr) return;
  // The memory stays until NCCL has let it go.
  const std::function<void(bool)> end = [nccl = nccl_, comm = comm_, revoked = revoked_.load(),
                                         registrations = std::move(registrations_)](bool) {
    if (!revoked) {
      for (const auto& registration : registrations) End(*nccl, comm, *registration);
      ncclResult_t state = nccl->CommFinalize(comm);
      const Instant deadline = Clock::Steady().Now() + kEndTimeout / 2;
      while (state == ncclInProgress && Clock::Steady().Now() < deadline) {
        absl::SleepFor(kPause);
        if (nccl->CommGetAsyncError(comm, &state) != ncclSuccess) break;
      }
      if (state == ncclSuccess) {
        nccl->CommDestroy(comm);
        return;
      }
    }
    nccl->CommAbort(comm);
  };
  const absl::Status ended = RunAside(ending_, options_.device, true, kEndTimeout, end);
  if (ended.ok()) return;
  Log(LogLevel::kWarning, "NCCL does not end a communicator; it is left to itself",
      {{"communicator", options_.name},
       {"rank", options_.rank},
       {"device", options_.device},
       {"why", ended.message()}});
  if (absl::IsResourceExhausted(ended)) KeepForever(end);
}

absl::Status NcclClique::Health(Instant deadline) {
  ncclResult_t state = ncclSuccess;
  COHORT_ASSIGN_OR_RETURN(const NcclDeviceLock::Guard guard,
                          NcclDeviceLock::Of(options_.device).Acquire(deadline));
  const ncclResult_t asked = nccl_->CommGetAsyncError(comm_, &state);
  if (asked != ncclSuccess) return NcclError(*nccl_, asked, "ncclCommGetAsyncError");
  return NcclError(*nccl_, state, "ncclCommGetAsyncError");
}

absl::Status NcclClique::TryHealth() {
  const absl::Status health = Health(absl::InfinitePast());
  // The deadline is the lock's: NCCL has no such error.
  return absl::IsDeadlineExceeded(health) ? absl::OkStatus() : health;
}

absl::Status NcclClique::AwaitCalls(const char* call, Instant deadline,
                                    absl::FunctionRef<absl::Status()> standing) {
  for (int look = 0;; ++look) {
    ncclResult_t state = ncclSuccess;
    {
      COHORT_ASSIGN_OR_RETURN(const NcclDeviceLock::Guard guard,
                              NcclDeviceLock::Of(options_.device).Acquire(deadline));
      const ncclResult_t asked = nccl_->CommGetAsyncError(comm_, &state);
      if (asked != ncclSuccess) return NcclError(*nccl_, asked, "ncclCommGetAsyncError");
    }
    if (state != ncclInProgress) return NcclError(*nccl_, state, call);
    COHORT_RETURN_IF_ERROR(standing());
    if (Clock::Steady().Now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(call, " did not finish in time"));
    }
    if (look < 100) {
      sched_yield();
    } else {
      absl::SleepFor(kPause);
    }
  }
}

absl::Status NcclClique::Register(std::shared_ptr<NcclMemory> memory, bool as_window,
                                  Instant deadline, absl::FunctionRef<absl::Status()> standing) {
  const char* const call = as_window ? "ncclCommWindowRegister" : "ncclCommRegister";
  const auto made = std::make_shared<Registration>();
  made->memory = std::move(memory);
  char* const data = made->memory->data();
  const size_t bytes = made->memory->size();
  made->number = ++registered_;
  // Added already, since NCCL may fill it after the caller has stopped waiting.
  registrations_.push_back(made);
  absl::Status status = NcclDeviceLock::Run(options_.device, deadline, [&] {
    return NcclError(*nccl_,
                     as_window ? nccl_->CommWindowRegister(comm_, data, bytes, &made->window,
                                                           NCCL_WIN_COLL_SYMMETRIC)
                               : nccl_->CommRegister(comm_, data, bytes, &made->buffer),
                     call);
  });
  if (status.ok()) status = AwaitCalls(call, deadline, standing);
  // One that is still under way keeps its memory.
  if (!status.ok() && !absl::IsDeadlineExceeded(status)) registrations_.pop_back();
  return status;
}

ncclResult_t NcclClique::End(NcclApi& nccl, ncclComm_t comm, const Registration& registration) {
  if (registration.window != nullptr) return nccl.CommWindowDeregister(comm, registration.window);
  if (registration.buffer != nullptr) return nccl.CommDeregister(comm, registration.buffer);
  return ncclSuccess;
}

absl::Status NcclClique::Deregister(const void* data, Instant deadline) {
  const auto found = std::find_if(registrations_.begin(), registrations_.end(),
                                  [data](const auto& one) { return one->memory->data() == data; });
  if (found == registrations_.end()) {
    return absl::InvalidArgumentError("memory that is not registered with this group");
  }
  // Let go outside of the lock: it may be the last to hold the memory.
  const std::shared_ptr<Registration> registration = *found;
  return NcclDeviceLock::Run(options_.device, deadline, [&] {
    const ncclResult_t result = End(*nccl_, comm_, *registration);
    registrations_.erase(found);
    return NcclError(
        *nccl_, result,
        registration->window != nullptr ? "ncclCommWindowDeregister" : "ncclCommDeregister");
  });
}

std::optional<NcclClique::WindowOffset> NcclClique::Find(const void* memory, size_t bytes) const {
  const auto found =
      std::find_if(registrations_.begin(), registrations_.end(),
                   [&](const auto& one) { return one->memory->Holds(memory, bytes); });
  if (found == registrations_.end()) return std::nullopt;
  const Registration& registration = **found;
  if (registration.window == nullptr) return WindowOffset();
  return WindowOffset{registration.number,
                      static_cast<const char*>(memory) - registration.memory->data()};
}

void NcclClique::Revoke(Wait wait) {
  if (revoked_.exchange(true)) return;
  const auto end = [nccl = nccl_, comm = comm_](bool) {
    nccl->CommRevoke(comm, NCCL_REVOKE_DEFAULT);
    ncclResult_t state = ncclInProgress;
    const Instant deadline = Clock::Steady().Now() + kEndTimeout;
    while (state == ncclInProgress && Clock::Steady().Now() < deadline) {
      if (nccl->CommGetAsyncError(comm, &state) != ncclSuccess) return;
      absl::SleepFor(kPause);
    }
  };
  const auto report = [options = options_](const absl::Status& why) {
    Log(LogLevel::kWarning, "NCCL does not revoke a communicator; its end will be by force",
        {{"communicator", options.name},
         {"rank", options.rank},
         {"device", options.device},
         {"why", why.message()}});
  };
  absl::Status started;
  if (wait == Wait::kBriefly) {
    const absl::Status revoked = RunAside(ending_, options_.device, false, kEndTimeout, end);
    if (!revoked.ok()) report(revoked);
    if (absl::IsResourceExhausted(revoked)) started = revoked;
  } else {
    // It waits for the lock itself, and for the end of another's call.
    started =
        StartDetachedThread("cohort-nccl-rev", [ending = ending_, options = options_, end, report] {
          const absl::Status revoked = RunAside(ending, options.device, false, kEndTimeout, end);
          if (!revoked.ok()) report(revoked);
        });
    if (!started.ok()) report(started);
  }
  // Nothing was revoked: the next call may find a thread.
  if (!started.ok()) revoked_ = false;
}

}  // namespace cohort::worker
