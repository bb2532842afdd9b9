// Reads a stream of changes on the caller's thread, and opens it again where it stopped when it
// breaks.
#ifndef COHORT_CLIENT_RENDEZVOUS_CALL_STREAM_READER_H_
#define COHORT_CLIENT_RENDEZVOUS_CALL_STREAM_READER_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/rpc/grpc_deadline.h"
#include "base/rpc/status_conversion.h"
#include "client/rendezvous/call/call_health.h"
#include "client/rendezvous/call/call_retries.h"
#include "client/rendezvous/call/connection/connection_impl.h"
#include "grpcpp/client_context.h"

namespace cohort::client {

// `open(context, from_revision)` opens the stream; `take(response)` returns whether to go on.
// Responses have a revision, up to which the caller has then seen all. OK after `take` said no,
// after `timeout`, and when the coordinator ended the stream.
template <typename Response, typename Open, typename Take>
absl::Status ReadChanges(ConnectionImpl& connection, std::string what, int64_t from_revision,
                         absl::Duration timeout, Interruption& interruption, const Open& open,
                         const Take& take) {
  const Instant deadline = Clock::Steady().Now() + timeout;
  CallRetries retries(connection.options(), CallLimits{std::move(what), deadline});
  CallHealth health(connection, deadline, /*may_wait=*/true);
  Instant reported_at = absl::InfinitePast();
  while (true) {
    const absl::Duration left = deadline - Clock::Steady().Now();
    if (left <= absl::ZeroDuration()) return absl::OkStatus();
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(left));
    const auto reader = open(&context, from_revision);
    Response response;
    while (reader->Read(&response)) {
      from_revision = std::max(from_revision, response.revision());
      if (take(response)) continue;
      context.TryCancel();
      while (reader->Read(&response)) {
      }
      (void)reader->Finish();  // CANCELLED, as asked for
      return absl::OkStatus();
    }
    const grpc::Status status = reader->Finish();
    if (status.ok() || status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      return absl::OkStatus();
    }
    absl::Status result;
    const std::optional<absl::Duration> pause = retries.Judge(status, &result);
    if (!pause.has_value()) return result;
    health.OnRepeat(status, *pause);
    if (Clock::Steady().Now() - reported_at >= absl::Seconds(1)) {
      reported_at = Clock::Steady().Now();
      health.Served();
    }
    if (absl::Status slept = interruption.Sleep(*pause); !slept.ok()) return slept;
  }
}

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_CALL_STREAM_READER_H_
