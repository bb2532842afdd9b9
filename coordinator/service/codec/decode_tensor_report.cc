#include "coordinator/service/codec/decode_tensor_report.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "coordinator/service/codec/field_checks.h"

namespace cohort::coordinator {
namespace {

constexpr size_t kMaxCollectiveCharacters = 32;
// The coordinator keeps them for each member; a rank waits for few others at a time.
constexpr int kMaxWaitsFor = 64;

absl::Status DecodeAge(const std::string& field, const google::protobuf::Duration& message,
                       absl::Duration* age) {
  return DecodeDuration(field, message, absl::ZeroDuration(), absl::InfiniteDuration(), age);
}

// Terminals of other users show the text.
absl::Status CheckPrintable(const std::string& field, const std::string& text) {
  if (text.size() > kMaxCollectiveCharacters) {
    return InvalidField(field,
                        absl::StrCat("longer than ", kMaxCollectiveCharacters, " characters"));
  }
  if (std::all_of(text.begin(), text.end(), absl::ascii_isprint)) return absl::OkStatus();
  return InvalidField(field, "has other than printable ASCII characters");
}

absl::Status DecodeTensorOperation(absl::string_view field, const v1::TensorOperation& message,
                                   TensorOperation* operation) {
  COHORT_RETURN_IF_ERROR(CheckPrintable(absl::StrCat(field, ".collective"), message.collective()));
  COHORT_RETURN_IF_ERROR(CheckPrintable(absl::StrCat(field, ".state"), message.state()));
  COHORT_RETURN_IF_ERROR(CheckNotNegative(absl::StrCat(field, ".number"), message.number()));
  operation->generation = message.generation();
  operation->number = message.number();
  operation->collective = FindCollective(message.collective());
  operation->state = message.state();
  operation->peer = message.peer();
  COHORT_RETURN_IF_ERROR(
      DecodeAge(absl::StrCat(field, ".begun"), message.begun(), &operation->begun));
  if (!message.has_ended()) return absl::OkStatus();
  return DecodeAge(absl::StrCat(field, ".ended"), message.ended(), &operation->ended.emplace());
}

}  // namespace

absl::Status DecodeTensorReport(const v1::TensorReport& message, const DecodeContext& context,
                                TensorReport* report) {
  report->moves_tensors = message.moves_tensors();
  if (message.has_last()) {
    COHORT_RETURN_IF_ERROR(
        DecodeTensorOperation("tensors.last", message.last(), &report->last.emplace()));
  }
  if (message.has_open()) {
    COHORT_RETURN_IF_ERROR(
        DecodeTensorOperation("tensors.open", message.open(), &report->open.emplace()));
  }
  if (message.waits_for_size() > kMaxWaitsFor) {
    return InvalidField("tensors.waits_for", absl::StrCat("more than ", kMaxWaitsFor, " ranges"));
  }
  return DecodeRanges("tensors.waits_for", message.waits_for(), context, &report->waits_for);
}

}  // namespace cohort::coordinator
