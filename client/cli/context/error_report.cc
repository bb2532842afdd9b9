#include "client/cli/context/error_report.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/rank_set.h"
#include "client/cli/output/format.h"

namespace cohort::cli {
namespace {

// A report belongs to the error only if the call waited in vain for members.
bool NamesMissing(const absl::Status& status, const std::optional<client::MissingReport>& missing) {
  return absl::IsDeadlineExceeded(status) && missing.has_value() && !missing->missing.empty();
}

// The coordinator's texts often name the culprit and what happened to it.
bool NamesCause(absl::string_view text, const client::Cause& cause) {
  if (cause.member.empty() && cause.detail.empty()) {
    return absl::StrContains(text, client::CauseKindName(cause.kind));
  }
  return absl::StrContains(text, cause.member) && absl::StrContains(text, cause.detail);
}

}  // namespace

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return ExitCode::kOk;
    case absl::StatusCode::kInvalidArgument:
      return ExitCode::kUsage;
    case absl::StatusCode::kDeadlineExceeded:
      return ExitCode::kMissing;
    case absl::StatusCode::kNotFound:
      return ExitCode::kNotFound;
    case absl::StatusCode::kUnavailable:
      return ExitCode::kUnavailable;
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kCancelled:
      return ExitCode::kAborted;
    case absl::StatusCode::kResourceExhausted:
      return ExitCode::kExhausted;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAlreadyExists:
      return ExitCode::kConflict;
    default:
      return ExitCode::kError;
  }
}

std::string ErrorLine(const absl::Status& status, const client::ErrorInfo& info,
                      const std::optional<client::MissingReport>& missing) {
  const std::string text = Printable(status.message());
  std::vector<std::string> context;
  if (!info.operation.empty() && !absl::StrContains(text, info.operation)) {
    context.push_back(Printable(info.operation));
  }
  if (!info.group.empty() && !absl::StrContains(text, info.group)) {
    context.push_back(absl::StrCat("group ", Printable(info.group)));
  }
  if (info.current_generation != 0 && !absl::StrContains(text, "generation")) {
    context.push_back(absl::StrCat("generation ", info.current_generation));
  }
  if (info.cause.kind != client::CauseKind::kNone && !NamesCause(text, info.cause)) {
    context.push_back(FormatCause(info.cause));
  }
  if (NamesMissing(status, missing) && !absl::StrContains(text, "missing")) {
    context.push_back(Printable(client::ToString(*missing)));
  }
  const std::string suffix =
      context.empty() ? "" : absl::StrCat(" (", absl::StrJoin(context, "; "), ")");
  return absl::StrCat(absl::StatusCodeToString(status.code()), ": ", text, suffix);
}

Json ErrorJson(const absl::Status& status, const client::ErrorInfo& info,
               const std::optional<client::MissingReport>& missing) {
  Json error = {{"code", absl::StatusCodeToString(status.code())},
                {"message", std::string(status.message())}};
  if (!info.group.empty()) error["group"] = info.group;
  if (info.current_generation != 0) error["generation"] = info.current_generation;
  if (!info.operation.empty()) error["operation"] = info.operation;
  if (info.cause.kind != client::CauseKind::kNone) error["cause"] = ToJson(info.cause);
  if (NamesMissing(status, missing)) error["missing"] = ToJson(*missing);
  Json json = Json::object();
  json["error"] = std::move(error);
  return json;
}

}  // namespace cohort::cli
