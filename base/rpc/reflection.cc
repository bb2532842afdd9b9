#include "base/rpc/reflection.h"

#include <dlfcn.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "grpcpp/grpcpp.h"

namespace cohort {

absl::Status EnableReflection() {
  // Their names end in the major and minor version of gRPC.
  std::string version = grpc::Version();
  version.resize(version.rfind('.'));
  // It would register itself in a gRPC of its own.
  if (dlopen(absl::StrCat("libgrpc++.so.", version).c_str(), RTLD_NOW | RTLD_NOLOAD) == nullptr) {
    return absl::FailedPreconditionError(
        "--reflection needs a build with gRPC as a shared library: --define system_libraries=shared");
  }
  const std::string name = absl::StrCat("libgrpc++_reflection.so.", version);
  // Registers itself when it is loaded, and stays.
  if (dlopen(name.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("--reflection needs ", name));
  }
  return absl::OkStatus();
}

}  // namespace cohort
