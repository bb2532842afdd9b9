#include "worker/communicator/mismatch.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace cohort::worker {
namespace {

constexpr absl::string_view kMark = "cohort/ranks-called-different-things";
constexpr absl::string_view kFirstMark = "cohort/other-ranks-hear-later";

}  // namespace

absl::Status MismatchError(absl::string_view first, int other_rank, absl::string_view other) {
  absl::Status status = absl::InvalidArgumentError(
      absl::StrCat("ranks called different things: rank 0 ", first, "; rank ", other_rank, " ",
                   other, first == other ? ", of another tag" : ""));
  status.SetPayload(kMark, absl::Cord());
  return status;
}

bool IsMismatch(const absl::Status& status) {
  return absl::IsInvalidArgument(status) && status.GetPayload(kMark).has_value();
}

absl::Status FirstMismatchError(absl::string_view text) {
  absl::Status status = absl::InvalidArgumentError(text);
  status.SetPayload(kFirstMark, absl::Cord());
  return status;
}

bool IsFirstMismatch(const absl::Status& status) {
  return status.GetPayload(kFirstMark).has_value();
}

absl::Status EarlierMismatchError(absl::string_view text, absl::string_view own_call) {
  absl::Status status = absl::InvalidArgumentError(
      absl::StrCat("a call before this one failed, and no rank has run this one: ", text));
  status.SetPayload(kMark, absl::Cord(own_call));
  return status;
}

std::optional<std::string> EarlierCallOf(const absl::Status& status) {
  if (!IsMismatch(status)) return std::nullopt;
  std::string own_call(*status.GetPayload(kMark));
  if (own_call.empty()) return std::nullopt;
  return own_call;
}

}  // namespace cohort::worker
