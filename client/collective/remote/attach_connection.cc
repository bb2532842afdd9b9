#include "client/collective/remote/attach_connection.h"

#include <utility>

#include "absl/memory/memory.h"
#include "base/status_macros.h"

namespace cohort::client {
namespace {

absl::StatusOr<v1::AttachAnswer> Read(const shm::LocalSocket::Message& message) {
  v1::AttachAnswer answer;
  if (!answer.ParseFromString(message.bytes)) {
    return absl::UnavailableError("the worker's answer cannot be understood");
  }
  if (answer.code() != 0) {
    return absl::Status(static_cast<absl::StatusCode>(answer.code()), answer.text());
  }
  return answer;
}

}  // namespace

absl::StatusOr<std::unique_ptr<AttachConnection>> AttachConnection::Connect(
    absl::string_view socket, absl::string_view session, Instant deadline) {
  COHORT_ASSIGN_OR_RETURN(shm::LocalSocket connection, shm::LocalSocket::Connect(socket, deadline));
  v1::AttachHello hello;
  hello.set_magic(v1::ATTACH_PROTOCOL_MAGIC);
  hello.set_version(v1::ATTACH_PROTOCOL_VERSION);
  hello.set_session(std::string(session));
  COHORT_RETURN_IF_ERROR(connection.Send(hello.SerializeAsString(), {}, deadline));
  COHORT_ASSIGN_OR_RETURN(shm::LocalSocket::Message message, connection.Receive(deadline));
  COHORT_ASSIGN_OR_RETURN(const v1::AttachAnswer answer, Read(message));
  if (message.fds.size() != 1) return absl::UnavailableError("the worker has sent no memory");
  COHORT_ASSIGN_OR_RETURN(shm::Segment segment,
                          shm::Segment::Map(message.fds[0].release(), answer.heap_bytes()));
  return absl::WrapUnique(new AttachConnection(std::move(connection), std::move(segment)));
}

absl::StatusOr<v1::AttachAnswer> AttachConnection::Ask(const v1::AttachRequest& request,
                                                       absl::Span<const int> fds,
                                                       Instant deadline) {
  MutexLock lock(&mutex_);
  return AskLocked(request, fds, deadline);
}

absl::StatusOr<v1::AttachAnswer> AttachConnection::AskLocked(const v1::AttachRequest& request,
                                                             absl::Span<const int> fds,
                                                             Instant deadline) {
  if (out_of_step_) {
    return absl::UnavailableError(
        "the worker has not answered an earlier request at its attach socket in time");
  }
  COHORT_RETURN_IF_ERROR(socket_.Send(request.SerializeAsString(), fds, deadline));
  const absl::StatusOr<shm::LocalSocket::Message> message = socket_.Receive(deadline);
  out_of_step_ = !message.ok();
  COHORT_RETURN_IF_ERROR(message.status());
  return Read(*message);
}

}  // namespace cohort::client
