// Encodes the state machine's replies to the bytes of the messages in proto/cohort/v1.
#ifndef COHORT_COORDINATOR_SERVICE_CODEC_ENCODE_H_
#define COHORT_COORDINATOR_SERVICE_CODEC_ENCODE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/id128.h"
#include "coordinator/core/interface/limits.h"
#include "coordinator/core/interface/reply.h"
#include "coordinator/core/interface/tenant_accounts.h"
#include "coordinator/core/interface/types.h"
#include "coordinator/service/codec/message_bytes.h"
#include "coordinator/service/codec/outgoing_blobs.h"

namespace cohort::coordinator {

// The object that was serialised last. Replies that share a RoundEnd or a member list then
// serialise it once. Each batch of replies has one cache, confined to the thread that delivers the
// batch.
struct EncodeCache {
  std::shared_ptr<const void>
      source;  // of `first` and `second`; held so that its address is not reused
  std::shared_ptr<const std::string> first;
  std::shared_ptr<const std::string> second;
};

struct EncodeContext {
  Instant now;
  int64_t server_incarnation = 0;
  bool draining = false;
  int64_t max_inline_bytes = 0;
  int64_t max_message_bytes = 0;
  int64_t max_blob_bytes = 0;
  // The caller, which owns the blobs that the answer refers to.
  const GroupKey* key = nullptr;
  Id128 session;
  int page_size = 0;  // of the ListGroups request
  OutgoingBlobs* blobs = nullptr;
  EncodeCache* cache = nullptr;
  // Bytes that many answers share are charged to the caller's tenant until the last of them has been
  // sent. Null: they are not charged.
  TenantAccounts* tenants = nullptr;
  const Limits* limits = nullptr;
};

// Makes the response message of an OK reply. Errors: RESOURCE_EXHAUSTED (an answer over the message
// limit, or bytes shared with other answers over max_bytes_held or max_tenant_bytes_held).
absl::Status Encode(const Reply& reply, const EncodeContext& context, MessageBytes* message);

// Makes the status of a failed reply, with its context as ErrorDetails.
absl::Status EncodeStatus(const Reply& reply, Instant now);

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_CODEC_ENCODE_H_
