// Turns the value of a row into bytes and back, the same for every journal that keeps bytes.
#ifndef COHORT_COORDINATOR_JOURNAL_RECORD_CODEC_H_
#define COHORT_COORDINATOR_JOURNAL_RECORD_CODEC_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/core/interface/record.h"

namespace cohort::coordinator {

// "group", "member", ...; "unknown" for a number that is not a RecordKind.
const char* RecordKindName(RecordKind kind);

// The kind of the row that holds `value`.
RecordKind KindOf(const RecordValue& value);

// The name of a row in error texts: its group, kind and id. Escapes bytes that do not print, and
// cuts a long id.
std::string DescribeRow(const GroupKey& key, RecordKind kind, absl::string_view id);

// Durations are kept in nanoseconds; those of 292 years and more become infinite. Cause::at is not
// kept.
std::string EncodeRecord(const RecordValue& value);

// Decodes any bytes. The state machine can hold every record that it accepts: enumerations are
// known, rank ranges are ordered and within kMaxRank, identifiers have their length. Payloads have
// no ledger. Errors: DATA_LOSS (EncodeRecord did not write `bytes` for a value of `kind`; says
// why).
absl::StatusOr<RecordValue> DecodeRecord(RecordKind kind, absl::string_view bytes);

// Far above Limits::max_members; keeps a damaged range from asking for a bitmap of 256 MiB.
constexpr int kMaxRank = (1 << 20) - 1;

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_JOURNAL_RECORD_CODEC_H_
