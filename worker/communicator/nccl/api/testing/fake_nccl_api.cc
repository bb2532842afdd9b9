// One file, though long: each function of the table is a few lines on the state of one fake.
#include "worker/communicator/nccl/api/testing/fake_nccl_api.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "cuda_runtime_api.h"
#include "worker/communicator/nccl/api/testing/fake_nccl_comm.h"

namespace cohort::worker {
namespace {

constexpr unsigned int kConfigMagic = 0xcafebeef;

bool IsBlocking(const ncclConfig_t* config, bool otherwise) {
  if (config == nullptr || config->blocking == NCCL_CONFIG_UNDEF_INT) return otherwise;
  return config->blocking != 0;
}

bool IsConfig(const ncclConfig_t* config) {
  return config == nullptr || (config->magic == kConfigMagic && config->size > 0);
}

}  // namespace

FakeNcclApi::FakeNcclApi(Options options) : options_(options) {
  source = "fake NCCL";
  version = options.version;
  NcclApi::GetUniqueId = Bind(&FakeNcclApi::GetUniqueId);
  NcclApi::CommInitRankConfig = Bind(&FakeNcclApi::CommInitRankConfig);
  NcclApi::CommInitRankScalable = Bind(&FakeNcclApi::CommInitRankScalable);
  NcclApi::CommRevoke = Bind(&FakeNcclApi::CommRevoke);
  NcclApi::CommFinalize = Bind(&FakeNcclApi::CommFinalize);
  NcclApi::CommDestroy = Bind(&FakeNcclApi::CommDestroy);
  NcclApi::CommAbort = Bind(&FakeNcclApi::CommAbort);
  NcclApi::CommGetAsyncError = Bind(&FakeNcclApi::CommGetAsyncError);
  NcclApi::GetErrorString = Bind(&FakeNcclApi::GetErrorString);
  NcclApi::GetLastError = Bind(&FakeNcclApi::GetLastError);
  NcclApi::MemAlloc = Bind(&FakeNcclApi::MemAlloc);
  NcclApi::MemFree = Bind(&FakeNcclApi::MemFree);
  NcclApi::CommRegister = Bind(&FakeNcclApi::CommRegister);
  NcclApi::CommDeregister = Bind(&FakeNcclApi::CommDeregister);
  NcclApi::CommWindowRegister = Bind(&FakeNcclApi::CommWindowRegister);
  NcclApi::CommWindowDeregister = Bind(&FakeNcclApi::CommWindowDeregister);
  NcclApi::RedOpCreatePreMulSum = Bind(&FakeNcclApi::RedOpCreatePreMulSum);
  NcclApi::RedOpDestroy = Bind(&FakeNcclApi::RedOpDestroy);
  NcclApi::AllReduce = Bind(&FakeNcclApi::AllReduce);
  NcclApi::Reduce = Bind(&FakeNcclApi::Reduce);
  NcclApi::Broadcast = Bind(&FakeNcclApi::Broadcast);
  NcclApi::AllGather = Bind(&FakeNcclApi::AllGather);
  NcclApi::ReduceScatter = Bind(&FakeNcclApi::ReduceScatter);
  NcclApi::AlltoAll = Bind(&FakeNcclApi::AlltoAll);
  NcclApi::Gather = Bind(&FakeNcclApi::Gather);
  NcclApi::Scatter = Bind(&FakeNcclApi::Scatter);
  NcclApi::Send = Bind(&FakeNcclApi::Send);
  NcclApi::Recv = Bind(&FakeNcclApi::Recv);
  NcclApi::GroupStart = Bind(&FakeNcclApi::GroupStart);
  NcclApi::GroupEnd = Bind(&FakeNcclApi::GroupEnd);
}

FakeNcclApi::~FakeNcclApi() {
  StopAll();
  const Instant deadline = Clock::Steady().Now() + options_.timeout;
  MutexLock lock(&mutex_);
  while (running_ > 0 && Clock::Steady().Now() < deadline) {
    changed_.WaitWithTimeout(&mutex_, deadline - Clock::Steady().Now());
  }
}

ncclResult_t FakeNcclApi::GetUniqueId(ncclUniqueId* id) {
  return Call("ncclGetUniqueId", nullptr, -1, [&] {
    MutexLock lock(&mutex_);
    if (id == nullptr) return Fail(ncclInvalidArgument, "uniqueId is NULL");
    std::memset(id, 0, sizeof(*id));
    const std::string text = absl::StrCat("unique id ", ++ids_made_, " of a fake");
    std::memcpy(id->internal, text.data(), text.size());
    ids_.insert(std::string(id->internal, sizeof(id->internal)));
    return ncclSuccess;
  });
}

ncclResult_t FakeNcclApi::CommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                             ncclConfig_t* config) {
  return Init("ncclCommInitRankConfig", comm, ranks, rank, {id}, config);
}

ncclResult_t FakeNcclApi::CommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int id_count,
                                               ncclUniqueId* ids, ncclConfig_t* config) {
  const std::vector<ncclUniqueId> all(ids, ids + (ids == nullptr ? 0 : std::max(id_count, 0)));
  return Init("ncclCommInitRankScalable", comm, ranks, rank, all, config);
}

ncclResult_t FakeNcclApi::Init(const char* function, ncclComm_t* comm, int ranks, int rank,
                               const std::vector<ncclUniqueId>& ids, ncclConfig_t* config) {
  return Call(function, nullptr, rank, [&] {
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess) return ncclUnhandledCudaError;
    MutexLock lock(&mutex_);
    if (comm == nullptr || ranks < 1 || rank < 0 || rank >= ranks || ids.empty() ||
        static_cast<int>(ids.size()) > ranks || !IsConfig(config)) {
      return Fail(ncclInvalidArgument, absl::StrCat(function, ": invalid argument"));
    }
    *comm = nullptr;
    if (groups_.count(ThisThread()) > 0) {
      Misused("init in a group, which the fake does not do");
      return ncclInvalidUsage;
    }
    std::string name;
    for (const ncclUniqueId& id : ids) {
      name.append(id.internal, sizeof(id.internal));
      if (ids_.count(std::string(id.internal, sizeof(id.internal))) == 0) {
        return Fail(ncclSystemError, "bootstrap: connection refused");
      }
    }
    FoundingPtr founding = FoundingOf(name, ranks);
    if (founding->clique->ranks() != ranks || founding->devices.count(rank) > 0) {
      Misused(absl::StrCat("rank ", rank, " of ", ranks, " came to a communicator of ",
                           founding->clique->ranks(), " that has it already, or cannot"));
      // It waits in vain.
      founding = FoundingOf(absl::StrCat(name, "/", foundings_.size()), ranks + 1);
    }
    *comm = Found(founding, rank, device, IsBlocking(config, true));
    if (!(*comm)->blocking) return ncclInProgress;
    const ncclResult_t result = AwaitFounding(*founding);
    if (result != ncclSuccess) {
      (*comm)->gone = true;
      *comm = nullptr;
    }
    return result;
  });
}

FakeNcclApi::FoundingPtr FakeNcclApi::FoundingOf(const std::string& name, int ranks) {
  FoundingPtr& founding = foundings_[name];
  if (founding == nullptr) {
    founding = std::make_shared<Founding>();
    founding->clique =
        std::make_shared<FakeClique>(ranks, [this](const std::string& what) { Misused(what); });
  }
  return founding;
}

ncclComm_t FakeNcclApi::Found(FoundingPtr founding, int rank, int device, bool blocking) {
  auto comm = std::make_unique<ncclComm>();
  founding->devices[rank] = device;
  comm->founding = std::move(founding);
  comm->rank = rank;
  comm->device = device;
  comm->blocking = blocking;
  comms_.push_back(std::move(comm));
  changed_.SignalAll();
  return comms_.back().get();
}

ncclResult_t FakeNcclApi::StateOf(Founding& founding) {
  if (founding.complete) return founding.error;
  if (holds_init_ || static_cast<int>(founding.devices.size()) < founding.clique->ranks()) {
    return ncclInProgress;
  }
  founding.complete = true;
  std::map<int, int> ranks_by_device;
  for (const auto& [rank, device] : founding.devices) {
    const auto [other, is_first] = ranks_by_device.emplace(device, rank);
    if (is_first || !options_.one_rank_on_a_device) continue;
    founding.error =
        Fail(ncclInvalidUsage, absl::StrCat("Duplicate GPU detected : rank ", other->second,
                                            " and rank ", rank, " both on CUDA device ", device));
  }
  return founding.error;
}

ncclResult_t FakeNcclApi::AwaitFounding(Founding& founding) {
  const Instant deadline = Clock::Steady().Now() + options_.timeout;
  const int releases = releases_;
  while (StateOf(founding) == ncclInProgress) {
    if (releases_ != releases) return ncclInternalError;
    if (Clock::Steady().Now() > deadline) {
      Misused("init waited too long for a rank");
      return ncclInternalError;
    }
    changed_.WaitWithTimeout(&mutex_, deadline - Clock::Steady().Now());
  }
  return StateOf(founding);
}

ncclResult_t FakeNcclApi::StateOf(ncclComm& comm) {
  if (comm.error != ncclSuccess) return comm.error;
  const ncclResult_t init = StateOf(*comm.founding);
  if (init != ncclSuccess) return init;
  if (!comm.connecting.empty()) return ncclInProgress;
  if (comm.revoked && comm.founding->clique->IsRunning(comm.rank)) return ncclInProgress;
  if (comm.finalized && comm.on_streams > 0) return ncclInProgress;
  return ncclSuccess;
}

ncclResult_t FakeNcclApi::CheckAlive(ncclComm_t comm) {
  if (comm == nullptr) return Fail(ncclInvalidArgument, "comm is NULL");
  if (!comm->gone) return ncclSuccess;
  Misused(absl::StrCat("a call on a communicator of rank ", comm->rank, " that is gone"));
  return Fail(ncclInvalidArgument, "comm is corrupted");
}

ncclResult_t FakeNcclApi::CheckReady(ncclComm_t comm) {
  if (const ncclResult_t alive = CheckAlive(comm); alive != ncclSuccess) return alive;
  const ncclResult_t state = StateOf(*comm);
  if (state != ncclInProgress) return state;
  Misused(absl::StrCat("a call on a communicator of rank ", comm->rank, " that is in progress"));
  return Fail(ncclInvalidArgument,
              "Attempt to use communicator before the previous operation returned ncclSuccess");
}

void FakeNcclApi::Flush(ncclComm& comm) {
  const Instant deadline = Clock::Steady().Now() + options_.timeout;
  while (comm.on_streams > 0) {
    if (Clock::Steady().Now() > deadline) {
      Misused(absl::StrCat("rank ", comm.rank, " waited too long for its operations to end"));
      return Stop(comm);
    }
    changed_.WaitWithTimeout(&mutex_, deadline - Clock::Steady().Now());
  }
}

void FakeNcclApi::Stop(ncclComm& comm) {
  comm.connecting.clear();
  comm.stopped = true;
  changed_.SignalAll();
  const std::shared_ptr<FakeClique> clique = comm.founding->clique;
  clique->Stop(comm.rank);
  // A running operation needs the lock to end.
  mutex_.Unlock();
  const bool idle = clique->AwaitIdle(comm.rank, options_.timeout);
  mutex_.Lock();
  if (!idle) Misused(absl::StrCat("rank ", comm.rank, " could not be stopped"));
}

void FakeNcclApi::End(ncclComm& comm) {
  comm.gone = true;
  comm.buffers.clear();
  comm.windows.clear();
  comm.ops.clear();
}

ncclResult_t FakeNcclApi::CommRevoke(ncclComm_t comm, int flags) {
  return Call("ncclCommRevoke", comm, -1, [&] {
    MutexLock lock(&mutex_);
    if (const ncclResult_t alive = CheckAlive(comm); alive != ncclSuccess) return alive;
    if (flags != NCCL_REVOKE_DEFAULT || comm->revoked || comm->finalized ||
        StateOf(*comm->founding) != ncclSuccess) {
      return Fail(ncclInvalidArgument, "ncclCommRevoke: invalid argument");
    }
    comm->revoked = true;
    comm->error = ncclSuccess;
    if (comm->blocking) {
      Stop(*comm);
      return ncclSuccess;
    }
    comm->connecting.clear();
    comm->stopped = true;
    changed_.SignalAll();
    comm->founding->clique->Stop(comm->rank);
    return ncclInProgress;
  });
}

ncclResult_t FakeNcclApi::CommFinalize(ncclComm_t comm) {
  return Call("ncclCommFinalize", comm, -1, [&] {
    MutexLock lock(&mutex_);
    if (const ncclResult_t ready = CheckReady(comm); ready != ncclSuccess) return ready;
    if (comm->revoked) return Fail(ncclInvalidUsage, "ncclCommFinalize: communicator was revoked");
    if (comm->finalized) return Fail(ncclInvalidArgument, "ncclCommFinalize: called before");
    comm->finalized = true;
    if (!comm->blocking) return ncclInProgress;
    Flush(*comm);
    return ncclSuccess;
  });
}

ncclResult_t FakeNcclApi::CommDestroy(ncclComm_t comm) {
  return Call("ncclCommDestroy", comm, -1, [&] {
    MutexLock lock(&mutex_);
    if (const ncclResult_t alive = CheckAlive(comm); alive != ncclSuccess) return alive;
    if (StateOf(*comm) == ncclInProgress) return CheckReady(comm);
    const size_t registered = comm->buffers.size() + comm->windows.size();
    if (registered > 0) {
      Misused(absl::StrCat("rank ", comm->rank, " destroyed a communicator that had ", registered,
                           " buffers and windows registered"));
    }
    Flush(*comm);
    End(*comm);
    return ncclSuccess;
  });
}

ncclResult_t FakeNcclApi::CommAbort(ncclComm_t comm) {
  return Call("ncclCommAbort", comm, -1, [&] {
    MutexLock lock(&mutex_);
    if (const ncclResult_t alive = CheckAlive(comm); alive != ncclSuccess) return alive;
    Stop(*comm);
    End(*comm);
    return ncclSuccess;
  });
}

ncclResult_t FakeNcclApi::CommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  return Call("ncclCommGetAsyncError", comm, -1, [&] {
    std::vector<std::unique_ptr<Batch>> connected;
    {
      MutexLock lock(&mutex_);
      if (const ncclResult_t alive = CheckAlive(comm); alive != ncclSuccess) return alive;
      if (error == nullptr) return Fail(ncclInvalidArgument, "asyncError is NULL");
      *error = StateOf(*comm);
      if (*error != ncclInProgress || comm->connecting.empty()) return ncclSuccess;
      if (comm->polls_to_connect-- > 0) return ncclSuccess;
      connected = std::move(comm->connecting);
      comm->connecting.clear();
    }
    *error = ncclSuccess;
    for (std::unique_ptr<Batch>& batch : connected) {
      if (const ncclResult_t result = Launch(std::move(batch)); result != ncclSuccess) {
        *error = result;
      }
    }
    return ncclSuccess;
  });
}

const char* FakeNcclApi::GetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : "an error of the fake";
}

const char* FakeNcclApi::GetLastError(ncclComm_t) {
  MutexLock lock(&mutex_);
  return errors_.empty() ? "" : errors_.back().c_str();
}

}  // namespace cohort::worker
