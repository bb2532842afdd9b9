// The faults that tests request of the fake NCCL, and its record of calls.
#include <atomic>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "worker/communicator/nccl/api/testing/fake_nccl_api.h"
#include "worker/communicator/nccl/api/testing/fake_nccl_comm.h"

namespace cohort::worker {
namespace {

constexpr char kPoll[] = "ncclCommGetAsyncError";

// These touch no device: any thread may call them at any time.
bool TouchesNoDevice(const std::string& function) {
  return function == "ncclGetUniqueId" || function == "ncclGroupStart";
}

}  // namespace

void FakeNcclApi::FailNext(const std::string& function, ncclResult_t result,
                           std::optional<int> rank) {
  MutexLock lock(&mutex_);
  faults_.push_back({function, rank, result});
}

void FakeNcclApi::BlockNext(const std::string& function, absl::Duration how_long,
                            std::optional<int> rank) {
  MutexLock lock(&mutex_);
  faults_.push_back({function, rank, std::nullopt, how_long});
}

void FakeNcclApi::Release() {
  MutexLock lock(&mutex_);
  ++releases_;
  changed_.SignalAll();
}

void FakeNcclApi::HangNext() {
  MutexLock lock(&mutex_);
  hangs_next_ = true;
}

void FakeNcclApi::HoldInit(bool holds) {
  MutexLock lock(&mutex_);
  holds_init_ = holds;
  changed_.SignalAll();
}

void FakeNcclApi::InjectAsyncError(int rank, ncclResult_t error) {
  MutexLock lock(&mutex_);
  for (const auto& comm : comms_) {
    if (comm->rank == rank && !comm->gone) comm->error = error;
  }
}

void FakeNcclApi::StopAll() {
  MutexLock lock(&mutex_);
  ++releases_;
  changed_.SignalAll();
  for (const auto& comm : comms_) {
    comm->stopped = true;
    comm->founding->clique->Stop(comm->rank);
  }
}

int FakeNcclApi::ThisThread() {
  static std::atomic<int> last{0};
  thread_local const int mine = ++last;
  return mine;
}

std::vector<FakeNcclCall> FakeNcclApi::calls() const {
  MutexLock lock(&mutex_);
  return calls_;
}

std::vector<std::string> FakeNcclApi::functions(std::optional<int> rank) const {
  std::vector<std::string> names;
  for (const FakeNcclCall& call : calls()) {
    if (!rank.has_value() || call.rank == *rank) names.push_back(call.function);
  }
  return names;
}

std::set<int> FakeNcclApi::ThreadsOf(int device) const {
  std::set<int> threads;
  for (const FakeNcclCall& call : calls()) {
    if (call.device == device && !TouchesNoDevice(call.function)) threads.insert(call.thread);
  }
  return threads;
}

std::vector<std::string> FakeNcclApi::misuses() const {
  MutexLock lock(&misuse_mutex_);
  return misuses_;
}

std::vector<std::string> FakeNcclApi::leaks() const {
  MutexLock lock(&mutex_);
  std::vector<std::string> leaks;
  for (const auto& comm : comms_) {
    if (comm->gone) continue;
    const std::string whose = absl::StrCat(" of rank ", comm->rank);
    leaks.push_back(absl::StrCat("communicator", whose));
    const auto add = [&](size_t count, const char* what) {
      if (count > 0) leaks.push_back(absl::StrCat(count, " ", what, whose));
    };
    add(comm->buffers.size(), "buffers");
    add(comm->windows.size(), "windows");
    add(comm->ops.size(), "reductions");
  }
  if (!memory_.empty()) leaks.push_back(absl::StrCat(memory_.size(), " pieces of memory"));
  return leaks;
}

int FakeNcclApi::registered() const {
  MutexLock lock(&mutex_);
  size_t count = 0;
  for (const auto& comm : comms_) {
    if (!comm->gone) count += comm->buffers.size() + comm->windows.size();
  }
  return static_cast<int>(count);
}

ncclResult_t FakeNcclApi::Call(const char* function, ncclComm_t comm, int rank,
                               const std::function<ncclResult_t()>& body) {
  size_t call = 0;
  std::optional<ncclResult_t> faulty;
  {
    MutexLock lock(&mutex_);
    call = Record(function, comm, rank);
    faulty = TakeFault(function, calls_[call].rank);
    if (faulty.has_value()) Fail(*faulty, absl::StrCat(function, " was told to fail"));
  }
  const ncclResult_t result = faulty.has_value() ? *faulty : body();
  MutexLock lock(&mutex_);
  calls_[call].result = result;
  active_.erase(call);
  return result;
}

size_t FakeNcclApi::Record(const char* function, ncclComm_t comm, int rank) {
  FakeNcclCall call;
  call.thread = ThisThread();
  call.function = function;
  call.rank = rank;
  const auto last = last_calls_.find(call.thread);
  if (comm != nullptr) {
    call.rank = comm->rank;
    call.device = comm->device;
  } else {
    if (rank < 0 && last != last_calls_.end()) call.rank = calls_[last->second].rank;
    cudaGetDevice(&call.device);
  }
  if (!TouchesNoDevice(call.function)) {
    for (const size_t other : active_) {
      const FakeNcclCall& another = calls_[other];
      if (another.device != call.device || TouchesNoDevice(another.function)) continue;
      Misused(absl::StrCat(another.function, " and ", function, " at the same time on device ",
                           call.device));
    }
  }
  size_t index = calls_.size();
  if (call.function == kPoll && last != last_calls_.end() &&
      calls_[last->second].function == kPoll && calls_[last->second].rank == call.rank) {
    index = last->second;
  } else {
    calls_.push_back(call);
  }
  last_calls_[call.thread] = index;
  active_.insert(index);
  return index;
}

std::optional<ncclResult_t> FakeNcclApi::TakeFault(const std::string& function, int rank) {
  for (auto fault = faults_.begin(); fault != faults_.end(); ++fault) {
    if (fault->function != function || (fault->rank.has_value() && *fault->rank != rank)) continue;
    const Fault taken = *fault;
    faults_.erase(fault);
    const Instant deadline = Clock::Steady().Now() + taken.blocks;
    const int releases = releases_;
    while (releases_ == releases && Clock::Steady().Now() < deadline) {
      changed_.WaitWithTimeout(&mutex_, deadline - Clock::Steady().Now());
    }
    return taken.result;
  }
  return std::nullopt;
}

ncclResult_t FakeNcclApi::Fail(ncclResult_t result, const std::string& why) {
  errors_.push_back(why);
  return result;
}

void FakeNcclApi::Misused(const std::string& what) {
  MutexLock lock(&misuse_mutex_);
  misuses_.push_back(what);
}

}  // namespace cohort::worker
