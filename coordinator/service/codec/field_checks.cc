#include "coordinator/service/codec/field_checks.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text/printable.h"

namespace cohort::coordinator {
namespace {

bool IsNameCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == ':' ||
         c == '/' || c == '@' || c == '+' || c == '-';
}

size_t CountCharacters(absl::string_view utf8) {
  return std::count_if(utf8.begin(), utf8.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

}  // namespace

absl::Status InvalidField(absl::string_view field, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", why));
}

absl::Status OverLimit(absl::string_view field, int64_t size, absl::string_view limit, int64_t value) {
  return absl::ResourceExhaustedError(
      absl::StrCat(field, " is ", size, ", over ", limit, " (", value, ")"));
}

absl::Status CheckName(absl::string_view field, absl::string_view value) {
  if (value.empty()) return InvalidField(field, "must not be empty");
  if (value.size() > kMaxNameBytes) {
    return InvalidField(field, absl::StrCat("longer than ", kMaxNameBytes, " characters"));
  }
  if (!std::all_of(value.begin(), value.end(), IsNameCharacter)) {
    return InvalidField(field, "has a character outside of [A-Za-z0-9._:/@+-]");
  }
  return absl::OkStatus();
}

absl::Status CheckNameOrEmpty(absl::string_view field, absl::string_view value) {
  return value.empty() ? absl::OkStatus() : CheckName(field, value);
}

absl::Status CheckKey(absl::string_view field, absl::string_view value) {
  if (value.empty()) return InvalidField(field, "must not be empty");
  return CheckPrefix(field, value);
}

absl::Status CheckPrefix(absl::string_view field, absl::string_view value) {
  if (value.size() > kMaxKeyBytes) {
    return InvalidField(field, absl::StrCat("longer than ", kMaxKeyBytes, " bytes"));
  }
  if (value.find('\0') != absl::string_view::npos) return InvalidField(field, "contains NUL");
  return absl::OkStatus();
}

absl::Status CleanText(absl::string_view field, std::string* text, size_t max_characters) {
  if (CountCharacters(*text) > max_characters) {
    return InvalidField(field, absl::StrCat("longer than ", max_characters, " characters"));
  }
  MakePrintable(*text);
  return absl::OkStatus();
}

absl::Status CheckBytes(absl::string_view field, absl::string_view value, size_t max_bytes) {
  if (value.size() > max_bytes) {
    return InvalidField(field, absl::StrCat("longer than ", max_bytes, " bytes"));
  }
  return absl::OkStatus();
}

absl::Status CheckNotNegative(absl::string_view field, int64_t value) {
  return value < 0 ? InvalidField(field, "must not be negative") : absl::OkStatus();
}

absl::Status CheckRoundNumber(absl::string_view field, int64_t value) {
  constexpr int64_t kLargest = int64_t{1} << 62;
  if (value < 0) return InvalidField(field, "must not be negative");
  return value > kLargest ? InvalidField(field, "is too large: no number could follow")
                          : absl::OkStatus();
}

absl::Status CheckRank(absl::string_view field, int64_t rank, const DecodeContext& context) {
  if (rank < 0) return InvalidField(field, "a rank must not be negative");
  if (rank >= context.limits.max_members) {
    return InvalidField(field, absl::StrCat("rank ", rank, " is not below max_members (",
                                            context.limits.max_members, ")"));
  }
  return absl::OkStatus();
}

absl::Status CheckInlineSize(absl::string_view field, size_t size, const DecodeContext& context) {
  // It may be the smaller one.
  if (static_cast<int64_t>(size) > context.limits.max_object_bytes) {
    return OverLimit(field, static_cast<int64_t>(size), "max_object_bytes", context.limits.max_object_bytes);
  }
  if (static_cast<int64_t>(size) > context.limits.max_inline_bytes) {
    return OverLimit(field, static_cast<int64_t>(size), "max_inline_bytes", context.limits.max_inline_bytes);
  }
  return absl::OkStatus();
}

absl::Status CheckValueSize(absl::string_view field, size_t size, const DecodeContext& context) {
  if (static_cast<int64_t>(size) > context.limits.max_value_bytes) {
    return OverLimit(field, static_cast<int64_t>(size), "max_value_bytes", context.limits.max_value_bytes);
  }
  return absl::OkStatus();
}

absl::Status DecodeId(absl::string_view field, absl::string_view bytes, Id128* id) {
  *id = Id128{};
  if (bytes.empty()) return absl::OkStatus();
  if (bytes.size() != Id128::kBytes) return InvalidField(field, "must be empty or 16 bytes");
  *id = Id128::FromBytes(bytes);
  return absl::OkStatus();
}

absl::Status DecodeDuration(absl::string_view field, const google::protobuf::Duration& message,
                            absl::Duration min, absl::Duration max, absl::Duration* duration) {
  // The bounds of google.protobuf.Duration itself: ten thousand years, and one sign.
  constexpr int64_t kMaxSeconds = 315576000000;
  const int64_t seconds = message.seconds();
  const int32_t nanos = message.nanos();
  if (seconds > kMaxSeconds || seconds < -kMaxSeconds || nanos > 999999999 || nanos < -999999999 ||
      (seconds > 0 && nanos < 0) || (seconds < 0 && nanos > 0)) {
    return InvalidField(field, "is not a valid duration");
  }
  const absl::Duration value = absl::Seconds(seconds) + absl::Nanoseconds(nanos);
  if (value < min || value > max) {
    return InvalidField(field, absl::StrCat("must be from ", absl::FormatDuration(min), " to ",
                                            absl::FormatDuration(max)));
  }
  *duration = value;
  return absl::OkStatus();
}

absl::Status DecodeRanges(absl::string_view field,
                          const google::protobuf::RepeatedPtrField<v1::RankRange>& message,
                          const DecodeContext& context, std::vector<RankRange>* ranges) {
  ranges->clear();
  if (message.size() > context.limits.max_members) {
    return InvalidField(
        field, absl::StrCat("more ranges than max_members (", context.limits.max_members, ")"));
  }
  ranges->reserve(message.size());
  for (const v1::RankRange& range : message) {
    COHORT_RETURN_IF_ERROR(CheckRank(field, range.first(), context));
    COHORT_RETURN_IF_ERROR(CheckRank(field, range.last(), context));
    if (range.first() > range.last()) {
      return InvalidField(field, absl::StrCat("range ", range.first(), "-", range.last(),
                                              " ends before it begins"));
    }
    ranges->push_back(RankRange{range.first(), range.last()});
  }
  std::sort(ranges->begin(), ranges->end(),
            [](const RankRange& a, const RankRange& b) { return a.first < b.first; });
  for (size_t i = 1; i < ranges->size(); ++i) {
    if ((*ranges)[i].first <= (*ranges)[i - 1].last) {
      return InvalidField(field, absl::StrCat("rank ", (*ranges)[i].first, " is named twice"));
    }
  }
  return absl::OkStatus();
}

absl::Status DecodePageSize(absl::string_view field, int value, int* page_size) {
  if (value < 0 || value > kMaxPageSize) {
    return InvalidField(field, absl::StrCat("must be from 0 to ", kMaxPageSize));
  }
  *page_size = value == 0 ? 100 : value;
  return absl::OkStatus();
}

absl::Duration CapWait(absl::Duration wait, const DecodeContext& context) {
  wait = std::min(wait, context.max_wait);
  if (context.time_left != absl::InfiniteDuration()) {
    const absl::Duration left = std::max(context.time_left, absl::ZeroDuration());
    const absl::Duration margin = std::max(absl::Milliseconds(5), left / 50);
    wait = std::min(wait, std::max(left - margin, left / 2));
  }
  return wait;
}

absl::Status DecodeWait(bool present, const google::protobuf::Duration& message,
                        absl::Duration fallback, const DecodeContext& context,
                        absl::Duration* wait) {
  absl::Duration asked = fallback;
  if (present) {
    COHORT_RETURN_IF_ERROR(
        DecodeDuration("wait", message, absl::ZeroDuration(), absl::InfiniteDuration(), &asked));
  }
  *wait = CapWait(asked, context);
  return absl::OkStatus();
}

absl::Status DecodeScope(const v1::Scope& scope, GroupName group, Caller* caller) {
  COHORT_RETURN_IF_ERROR(CheckNameOrEmpty("scope.tenant", scope.tenant()));
  if (group == GroupName::kRequired) {
    COHORT_RETURN_IF_ERROR(CheckName("scope.group", scope.group()));
  } else {
    COHORT_RETURN_IF_ERROR(CheckNameOrEmpty("scope.group", scope.group()));
  }
  COHORT_RETURN_IF_ERROR(CheckNotNegative("scope.generation", scope.generation()));
  COHORT_RETURN_IF_ERROR(DecodeId("scope.session", scope.session(), &caller->session));
  COHORT_RETURN_IF_ERROR(
      DecodeId("scope.operation_id", scope.operation_id(), &caller->operation_id));
  if (scope.acknowledged_receipts_size() > kMaxAcknowledgedReceipts) {
    return InvalidField("scope.acknowledged_receipts",
                        absl::StrCat("more than ", kMaxAcknowledgedReceipts));
  }
  for (const int64_t receipt : scope.acknowledged_receipts()) {
    if (receipt <= 0) return InvalidField("scope.acknowledged_receipts", "must be positive");
  }
  if (scope.abandoned_operations_size() > kMaxAbandonedOperations) {
    return InvalidField("scope.abandoned_operations",
                        absl::StrCat("more than ", kMaxAbandonedOperations));
  }
  for (const std::string& operation : scope.abandoned_operations()) {
    Id128& id = caller->abandoned.emplace_back();
    COHORT_RETURN_IF_ERROR(DecodeId("scope.abandoned_operations", operation, &id));
    if (id.empty()) return InvalidField("scope.abandoned_operations", "has an empty id");
  }
  caller->key.tenant = scope.tenant().empty() ? "default" : scope.tenant();
  caller->key.group = scope.group();
  caller->generation = scope.generation();
  caller->acknowledged.assign(scope.acknowledged_receipts().begin(),
                              scope.acknowledged_receipts().end());
  return absl::OkStatus();
}

absl::Status DecodePayload(absl::string_view field, v1::Payload& payload,
                           const DecodeContext& context, Value* value) {
  switch (payload.where_case()) {
    case v1::Payload::kInline:
      COHORT_RETURN_IF_ERROR(CheckInlineSize(field, payload.inline_().size(), context));
      value->bytes = std::move(*payload.mutable_inline_());
      value->present = true;
      return absl::OkStatus();
    case v1::Payload::kBlob:
      if (payload.blob().blob() <= 0) {
        return InvalidField(absl::StrCat(field, ".blob.blob"), "must be positive");
      }
      COHORT_RETURN_IF_ERROR(
          CheckNotNegative(absl::StrCat(field, ".blob.size_bytes"), payload.blob().size_bytes()));
      value->blob = payload.blob().blob();
      value->present = true;
      return absl::OkStatus();
    case v1::Payload::WHERE_NOT_SET:
      break;
  }
  return InvalidField(field, "needs exactly one of inline and blob");
}

}  // namespace cohort::coordinator
