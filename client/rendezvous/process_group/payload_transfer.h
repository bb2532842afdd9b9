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
void PackValuesAsync(const std::shared_ptr<GroupSession>& session,
                     const std::vector<std::string>& objects, Instant deadline,
                     std::function<void(absl::StatusOr<v1::Values>)> done);
void UnpackPayloadAsync(const std::shared_ptr<GroupSession>& session, v1::Payload& payload,
                        Instant deadline, std::function<void(absl::StatusOr<std::string>)> done);
void UnpackValuesAsync(const std::shared_ptr<GroupSession>& session, v1::Values& values,
                       Instant deadline, std::function<void(absl::StatusOr<ObjectList>)> done);

// One of the two forms: `then` runs in the call, or later on a thread of the library.
template <typename Then>
void Unpack(CallMode mode, const std::shared_ptr<GroupSession>& session, v1::Payload& payload,
            Instant deadline, Then then) {
  if (mode == CallMode::kAsync) return UnpackPayloadAsync(session, payload, deadline, std::move(then));
  then(UnpackPayload(session, payload, deadline));
}
template <typename Then>
void Unpack(CallMode mode, const std::shared_ptr<GroupSession>& session, v1::Values& values,
            Instant deadline, Then then) {
  if (mode == CallMode::kAsync) return UnpackValuesAsync(session, values, deadline, std::move(then));
  then(UnpackValues(session, values, deadline));
}

// A value of a request. `Packed` is its message.
struct ObjectValue {
  using Packed = v1::Payload;
  using Kept = std::string;
  absl::string_view object;

  Kept Keep() const { return std::string(object); }
  absl::Status Pack(const std::shared_ptr<GroupSession>& session, Instant deadline,
                    Packed* packed) const {
    return PackPayload(session, object, deadline, packed);
  }
  static void PackAsync(const std::shared_ptr<GroupSession>& session, const Kept& kept,
                        Instant deadline, std::function<void(absl::StatusOr<Packed>)> done) {
    PackPayloadAsync(session, kept, deadline, std::move(done));
  }
  template <typename Request>
  static Packed* In(Request& request) {
    return request.mutable_payload();
  }
};
struct ListValue {
  using Packed = v1::Values;
  using Kept = std::vector<std::string>;
  const std::vector<std::string>& objects;

  Kept Keep() const { return objects; }
  absl::Status Pack(const std::shared_ptr<GroupSession>& session, Instant deadline,
                    Packed* packed) const {
    return PackValues(session, objects, deadline, packed);
  }
  static void PackAsync(const std::shared_ptr<GroupSession>& session, const Kept& kept,
                        Instant deadline, std::function<void(absl::StatusOr<Packed>)> done) {
    PackValuesAsync(session, kept, deadline, std::move(done));
  }
  template <typename Request>
  static Packed* In(Request& request) {
    return request.mutable_values();
  }
};

// A blob lives until it is used: a call that is repeated after its first attempt acted, or after
// the coordinator was restarted, finds it gone (NOT_FOUND). So calls that bring a value pack it
// anew then, once.
template <typename V, typename M>
absl::Status CallWithValue(const std::shared_ptr<GroupSession>& session, const M& method,
                           typename M::Request& request, typename M::Response* response,
                           const CallSpec& spec, const V& value) {
  const v1::Scope scope = request.scope();
  for (bool again = false;; again = true) {
    V::In(request)->Clear();
    COHORT_RETURN_IF_ERROR(value.Pack(session, spec.deadline, V::In(request)));
    absl::Status status = session->Call(method, request, response, spec);
    if (again || !absl::IsNotFound(status) || !V::In(request)->has_blob()) return status;
    *request.mutable_scope() = scope;
    response->Clear();
  }
}

// The same without blocking.
template <typename V, typename M>
class AsyncValueCall final : public std::enable_shared_from_this<AsyncValueCall<V, M>> {
 public:
  using Done = typename AsyncCall<M>::Done;

  AsyncValueCall(std::shared_ptr<GroupSession> session, const M& method,
                 typename M::Request request, CallSpec spec, const V& value, Done done)
      : session_(std::move(session)),
        method_(method),
        request_(std::move(request)),
        spec_(std::move(spec)),
        value_(value.Keep()),
        done_(std::move(done)) {}

  void Start() {
    V::PackAsync(session_, value_, spec_.deadline,
                 [self = this->shared_from_this()](absl::StatusOr<typename V::Packed> packed) {
                   self->OnPacked(std::move(packed));
                 });
  }

 private:
  void OnPacked(absl::StatusOr<typename V::Packed> packed) {
    if (!packed.ok()) {
      typename M::Response none;
      done_(packed.status(), none);
      return;
    }
    const bool large = packed->has_blob();
    typename M::Request request = request_;
    *V::In(request) = *std::move(packed);
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
  const typename M::Request request_;  // without its value
  const CallSpec spec_;
  const typename V::Kept value_;
  const Done done_;
  bool again_ = false;
};

// One of the two: `then(status, response)` runs in the call, or later on a thread of the library.
template <typename V, typename M, typename Then>
void RunWithValue(CallMode mode, const std::shared_ptr<GroupSession>& session, const M& method,
                  typename M::Request request, const CallSpec& spec, const V& value, Then then) {
  if (mode == CallMode::kAsync) {
    std::make_shared<AsyncValueCall<V, M>>(session, method, std::move(request), spec, value,
                                           std::move(then))
        ->Start();
    return;
  }
  typename M::Response response;
  absl::Status status = CallWithValue(session, method, request, &response, spec, value);
  then(std::move(status), response);
}

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_PROCESS_GROUP_PAYLOAD_TRANSFER_H_
