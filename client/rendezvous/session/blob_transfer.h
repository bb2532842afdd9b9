// Values that are too large for a call: uploaded before it, downloaded after it, in parts, with a
// checksum.
#ifndef COHORT_CLIENT_RENDEZVOUS_SESSION_BLOB_TRANSFER_H_
#define COHORT_CLIENT_RENDEZVOUS_SESSION_BLOB_TRANSFER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/rendezvous/session/group_session.h"

namespace cohort::client {

inline constexpr int64_t kMaxPartBytes = 1 << 20;

// As zlib's crc32, of all bytes behind those of which `before` is the crc32.
uint32_t Crc32(absl::string_view bytes, uint32_t before = 0);

// Each repeats its attempts while the coordinator is away, until `deadline`. `done` runs once, on a
// thread of the library. After a break, an upload begins anew and a download continues. DATA_LOSS:
// the size or the checksum differs from the reference.
void UploadBlob(std::shared_ptr<GroupSession> session, std::shared_ptr<const std::string> bytes,
                Instant deadline, std::function<void(absl::StatusOr<v1::BlobRef>)> done);
void DownloadBlob(std::shared_ptr<GroupSession> session, const v1::BlobRef& blob, Instant deadline,
                  std::function<void(absl::StatusOr<std::string>)> done);

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_SESSION_BLOB_TRANSFER_H_
