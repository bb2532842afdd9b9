// Counts the fields of a serialised message before it is parsed.
//
// A field takes one or two bytes of a message and up to a hundred of memory, so a request of a few
// MiB would cost the server a hundred MiB and a tenth of a second before it is refused.
#ifndef COHORT_BASE_RPC_FIELD_COUNT_H_
#define COHORT_BASE_RPC_FIELD_COUNT_H_

#include "absl/status/status.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/zero_copy_stream.h"

namespace cohort {

// No client needs as many in one request.
inline constexpr int kMostFields = 65536;

// Counts the fields of `bytes`, a message of `type`, with those of messages and groups in it and
// the elements of packed fields. OK also for bytes that are no such message: parsing tells. Errors:
// INVALID_ARGUMENT (more than `most`).
absl::Status CheckFieldCount(const google::protobuf::Descriptor& type,
                             google::protobuf::io::ZeroCopyInputStream* bytes,
                             int most = kMostFields);

}  // namespace cohort

#endif  // COHORT_BASE_RPC_FIELD_COUNT_H_
