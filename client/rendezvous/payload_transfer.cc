#include "client/rendezvous/payload_transfer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"

namespace cohort::client {
namespace {

// Waits for what `start` starts. Transfers end by their own deadline.
template <typename T>
absl::StatusOr<T> Await(const std::function<void(std::function<void(absl::StatusOr<T>)>)>& start) {
  struct Answer {
    absl::Notification here;
    absl::StatusOr<T> value;
  };
  auto answer = std::make_shared<Answer>();
  start([answer](absl::StatusOr<T> value) {
    answer->value = std::move(value);
    answer->here.Notify();
  });
  answer->here.WaitForNotification();
  return std::move(answer->value);
}

absl::StatusOr<std::vector<std::string>> CutValues(const std::string& bytes,
                                                   const std::vector<int64_t>& sizes) {
  std::vector<std::string> values;
  values.reserve(sizes.size());
  size_t offset = 0;
  for (const int64_t size : sizes) {
    if (size < 0 || static_cast<size_t>(size) > bytes.size() - offset) {
      return absl::DataLossError(absl::StrCat(
          "values of ", size, " and more bytes do not fit in a blob of ", bytes.size()));
    }
    values.push_back(bytes.substr(offset, size));
    offset += size;
  }
  if (offset != bytes.size()) {
    return absl::DataLossError(
        absl::StrCat("values end at ", offset, " of a blob of ", bytes.size(), " bytes"));
  }
  return values;
}

}  // namespace

void PackPayloadAsync(const std::shared_ptr<GroupSession>& session, absl::string_view object,
                      Instant deadline, std::function<void(absl::StatusOr<v1::Payload>)> done) {
  if (static_cast<int64_t>(object.size()) <= kMaxInlineBytes) {
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
                       Instant deadline,
                       std::function<void(absl::StatusOr<std::vector<std::string>>)> done) {
  if (!values.has_blob()) {
    std::vector<std::string> result;
    result.reserve(values.inline__size());
    for (std::string& value : *values.mutable_inline_()) result.push_back(std::move(value));
    done(std::move(result));
    return;
  }
  DownloadBlob(session, values.blob(), deadline,
               [done = std::move(done), sizes = std::vector<int64_t>(values.sizes_bytes().begin(),
                                                                     values.sizes_bytes().end())](
                   absl::StatusOr<std::string> bytes) {
                 if (!bytes.ok()) {
                   done(bytes.status());
                 } else {
                   done(CutValues(*bytes, sizes));
                 }
               });
}

absl::Status PackPayload(const std::shared_ptr<GroupSession>& session, absl::string_view object,
                         Instant deadline, v1::Payload* payload) {
  if (static_cast<int64_t>(object.size()) <= kMaxInlineBytes) {
    payload->set_inline_(object.data(), object.size());
    return absl::OkStatus();
  }
  COHORT_ASSIGN_OR_RETURN(*payload, Await<v1::Payload>([&](auto done) {
    PackPayloadAsync(session, object, deadline, std::move(done));
  }));
  return absl::OkStatus();
}

absl::Status PackValues(const std::shared_ptr<GroupSession>& session,
                        const std::vector<std::string>& objects, Instant deadline,
                        v1::Values* values) {
  int64_t total = 0;
  for (const std::string& object : objects) total += static_cast<int64_t>(object.size());
  if (total <= kMaxInlineBytes) {
    for (const std::string& object : objects) values->add_inline_(object);
    return absl::OkStatus();
  }
  auto joined = std::make_shared<std::string>();
  joined->reserve(total);
  for (const std::string& object : objects) {
    joined->append(object);
    values->add_sizes_bytes(static_cast<int64_t>(object.size()));
  }
  COHORT_ASSIGN_OR_RETURN(*values->mutable_blob(), Await<v1::BlobRef>([&](auto done) {
    UploadBlob(session, joined, deadline, std::move(done));
  }));
  return absl::OkStatus();
}

absl::StatusOr<std::string> UnpackPayload(const std::shared_ptr<GroupSession>& session,
                                          v1::Payload& payload, Instant deadline) {
  if (!payload.has_blob()) return std::move(*payload.mutable_inline_());
  return Await<std::string>(
      [&](auto done) { DownloadBlob(session, payload.blob(), deadline, std::move(done)); });
}

absl::StatusOr<std::vector<std::string>> UnpackValues(const std::shared_ptr<GroupSession>& session,
                                                      v1::Values& values, Instant deadline) {
  return Await<std::vector<std::string>>(
      [&](auto done) { UnpackValuesAsync(session, values, deadline, std::move(done)); });
}

}  // namespace cohort::client
