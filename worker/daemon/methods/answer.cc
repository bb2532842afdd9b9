#include "worker/daemon/methods/answer.h"

#include "absl/strings/str_cat.h"
#include "base/rpc/answered_by_worker.h"
#include "base/rpc/status_conversion.h"
#include "client/rendezvous/report/report_codec.h"

namespace cohort::worker {
namespace {

constexpr absl::Duration kLongest = absl::Hours(24);

}  // namespace

grpc::Status Answer(grpc::ServerContextBase* context, const absl::Status& status) {
  context->AddTrailingMetadata(kAnsweredKey, "1");
  return ToGrpcStatus(client::WithRanksInDetails(status));
}

absl::StatusOr<absl::Duration> ReadTimeout(bool present, const google::protobuf::Duration& timeout,
                                           absl::Duration otherwise) {
  if (!present) return otherwise;
  const absl::Duration duration =
      absl::Seconds(timeout.seconds()) + absl::Nanoseconds(timeout.nanos());
  if (duration < absl::ZeroDuration() || duration > kLongest) {
    return absl::InvalidArgumentError(absl::StrCat("a timeout of ", absl::FormatDuration(duration),
                                                   "; it must be from 0 to ",
                                                   absl::FormatDuration(kLongest)));
  }
  return duration;
}

}  // namespace cohort::worker
