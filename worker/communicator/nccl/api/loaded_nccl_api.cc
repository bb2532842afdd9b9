#include "worker/communicator/nccl/api/loaded_nccl_api.h"

#include <dlfcn.h>

#include <cstdlib>
#include <functional>
#include <map>
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

// Finds functions in a library, and remembers the first that it does not have.
class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}

  template <typename Function>
  void Find(const char* name, std::function<Function>* function) {
    *function = reinterpret_cast<Function*>(dlsym(library_, name));
    if (*function == nullptr && missing_.empty()) missing_ = name;
  }
  const std::string& missing() const { return missing_; }

 private:
  void* const library_;
  std::string missing_;
};

void FindAll(Symbols& symbols, NcclApi& nccl) {
  symbols.Find("ncclGetUniqueId", &nccl.GetUniqueId);
  symbols.Find("ncclCommInitRankConfig", &nccl.CommInitRankConfig);
  symbols.Find("ncclCommInitRankScalable", &nccl.CommInitRankScalable);
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
}

// The file that a function is in.
std::string FileOf(void* function, const std::string& name) {
  Dl_info info;
  if (dladdr(function, &info) == 0 || info.dli_fname == nullptr) return name;
  return info.dli_fname;
}

absl::StatusOr<std::shared_ptr<NcclApi>> Examine(void* library, const std::string& name) {
  auto* const get_version =
      reinterpret_cast<decltype(&ncclGetVersion)>(dlsym(library, "ncclGetVersion"));
  if (get_version == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, " is no NCCL: it has no ncclGetVersion"));
  }
  auto nccl = std::make_shared<NcclApi>();
  nccl->source = FileOf(reinterpret_cast<void*>(get_version), name);
  if (const ncclResult_t result = get_version(&nccl->version); result != ncclSuccess) {
    return absl::FailedPreconditionError(absl::StrCat(
        nccl->source, " does not return its version: result ", static_cast<int>(result)));
  }
  const std::string version = NcclVersionText(nccl->version);
  if (nccl->version < kLeastNcclVersion) {
    return absl::FailedPreconditionError(absl::StrCat(nccl->source, " is NCCL ", version, "; ",
                                                      NcclVersionText(kLeastNcclVersion),
                                                      " or later is needed"));
  }
  Symbols symbols(library);
  FindAll(symbols, *nccl);
  if (!symbols.missing().empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(nccl->source, ", NCCL ", version, ", lacks ", symbols.missing()));
  }
  return nccl;
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
