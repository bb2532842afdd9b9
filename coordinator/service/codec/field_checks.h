// Checks of single fields. Every error names the field, and the name and value of a limit.
#ifndef COHORT_COORDINATOR_SERVICE_CODEC_FIELD_CHECKS_H_
#define COHORT_COORDINATOR_SERVICE_CODEC_FIELD_CHECKS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/id128.h"
#include "base/rank_set.h"
#include "cohort/v1/common.pb.h"
#include "coordinator/core/interface/call.h"
#include "coordinator/service/codec/decode_context.h"
#include "google/protobuf/duration.pb.h"

namespace cohort::coordinator {

inline constexpr size_t kMaxNameBytes = 128;
inline constexpr size_t kMaxKeyBytes = 1024;
inline constexpr size_t kMaxReasonCharacters = 512;
inline constexpr size_t kMaxDigestBytes = 64;
inline constexpr int kMaxAcknowledgedReceipts = 4096;
inline constexpr int kMaxAbandonedOperations = 1024;
inline constexpr int kMaxPageSize = 1000;
inline constexpr absl::Duration kMaxExpiration = absl::Hours(24 * 365);

absl::Status InvalidField(absl::string_view field, absl::string_view why);
absl::Status OverLimit(absl::string_view field, int64_t size, absl::string_view limit, int64_t value);

// Names: 1 to 128 of [A-Za-z0-9._:/@+-].
absl::Status CheckName(absl::string_view field, absl::string_view value);
absl::Status CheckNameOrEmpty(absl::string_view field, absl::string_view value);
// Store keys: 1 to 1024 bytes without NUL; a prefix may be empty.
absl::Status CheckKey(absl::string_view field, absl::string_view value);
absl::Status CheckPrefix(absl::string_view field, absl::string_view value);
// Checks a caller's free text, which others see in error texts, logs and tables. Fails if it is too
// long; else makes it printable in place (base/text/printable.h).
absl::Status CleanText(absl::string_view field, std::string* text, size_t max_characters);
absl::Status CheckBytes(absl::string_view field, absl::string_view value, size_t max_bytes);
absl::Status CheckNotNegative(absl::string_view field, int64_t value);
// Checks the number of a round; 0: the next. The largest number leaves room to count on from it.
absl::Status CheckRoundNumber(absl::string_view field, int64_t value);
absl::Status CheckRank(absl::string_view field, int64_t rank, const DecodeContext& context);
// At most `max_inline_bytes`, or `max_value_bytes` for values of the store.
absl::Status CheckInlineSize(absl::string_view field, size_t size, const DecodeContext& context);
absl::Status CheckValueSize(absl::string_view field, size_t size, const DecodeContext& context);

// Empty or 16 bytes.
absl::Status DecodeId(absl::string_view field, absl::string_view bytes, Id128* id);
// Finite, well formed, min <= value <= max.
absl::Status DecodeDuration(absl::string_view field, const google::protobuf::Duration& message,
                            absl::Duration min, absl::Duration max, absl::Duration* duration);
// Sorted or not; any overlap is an error. The result is sorted.
absl::Status DecodeRanges(absl::string_view field,
                          const google::protobuf::RepeatedPtrField<v1::RankRange>& message,
                          const DecodeContext& context, std::vector<RankRange>* ranges);
// 0 becomes 100; at most 1000.
absl::Status DecodePageSize(absl::string_view field, int value, int* page_size);

// The wait of a call; absent: `fallback`. It is at most max_wait, and ends slightly before the
// caller's deadline.
absl::Status DecodeWait(bool present, const google::protobuf::Duration& message,
                        absl::Duration fallback, const DecodeContext& context,
                        absl::Duration* wait);
absl::Duration CapWait(absl::Duration wait, const DecodeContext& context);

enum class GroupName { kRequired, kOptional };
absl::Status DecodeScope(const v1::Scope& scope, GroupName group, Caller* caller);

// Moves the bytes out of `payload`.
absl::Status DecodePayload(absl::string_view field, v1::Payload& payload,
                           const DecodeContext& context, Value* value);

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_CODEC_FIELD_CHECKS_H_
