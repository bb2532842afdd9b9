#include "worker/communicator/nccl/api/loaded_nccl_api.h"

#include <dlfcn.h>

#include <cstdlib>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/threads/mutex.h"

namespace cohort::worker {
namespace {

constexpr char kHowToGetIt[] =
    "install NCCL 2.28.7 or later (NVIDIA's package libnccl2, or the wheel nvidia-nccl-cu13), and "
    "name its file in COHORT_NCCL_LIBRARY if it is elsewhere";

// The functions of one library, by the names of NcclApi.
struct Functions {
  decltype(&ncclGetUniqueId) GetUniqueId = nullptr;
  decltype(&ncclCommInitRankConfig) CommInitRankConfig = nullptr;
  decltype(&ncclCommInitRankScalable) CommInitRankScalable = nullptr;
  decltype(&ncclCommShrink) CommShrink = nullptr;
  decltype(&ncclCommRevoke) CommRevoke = nullptr;
  decltype(&ncclCommFinalize) CommFinalize = nullptr;
  decltype(&ncclCommDestroy) CommDestroy = nullptr;
  decltype(&ncclCommAbort) CommAbort = nullptr;
  decltype(&ncclCommGetAsyncError) CommGetAsyncError = nullptr;
  decltype(&ncclGetErrorString) GetErrorString = nullptr;
  decltype(&ncclGetLastError) GetLastError = nullptr;
  decltype(&ncclMemAlloc) MemAlloc = nullptr;
  decltype(&ncclMemFree) MemFree = nullptr;
  decltype(&ncclCommRegister) CommRegister = nullptr;
  decltype(&ncclCommDeregister) CommDeregister = nullptr;
  decltype(&ncclCommWindowRegister) CommWindowRegister = nullptr;
  decltype(&ncclCommWindowDeregister) CommWindowDeregister = nullptr;
  decltype(&ncclRedOpCreatePreMulSum) RedOpCreatePreMulSum = nullptr;
  decltype(&ncclRedOpDestroy) RedOpDestroy = nullptr;
  decltype(&ncclAllReduce) AllReduce = nullptr;
  decltype(&ncclReduce) Reduce = nullptr;
  decltype(&ncclBroadcast) Broadcast = nullptr;
  decltype(&ncclAllGather) AllGather = nullptr;
  decltype(&ncclReduceScatter) ReduceScatter = nullptr;
  decltype(&ncclAlltoAll) AlltoAll = nullptr;
  decltype(&ncclGather) Gather = nullptr;
  decltype(&ncclScatter) Scatter = nullptr;
  decltype(&ncclSend) Send = nullptr;
  decltype(&ncclRecv) Recv = nullptr;
  decltype(&ncclGroupStart) GroupStart = nullptr;
  decltype(&ncclGroupEnd) GroupEnd = nullptr;
};

class LoadedNcclApi final : public NcclApi {
 public:
  LoadedNcclApi(std::string source, int version, const Functions& functions)
      : source_(std::move(source)), version_(version), nccl_(functions) {}

  const std::string& source() const override { return source_; }
  int version() const override { return version_; }

  ncclResult_t GetUniqueId(ncclUniqueId* id) override { return nccl_.GetUniqueId(id); }
  ncclResult_t CommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                  ncclConfig_t* config) override {
    return nccl_.CommInitRankConfig(comm, ranks, id, rank, config);
  }
  ncclResult_t CommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int id_count,
                                    ncclUniqueId* ids, ncclConfig_t* config) override {
    return nccl_.CommInitRankScalable(comm, ranks, rank, id_count, ids, config);
  }
  ncclResult_t CommShrink(ncclComm_t comm, int* excluded, int excluded_count, ncclComm_t* shrunk,
                          ncclConfig_t* config, int flags) override {
    return nccl_.CommShrink(comm, excluded, excluded_count, shrunk, config, flags);
  }
  ncclResult_t CommRevoke(ncclComm_t comm, int flags) override {
    return nccl_.CommRevoke(comm, flags);
  }
  ncclResult_t CommFinalize(ncclComm_t comm) override { return nccl_.CommFinalize(comm); }
  ncclResult_t CommDestroy(ncclComm_t comm) override { return nccl_.CommDestroy(comm); }
  ncclResult_t CommAbort(ncclComm_t comm) override { return nccl_.CommAbort(comm); }
  ncclResult_t CommGetAsyncError(ncclComm_t comm, ncclResult_t* error) override {
    return nccl_.CommGetAsyncError(comm, error);
  }
  const char* GetErrorString(ncclResult_t result) override { return nccl_.GetErrorString(result); }
  const char* GetLastError(ncclComm_t comm) override { return nccl_.GetLastError(comm); }

  ncclResult_t MemAlloc(void** memory, size_t bytes) override {
    return nccl_.MemAlloc(memory, bytes);
  }
  ncclResult_t MemFree(void* memory) override { return nccl_.MemFree(memory); }
  ncclResult_t CommRegister(ncclComm_t comm, void* memory, size_t bytes, void** handle) override {
    return nccl_.CommRegister(comm, memory, bytes, handle);
  }
  ncclResult_t CommDeregister(ncclComm_t comm, void* handle) override {
    return nccl_.CommDeregister(comm, handle);
  }
  ncclResult_t CommWindowRegister(ncclComm_t comm, void* memory, size_t bytes, ncclWindow_t* window,
                                  int flags) override {
    return nccl_.CommWindowRegister(comm, memory, bytes, window, flags);
  }
  ncclResult_t CommWindowDeregister(ncclComm_t comm, ncclWindow_t window) override {
    return nccl_.CommWindowDeregister(comm, window);
  }

  ncclResult_t RedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                    ncclScalarResidence_t residence, ncclComm_t comm) override {
    return nccl_.RedOpCreatePreMulSum(op, scalar, type, residence, comm);
  }
  ncclResult_t RedOpDestroy(ncclRedOp_t op, ncclComm_t comm) override {
    return nccl_.RedOpDestroy(op, comm);
  }

  ncclResult_t AllReduce(const void* input, void* output, size_t count, ncclDataType_t type,
                         ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) override {
    return nccl_.AllReduce(input, output, count, type, op, comm, stream);
  }
  ncclResult_t Reduce(const void* input, void* output, size_t count, ncclDataType_t type,
                      ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) override {
    return nccl_.Reduce(input, output, count, type, op, root, comm, stream);
  }
  ncclResult_t Broadcast(const void* input, void* output, size_t count, ncclDataType_t type,
                         int root, ncclComm_t comm, cudaStream_t stream) override {
    return nccl_.Broadcast(input, output, count, type, root, comm, stream);
  }
  ncclResult_t AllGather(const void* input, void* output, size_t input_count, ncclDataType_t type,
                         ncclComm_t comm, cudaStream_t stream) override {
    return nccl_.AllGather(input, output, input_count, type, comm, stream);
  }
  ncclResult_t ReduceScatter(const void* input, void* output, size_t output_count,
                             ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                             cudaStream_t stream) override {
    return nccl_.ReduceScatter(input, output, output_count, type, op, comm, stream);
  }
  ncclResult_t AlltoAll(const void* input, void* output, size_t count, ncclDataType_t type,
                        ncclComm_t comm, cudaStream_t stream) override {
    return nccl_.AlltoAll(input, output, count, type, comm, stream);
  }
  ncclResult_t Gather(const void* input, void* output, size_t count, ncclDataType_t type, int root,
                      ncclComm_t comm, cudaStream_t stream) override {
    return nccl_.Gather(input, output, count, type, root, comm, stream);
  }
  ncclResult_t Scatter(const void* input, void* output, size_t count, ncclDataType_t type, int root,
                       ncclComm_t comm, cudaStream_t stream) override {
    return nccl_.Scatter(input, output, count, type, root, comm, stream);
  }
  ncclResult_t Send(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                    cudaStream_t stream) override {
    return nccl_.Send(data, count, type, peer, comm, stream);
  }
  ncclResult_t Recv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                    cudaStream_t stream) override {
    return nccl_.Recv(data, count, type, peer, comm, stream);
  }
  ncclResult_t GroupStart() override { return nccl_.GroupStart(); }
  ncclResult_t GroupEnd() override { return nccl_.GroupEnd(); }

 private:
  const std::string source_;
  const int version_;
  const Functions nccl_;
};

// Finds functions in a library, and remembers the first that it does not have.
class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}

  template <typename Function>
  void Find(const char* name, Function** function) {
    *function = reinterpret_cast<Function*>(dlsym(library_, name));
    if (*function == nullptr && missing_.empty()) missing_ = name;
  }
  const std::string& missing() const { return missing_; }

 private:
  void* const library_;
  std::string missing_;
};

Functions FindAll(Symbols& symbols) {
  Functions nccl;
  symbols.Find("ncclGetUniqueId", &nccl.GetUniqueId);
  symbols.Find("ncclCommInitRankConfig", &nccl.CommInitRankConfig);
  symbols.Find("ncclCommInitRankScalable", &nccl.CommInitRankScalable);
  symbols.Find("ncclCommShrink", &nccl.CommShrink);
  symbols.Find("ncclCommRevoke", &nccl.CommRevoke);
  symbols.Find("ncclCommFinalize", &nccl.CommFinalize);
  symbols.Find("ncclCommDestroy", &nccl.CommDestroy);
  symbols.Find("ncclCommAbort", &nccl.CommAbort);
  symbols.Find("ncclCommGetAsyncError", &nccl.CommGetAsyncError);
  symbols.Find("ncclGetErrorString", &nccl.GetErrorString);
  symbols.Find("ncclGetLastError", &nccl.GetLastError);
  symbols.Find("ncclMemAlloc", &nccl.MemAlloc);
  symbols.Find("ncclMemFree", &nccl.MemFree);
  symbols.Find("ncclCommRegister", &nccl.CommRegister);
  symbols.Find("ncclCommDeregister", &nccl.CommDeregister);
  symbols.Find("ncclCommWindowRegister", &nccl.CommWindowRegister);
  symbols.Find("ncclCommWindowDeregister", &nccl.CommWindowDeregister);
  symbols.Find("ncclRedOpCreatePreMulSum", &nccl.RedOpCreatePreMulSum);
  symbols.Find("ncclRedOpDestroy", &nccl.RedOpDestroy);
  symbols.Find("ncclAllReduce", &nccl.AllReduce);
  symbols.Find("ncclReduce", &nccl.Reduce);
  symbols.Find("ncclBroadcast", &nccl.Broadcast);
  symbols.Find("ncclAllGather", &nccl.AllGather);
  symbols.Find("ncclReduceScatter", &nccl.ReduceScatter);
  symbols.Find("ncclAlltoAll", &nccl.AlltoAll);
  symbols.Find("ncclGather", &nccl.Gather);
  symbols.Find("ncclScatter", &nccl.Scatter);
  symbols.Find("ncclSend", &nccl.Send);
  symbols.Find("ncclRecv", &nccl.Recv);
  symbols.Find("ncclGroupStart", &nccl.GroupStart);
  symbols.Find("ncclGroupEnd", &nccl.GroupEnd);
  return nccl;
}

// The file that a function is in.
std::string FileOf(void* function, const std::string& name) {
  Dl_info info;
  if (dladdr(function, &info) == 0 || info.dli_fname == nullptr) return name;
  return info.dli_fname;
}

absl::StatusOr<std::shared_ptr<NcclApi>> Examine(void* library, const std::string& name) {
  Symbols symbols(library);
  decltype(&ncclGetVersion) get_version = nullptr;
  symbols.Find("ncclGetVersion", &get_version);
  if (get_version == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, " is no NCCL: it has no ncclGetVersion"));
  }
  const std::string file = FileOf(reinterpret_cast<void*>(get_version), name);
  int version = 0;
  if (const ncclResult_t result = get_version(&version); result != ncclSuccess) {
    return absl::FailedPreconditionError(
        absl::StrCat(file, " does not return its version: result ", static_cast<int>(result)));
  }
  if (version < kLeastNcclVersion) {
    return absl::FailedPreconditionError(absl::StrCat(file, " is NCCL ", NcclVersionText(version),
                                                      "; ", NcclVersionText(kLeastNcclVersion),
                                                      " or later is needed"));
  }
  const Functions functions = FindAll(symbols);
  if (!symbols.missing().empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(file, ", NCCL ", NcclVersionText(version), ", lacks ", symbols.missing()));
  }
  return std::make_shared<LoadedNcclApi>(file, version, functions);
}

std::vector<std::string> Candidates(const std::string& path) {
  if (!path.empty()) return {path};
  std::vector<std::string> names = {"libnccl.so.2"};
  if (const char* const home = std::getenv("CUDA_HOME"); home != nullptr && *home != '\0') {
    names.push_back(absl::StrCat(home, "/lib64/libnccl.so.2"));
  }
  names.push_back("/usr/local/cuda/lib64/libnccl.so.2");
  return names;
}

absl::StatusOr<std::shared_ptr<NcclApi>> Load(const std::string& path) {
  std::vector<std::string> failures;
  for (const std::string& name : Candidates(path)) {
    void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* const error = dlerror();
      failures.push_back(error == nullptr ? name : error);
      continue;
    }
    absl::StatusOr<std::shared_ptr<NcclApi>> loaded = Examine(library, name);
    // So far it has told its version, no more; a better one may take its place.
    if (!loaded.ok()) dlclose(library);
    return loaded;
  }
  return absl::NotFoundError(
      absl::StrCat("there is no NCCL: ", absl::StrJoin(failures, "; "), "; ", kHowToGetIt));
}

struct Libraries {
  Mutex mutex;
  std::map<std::string, std::shared_ptr<NcclApi>> by_path ABSL_GUARDED_BY(mutex);
};

}  // namespace

std::string NcclVersionText(int version) {
  // As it was coded up to 2.8.
  if (version < 10000) version = version / 1000 * 10000 + version % 1000;
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

absl::StatusOr<std::shared_ptr<NcclApi>> LoadNccl(const std::string& path) {
  static Libraries* const libraries = new Libraries();
  std::string name = path;
  if (const char* const given = std::getenv("COHORT_NCCL_LIBRARY"); name.empty() && given) {
    name = given;
  }
  MutexLock lock(&libraries->mutex);
  std::shared_ptr<NcclApi>& library = libraries->by_path[name];
  if (library == nullptr) {
    COHORT_ASSIGN_OR_RETURN(library, Load(name));
  }
  return library;
}

}  // namespace cohort::worker
