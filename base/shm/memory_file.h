// Memory without a name, which processes share by a descriptor.
#ifndef COHORT_BASE_SHM_MEMORY_FILE_H_
#define COHORT_BASE_SHM_MEMORY_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cohort::shm {

// Opens an empty memory file that accepts seals and cannot be executed. Returns -1, with errno, if
// the kernel refuses memfd_create. Kernels before 6.3 do not know MFD_NOEXEC_SEAL and get the call
// without it.
int OpenMemoryFile(const std::string& label);

// Whether `error` of OpenMemoryFile means that this process may not call memfd_create at all: a
// seccomp filter or a security module refuses it. Such a process shares no memory.
bool IsMemoryFileForbidden(int error);

// The error of a call that needs to pass `what` to another process, in a process that shares no
// memory.
absl::Status NotShared(absl::string_view what);

}  // namespace cohort::shm

#endif  // COHORT_BASE_SHM_MEMORY_FILE_H_
