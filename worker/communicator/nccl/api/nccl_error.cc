#include "worker/communicator/nccl/api/nccl_error.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace cohort::worker {
namespace {

// Statuses travel in headers of calls, which have little room.
constexpr size_t kLongestText = 500;

absl::StatusCode CodeOf(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
    case ncclInProgress:
      return absl::StatusCode::kOk;
    case ncclSystemError:
      return absl::StatusCode::kUnavailable;
    case ncclInvalidArgument:
      return absl::StatusCode::kInvalidArgument;
    case ncclRemoteError:
      return absl::StatusCode::kAborted;
    case ncclUnhandledCudaError:
    case ncclInternalError:
    case ncclInvalidUsage:
      return absl::StatusCode::kInternal;
    default:
      return absl::StatusCode::kUnknown;
  }
}

absl::string_view MeaningOf(ncclResult_t result) {
  switch (result) {
    case ncclUnhandledCudaError:
      return "a call to CUDA failed inside NCCL: no device or driver, no memory, or an earlier "
             "kernel";
    case ncclSystemError:
      return "a call to the system failed: a connection to another rank, or memory";
    case ncclInternalError:
      return "a bug in NCCL, or corrupted memory";
    case ncclInvalidArgument:
      return "NCCL does not accept an argument";
    case ncclInvalidUsage:
      return "a call broke the rules of NCCL";
    case ncclRemoteError:
      return "another rank failed, or is gone";
    default:
      return "not known to this program";
  }
}

// Printable, and not too long.
std::string Tidy(const char* text) {
  if (text == nullptr) return "";
  std::string tidy(absl::StripAsciiWhitespace(text).substr(0, kLongestText));
  for (char& c : tidy) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = ' ';
  }
  return tidy;
}

}  // namespace

std::string NameOf(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "ncclSuccess";
    case ncclUnhandledCudaError:
      return "ncclUnhandledCudaError";
    case ncclSystemError:
      return "ncclSystemError";
    case ncclInternalError:
      return "ncclInternalError";
    case ncclInvalidArgument:
      return "ncclInvalidArgument";
    case ncclInvalidUsage:
      return "ncclInvalidUsage";
    case ncclRemoteError:
      return "ncclRemoteError";
    case ncclInProgress:
      return "ncclInProgress";
    default:
      return absl::StrCat("result ", static_cast<int>(result));
  }
}

absl::Status NcclError(NcclApi& nccl, ncclResult_t result, absl::string_view call) {
  const absl::StatusCode code = CodeOf(result);
  if (code == absl::StatusCode::kOk) return absl::OkStatus();
  std::string text = absl::StrCat(call, " failed with ", NameOf(result), ": ", MeaningOf(result));
  // The text does not depend on the communicator, which may be gone.
  const std::string said = Tidy(nccl.GetLastError(nullptr));
  if (said.empty()) {
    absl::StrAppend(&text, "; NCCL_DEBUG=WARN tells more");
  } else {
    absl::StrAppend(&text, "; NCCL last said: ", said);
  }
  return absl::Status(code, text);
}

}  // namespace cohort::worker
