#include "client/rendezvous/process_group/payload_transfer.h"

#include <utility>

#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/threads/notification.h"

namespace cohort::client {
namespace {

// Waits for the transfer that `start` starts. Transfers end by their own deadline.
template <typename T>
absl::StatusOr<T> Await(const std::function<void(std::function<void(absl::StatusOr<T>)>)>& start) {
  struct Answer {
    Notification here;
    absl::StatusOr<T> value;
  };
  auto answer = std::make_shared<Answer>();
  start([answer](absl::StatusOr<T> value) {
    answer->value = std::move(value);
    answer->here.Notify();
  });
  answer->here.WaitWithTimeout(absl::InfiniteDuration());
  return std::move(answer->value);
}

}  // namespace

void PackPayloadAsync(const std::shared_ptr<GroupSession>& session, absl::string_view object,
                      Instant deadline, std::function<void(absl::StatusOr<v1::Payload>)> done) {
  if (static_cast<int64_t>(object.size()) <= session->max_inline_bytes()) {
    v1::Payload payload;
    payload.set_inline_(object.data(), object.size());
    done(std::move(payload));
    return;
  }
  UploadBlob(session, std::make_shared<const std::string>(object), deadline,
             [done = std::move(done)](absl::StatusOr<v1::BlobRef> blob) {
               if (!blob.ok()) {
                 done(blob.status());
                 return;
               }
               v1::Payload payload;
               *payload.mutable_blob() = *std::move(blob);
               done(std::move(payload));
             });
}

void UnpackPayloadAsync(const std::shared_ptr<GroupSession>& session, v1::Payload& payload,
                        Instant deadline, std::function<void(absl::StatusOr<std::string>)> done) {
  if (payload.has_blob()) {
    DownloadBlob(session, payload.blob(), deadline, std::move(done));
  } else {
    done(std::move(*payload.mutable_inline_()));
  }
}

void UnpackValuesAsync(const std::shared_ptr<GroupSession>& session, v1::Values& values,
                       Instant deadline, std::function<void(absl::StatusOr<ObjectList>)> done) {
  if (!values.has_blob()) {
    done(ObjectList::Cut(std::move(*values.mutable_inline_()), values.sizes_bytes()));
    return;
  }
  DownloadBlob(session, values.blob(), deadline,
               [done = std::move(done), sizes = std::vector<int64_t>(values.sizes_bytes().begin(),
                                                                     values.sizes_bytes().end())](
                   absl::StatusOr<std::string> bytes) {
                 if (!bytes.ok()) {
                   done(bytes.status());
                 } else {
                   done(ObjectList::Cut(*std::move(bytes), sizes));
                 }
               });
}

absl::Status PackPayload(const std::shared_ptr<GroupSession>& session, absl::string_view object,
                         Instant deadline, v1::Payload* payload) {
  if (static_cast<int64_t>(object.size()) <= session->max_inline_bytes()) {
    payload->set_inline_(object.data(), object.size());
    return absl::OkStatus();
  }
  COHORT_ASSIGN_OR_RETURN(*payload, Await<v1::Payload>([&](auto done) {
    PackPayloadAsync(session, object, deadline, std::move(done));
  }));
  return absl::OkStatus();
}

void PackValuesAsync(const std::shared_ptr<GroupSession>& session,
                     const std::vector<std::string>& objects, Instant deadline,
                     std::function<void(absl::StatusOr<v1::Values>)> done) {
  v1::Values values;
  for (const std::string& object : objects) {
    values.add_sizes_bytes(static_cast<int64_t>(object.size()));
  }
  std::string joined = absl::StrJoin(objects, "");
  if (static_cast<int64_t>(joined.size()) <= session->max_inline_bytes()) {
    values.set_inline_(std::move(joined));
    done(std::move(values));
    return;
  }
  UploadBlob(session, std::make_shared<const std::string>(std::move(joined)), deadline,
             [values, done = std::move(done)](absl::StatusOr<v1::BlobRef> blob) mutable {
               if (!blob.ok()) {
                 done(blob.status());
                 return;
               }
               *values.mutable_blob() = *std::move(blob);
               done(std::move(values));
             });
}

absl::Status PackValues(const std::shared_ptr<GroupSession>& session,
                        const std::vector<std::string>& objects, Instant deadline,
                        v1::Values* values) {
  COHORT_ASSIGN_OR_RETURN(*values, Await<v1::Values>([&](auto done) {
    PackValuesAsync(session, objects, deadline, std::move(done));
  }));
  return absl::OkStatus();
}

absl::StatusOr<std::string> UnpackPayload(const std::shared_ptr<GroupSession>& session,
                                          v1::Payload& payload, Instant deadline) {
  if (!payload.has_blob()) return std::move(*payload.mutable_inline_());
  return Await<std::string>(
      [&](auto done) { DownloadBlob(session, payload.blob(), deadline, std::move(done)); });
}

absl::StatusOr<ObjectList> UnpackValues(const std::shared_ptr<GroupSession>& session,
                                        v1::Values& values, Instant deadline) {
  return Await<ObjectList>(
      [&](auto done) { UnpackValuesAsync(session, values, deadline, std::move(done)); });
}

}  // namespace cohort::client
