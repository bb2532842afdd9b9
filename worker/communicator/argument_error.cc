#include "worker/communicator/argument_error.h"

#include "absl/strings/cord.h"

namespace cohort::worker {
namespace {

constexpr absl::string_view kMark = "cohort/own-arguments";

}  // namespace

absl::Status ArgumentError(absl::string_view why) {
  absl::Status status = absl::InvalidArgumentError(why);
  status.SetPayload(kMark, absl::Cord());
  return status;
}

bool IsArgumentError(const absl::Status& status) {
  return absl::IsInvalidArgument(status) && status.GetPayload(kMark).has_value();
}

absl::Status Unmarked(absl::Status status) {
  status.ErasePayload(kMark);
  return status;
}

}  // namespace cohort::worker
