// Values on their way into requests and out of answers: inside when small, beside as blobs when
// large.
#ifndef COHORT_CLIENT_RENDEZVOUS_PROCESS_GROUP_PAYLOAD_TRANSFER_H_
#define COHORT_CLIENT_RENDEZVOUS_PROCESS_GROUP_PAYLOAD_TRANSFER_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/rendezvous/process_group/object_list.h"
#include "client/rendezvous/session/blob_transfer.h"
#include "client/rendezvous/session/group_session.h"

namespace cohort::client {

// Blocking. Errors as of UploadBlob and DownloadBlob.
absl::Status PackPayload(const std::shared_ptr<GroupSession>& session, absl::string_view object,
                         Instant deadline, v1::Payload* payload);
absl::Status PackValues(const std::shared_ptr<GroupSession>& session,
                        const std::vector<std::string>& objects, Instant deadline,
                        v1::Values* values);
absl::StatusOr<std::string> UnpackPayload(const std::shared_ptr<GroupSession>& session,
                                          v1::Payload& payload, Instant deadline);
absl::StatusOr<ObjectList> UnpackValues(const std::shared_ptr<GroupSession>& session,
                                        v1::Values& values, Instant deadline);

// The same without blocking. `done` runs once: in this call when nothing has to travel, else on a
// thread of the library.
void PackPayloadAsync(const std::shared_ptr<GroupSession>& session, absl::string_view object,
                      Instant deadline, std::function<void(absl::StatusOr<v1::Payload>)> done);
void UnpackPayloadAsync(const std::shared_ptr<GroupSession>& session, v1::Payload& payload,
                        Instant deadline, std::function<void(absl::StatusOr<std::string>)> done);
void UnpackValuesAsync(const std::shared_ptr<GroupSession>& session, v1::Values& values,
                       Instant deadline, std::function<void(absl::StatusOr<ObjectList>)> done);

// A blob lives until it is used: a call that is repeated after its first attempt acted, or after
// the coordinator was restarted, finds it gone (NOT_FOUND). So calls that bring a value pack it
// anew then, once.
//
// `pack` fills the request's value and returns its status; `large` says whether that is a blob.
template <typename M, typename Pack, typename Large>
absl::Status CallWithValue(GroupSession& session, const M& method, typename M::Request& request,
                           typename M::Response* response, const CallSpec& spec, const Pack& pack,
                           const Large& large) {
  for (bool again = false;; again = true) {
    COHORT_RETURN_IF_ERROR(pack());
    absl::Status status = session.Call(method, request, response, spec);
    if (again || !absl::IsNotFound(status) || !large()) return status;
    request.clear_scope();
    response->Clear();
  }
}

// The same without blocking, for requests that bring one payload.
template <typename M>
class AsyncValueCall final : public std::enable_shared_from_this<AsyncValueCall<M>> {
 public:
  using Done = typename AsyncCall<M>::Done;

  AsyncValueCall(std::shared_ptr<GroupSession> session, const M& method,
                 typename M::Request request, CallSpec spec, absl::string_view object, Done done)
      : session_(std::move(session)),
        method_(method),
        request_(std::move(request)),
        spec_(std::move(spec)),
        object_(object),
        done_(std::move(done)) {}

  void Start() {
    PackPayloadAsync(session_, object_, spec_.deadline,
                     [self = this->shared_from_this()](absl::StatusOr<v1::Payload> payload) {
                       self->OnPacked(std::move(payload));
                     });
  }

 private:
  void OnPacked(absl::StatusOr<v1::Payload> payload) {
    if (!payload.ok()) {
      typename M::Response none;
      done_(payload.status(), none);
      return;
    }
    const bool large = payload->has_blob();
    typename M::Request request = request_;
    *request.mutable_payload() = *std::move(payload);
    session_->CallAsync(
        method_, std::move(request), spec_,
        [self = this->shared_from_this(), large](absl::Status status,
                                                 typename M::Response& response) {
          if (large && absl::IsNotFound(status) && !std::exchange(self->again_, true)) {
            self->Start();
          } else {
            self->done_(std::move(status), response);
          }
        });
  }

  const std::shared_ptr<GroupSession> session_;
  const M& method_;                    // a constant of methods.h
  const typename M::Request request_;  // without its payload
  const CallSpec spec_;
  const std::string object_;
  const Done done_;
  bool again_ = false;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_PROCESS_GROUP_PAYLOAD_TRANSFER_H_
