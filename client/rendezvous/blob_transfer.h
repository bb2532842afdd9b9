// Values too large to travel inside a call: uploaded before it, downloaded after it, in parts,
// checked.
#ifndef COHORT_CLIENT_RENDEZVOUS_BLOB_TRANSFER_H_
#define COHORT_CLIENT_RENDEZVOUS_BLOB_TRANSFER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/rendezvous/group_session.h"

namespace cohort::client {

// The coordinator's max_inline_bytes.
inline constexpr int64_t kMaxInlineBytes = 1 << 20;
inline constexpr int64_t kMaxPartBytes = 1 << 20;

// As zlib's crc32 of all bytes.
uint32_t Crc32(absl::string_view bytes);

// Each repeats itself while the coordinator is away, until `deadline`; `done` runs once, on a
// thread of the library. An upload begins anew after a break; a download goes on where it stopped.
//   DATA_LOSS: size or checksum are not what the reference says.
void UploadBlob(std::shared_ptr<GroupSession> session, std::shared_ptr<const std::string> bytes,
                Instant deadline, std::function<void(absl::StatusOr<v1::BlobRef>)> done);
void DownloadBlob(std::shared_ptr<GroupSession> session, const v1::BlobRef& blob, Instant deadline,
                  std::function<void(absl::StatusOr<std::string>)> done);

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_BLOB_TRANSFER_H_
