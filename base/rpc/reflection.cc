#include "base/rpc/reflection.h"

#include <dlfcn.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "grpcpp/grpcpp.h"

namespace cohort {

absl::Status EnableReflection() {
  // Its name ends in the major and minor version of the gRPC it belongs to.
  const std::string version = grpc::Version();
  const std::string name =
      absl::StrCat("libgrpc++_reflection.so.", version.substr(0, version.rfind('.')));
  // Registers itself when it is loaded, and stays.
  if (dlopen(name.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("--reflection needs ", name));
  }
  return absl::OkStatus();
}

}  // namespace cohort
