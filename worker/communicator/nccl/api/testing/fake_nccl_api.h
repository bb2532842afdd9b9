// An NCCL for tests: the ranks are threads of one process, their devices' memory is the host's.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_API_TESTING_FAKE_NCCL_API_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_API_TESTING_FAKE_NCCL_API_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/threads/mutex.h"
#include "worker/communicator/nccl/api/nccl_api.h"
#include "worker/communicator/nccl/api/testing/fake_clique.h"
#include "worker/communicator/nccl/api/testing/fake_operation.h"

namespace cohort::worker {

// A call of the fake.
struct FakeNcclCall {
  int thread = 0;        // ThisThread() of the caller
  std::string function;  // "ncclAllReduce"
  int rank = -1;         // -1: not known yet
  int device = -1;
  ncclResult_t result = ncclNumResults;  // that: it has not returned
};

// One world of ranks, which all use the same object, as they use the one library.
// cudaLaunchHostFunc puts operations on their streams, where they run; MemAlloc is cudaMalloc. The
// test chooses the CUDA library: //worker/cuda/testing:fake_runtime, where streams are threads.
//
// It behaves like NCCL where a caller could tell the difference:
//
// - Init, revoke and finalize of a non-blocking communicator are ncclInProgress, as
//   CommGetAsyncError says, until they are done. So is the first operation, which connects. It is
//   put on its stream when CommGetAsyncError first says ncclSuccess, not before.
// - Calls on a communicator that is in progress are ncclInvalidArgument, which stays as its error.
// - Sends and receives that do not match, and collectives that differ, hang until abort or revoke
//   of each rank.
// - Empty collectives are dropped without waiting; empty messages are not.
// - Operations of one communicator run in the order in which they were called, on whatever streams
//   they are; not so when they were captured.
// - A revoked communicator refuses collectives and finalize (ncclInvalidUsage) and to be revoked
//   again (ncclInvalidArgument), and can be shrunk, destroyed and aborted.
//
// It differs in this: every collective waits for all ranks, and every message for its receiver;
// a window is registered by each rank alone; init in a group is refused.
//
// Thread-safe. Must outlive the streams that it was used with, or they be synchronised before.
class FakeNcclApi final : public NcclApi {
 public:
  struct Options {
    int version = 22809;
    // A call or operation that blocks this long, on a thread or on a stream, ends, and misuses()
    // names it.
    absl::Duration timeout = absl::Seconds(60);
    // NCCL 2.28 does not let two ranks of a process share a device.
    bool one_rank_on_a_device = true;
    // How many polls find a non-blocking communicator's first operation still in progress.
    int polls_to_connect = 1;
  };
  FakeNcclApi() : FakeNcclApi(Options{}) {}
  explicit FakeNcclApi(Options options);
  // Ends the operations that hang.
  ~FakeNcclApi();

  // --- Faults on request. `rank`: the fault is for that rank alone; absent: for the first that
  // calls.

  // The next call of `function` ("ncclCommAbort") does nothing and returns `result`.
  void FailNext(const std::string& function, ncclResult_t result, std::optional<int> rank = {});
  // The next call of `function` takes this long, or until Release.
  void BlockNext(const std::string& function, absl::Duration how_long,
                 std::optional<int> rank = {});
  void Release();
  // The next operation that is called never ends, on all ranks that run it.
  void HangNext();
  // While it holds, no communicator is formed: init stays in progress.
  void HoldInit(bool holds);
  // Sets the asynchronous error of this rank's communicators.
  void InjectAsyncError(int rank, ncclResult_t error);
  // Ends the operations that hang, on all ranks.
  void StopAll();

  // --- The calls that the fake has seen.

  // A number for the calling thread. The system's own numbers are used again.
  static int ThisThread();
  // Returns the calls in the order in which they began; consecutive polls on a thread are one.
  // GetErrorString and GetLastError are left out. A call without a communicator counts for the last
  // rank of its thread.
  std::vector<FakeNcclCall> calls() const;
  // "ncclGroupStart", "ncclSend", ... of one rank, or of all.
  std::vector<std::string> functions(std::optional<int> rank = {}) const;
  // The threads that called a function of the device.
  std::set<int> ThreadsOf(int device) const;
  // The misuses that callers of NCCL must avoid: concurrent calls of one device, calls on
  // communicators that are gone or in progress, ranks that differ, and anything that blocked for
  // too long. Empty in a good test.
  std::vector<std::string> misuses() const;
  // The objects that exist now, in no order: "communicator of rank 0", "2 windows of rank 1",
  // "memory".
  std::vector<std::string> leaks() const;
  int registered() const;  // buffers and windows, now

  // --- The functions of the table.

  ncclResult_t GetUniqueId(ncclUniqueId* id);
  ncclResult_t CommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                  ncclConfig_t* config);
  ncclResult_t CommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int id_count,
                                    ncclUniqueId* ids, ncclConfig_t* config);
  ncclResult_t CommRevoke(ncclComm_t comm, int flags);
  ncclResult_t CommFinalize(ncclComm_t comm);
  ncclResult_t CommDestroy(ncclComm_t comm);
  ncclResult_t CommAbort(ncclComm_t comm);
  ncclResult_t CommGetAsyncError(ncclComm_t comm, ncclResult_t* error);
  const char* GetErrorString(ncclResult_t result);
  const char* GetLastError(ncclComm_t comm);

  ncclResult_t MemAlloc(void** memory, size_t bytes);
  ncclResult_t MemFree(void* memory);
  ncclResult_t CommRegister(ncclComm_t comm, void* memory, size_t bytes, void** handle);
  ncclResult_t CommDeregister(ncclComm_t comm, void* handle);
  ncclResult_t CommWindowRegister(ncclComm_t comm, void* memory, size_t bytes, ncclWindow_t* window,
                                  int flags);
  ncclResult_t CommWindowDeregister(ncclComm_t comm, ncclWindow_t window);

  ncclResult_t RedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                    ncclScalarResidence_t residence, ncclComm_t comm);
  ncclResult_t RedOpDestroy(ncclRedOp_t op, ncclComm_t comm);

  ncclResult_t AllReduce(const void* input, void* output, size_t count, ncclDataType_t type,
                         ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
  ncclResult_t Reduce(const void* input, void* output, size_t count, ncclDataType_t type,
                      ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream);
  ncclResult_t Broadcast(const void* input, void* output, size_t count, ncclDataType_t type,
                         int root, ncclComm_t comm, cudaStream_t stream);
  ncclResult_t AllGather(const void* input, void* output, size_t input_count, ncclDataType_t type,
                         ncclComm_t comm, cudaStream_t stream);
  ncclResult_t ReduceScatter(const void* input, void* output, size_t output_count,
                             ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                             cudaStream_t stream);
  ncclResult_t AlltoAll(const void* input, void* output, size_t count, ncclDataType_t type,
                        ncclComm_t comm, cudaStream_t stream);
  ncclResult_t Gather(const void* input, void* output, size_t count, ncclDataType_t type, int root,
                      ncclComm_t comm, cudaStream_t stream);
  ncclResult_t Scatter(const void* input, void* output, size_t count, ncclDataType_t type, int root,
                       ncclComm_t comm, cudaStream_t stream);
  ncclResult_t Send(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                    cudaStream_t stream);
  ncclResult_t Recv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                    cudaStream_t stream);
  ncclResult_t GroupStart();
  ncclResult_t GroupEnd();

 private:
  struct Fault {
    std::string function;
    std::optional<int> rank;
    std::optional<ncclResult_t> result;
    absl::Duration blocks = absl::ZeroDuration();
  };
  // Ranks that come together to be a communicator.
  struct Founding {
    std::shared_ptr<FakeClique> clique;
    std::map<int, int> devices;  // of the ranks that have come
    bool complete = false;
    ncclResult_t error = ncclSuccess;
  };
  using FoundingPtr = std::shared_ptr<Founding>;
  // Operations of a communicator that run on a stream at once.
  struct Batch {
    FakeNcclApi* nccl = nullptr;
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
    std::vector<FakeOperation> operations;
    bool is_awaited = true;  // it runs once, and is part of on_streams until then
    int64_t number = 0;      // if so
  };
  // The calls of a thread since its GroupStart.
  struct Group {
    int depth = 0;
    ncclResult_t error = ncclSuccess;
    std::vector<std::unique_ptr<Batch>> batches;
  };
  friend struct ::ncclComm;

  // Returns a function of the table that calls `method`.
  template <typename Result, typename... Arguments>
  std::function<Result(Arguments...)> Bind(Result (FakeNcclApi::*method)(Arguments...)) {
    return [this, method](Arguments... arguments) { return (this->*method)(arguments...); };
  }
  // Everything is called by this: it records, and does what a fault says in place of `body`.
  ncclResult_t Call(const char* function, ncclComm_t comm, int rank,
                    const std::function<ncclResult_t()>& body);
  // The index in calls_.
  size_t Record(const char* function, ncclComm_t comm, int rank)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Blocks, if a fault says so; what a fault says to return.
  std::optional<ncclResult_t> TakeFault(const std::string& function, int rank)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ncclResult_t Fail(ncclResult_t result, const std::string& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Misused(const std::string& what);

  ncclResult_t Init(const char* function, ncclComm_t* comm, int ranks, int rank,
                    const std::vector<ncclUniqueId>& ids, ncclConfig_t* config);
  // The clique of that name.
  FoundingPtr FoundingOf(const std::string& name, int ranks) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Joins the clique.
  ncclComm_t Found(FoundingPtr founding, int rank, int device, bool blocking)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // ncclInProgress until all have come.
  ncclResult_t StateOf(Founding& founding) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ncclResult_t AwaitFounding(Founding& founding) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ncclResult_t StateOf(ncclComm& comm) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Checks that the communicator is not null and not gone.
  ncclResult_t CheckAlive(ncclComm_t comm) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ncclResult_t CheckReady(ncclComm_t comm) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Lets running operations, and those on streams, finish.
  void Flush(ncclComm& comm) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends running operations.
  void Stop(ncclComm& comm) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(ncclComm& comm) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  ncclResult_t Operate(const FakeOperation& operation, ncclComm_t comm, cudaStream_t stream);
  ncclResult_t Add(FakeOperation operation, ncclComm_t comm, cudaStream_t stream, Group& group)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Puts the operations on their streams, or keeps them until their communicator has connected.
  ncclResult_t Issue(std::vector<std::unique_ptr<Batch>> batches);
  ncclResult_t Launch(std::unique_ptr<Batch> batch);
  static void RunBatch(void* batch);
  // Waits until the operations before it have run, or all are stopped.
  void AwaitEarlierBatches(const Batch& batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ncclResult_t Register(ncclComm_t comm, void* memory, size_t bytes, bool window, void** handle);
  ncclResult_t Deregister(ncclComm_t comm, bool window, void* handle);

  const Options options_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<FakeNcclCall> calls_ ABSL_GUARDED_BY(mutex_);
  std::set<size_t> active_ ABSL_GUARDED_BY(mutex_);  // of calls_
  std::map<int, size_t> last_calls_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::string> errors_ ABSL_GUARDED_BY(mutex_);  // their texts stay where they are
  std::vector<Fault> faults_ ABSL_GUARDED_BY(mutex_);
  bool hangs_next_ ABSL_GUARDED_BY(mutex_) = false;
  bool holds_init_ ABSL_GUARDED_BY(mutex_) = false;
  int releases_ ABSL_GUARDED_BY(mutex_) = 0;
  int ids_made_ ABSL_GUARDED_BY(mutex_) = 0;
  int next_op_ ABSL_GUARDED_BY(mutex_) = ncclNumOps + 1;
  // By their ids.
  std::map<std::string, FoundingPtr> foundings_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> ids_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<ncclComm>> comms_ ABSL_GUARDED_BY(mutex_);  // those that are gone too
  std::map<int, Group> groups_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Batch>> launched_ ABSL_GUARDED_BY(mutex_);
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<void*> memory_ ABSL_GUARDED_BY(mutex_);
  int next_handle_ ABSL_GUARDED_BY(mutex_) = 1;
  mutable Mutex misuse_mutex_;  // taken last
  std::vector<std::string> misuses_ ABSL_GUARDED_BY(misuse_mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_API_TESTING_FAKE_NCCL_API_H_
