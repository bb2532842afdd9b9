#include "client/rendezvous/report/report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace cohort::client {
namespace {

// Enough for a user to act on, and short enough for a status text.
constexpr int kDetailsInText = 6;
constexpr size_t kMaxRangesText = 256;
constexpr size_t kMaxReportText = 1000;
constexpr size_t kMaxAwayDetail = 200;

std::string Seconds(absl::Duration duration) {
  return absl::StrFormat("%.1fs", absl::ToDoubleSeconds(duration));
}

std::string Cut(std::string text, size_t size) {
  if (text.size() <= size) return text;
  text.resize(size - 3);
  return text + "...";
}

std::string DetailText(const MissingMember& member) {
  if (member.member.empty()) return absl::StrCat("rank ", member.rank, " not taken");
  std::string text = member.member;
  if (!member.host.empty()) absl::StrAppend(&text, " on ", member.host);
  if (member.last_heard.has_value()) {
    absl::StrAppend(&text, ", last heard ", Seconds(*member.last_heard), " ago",
                    member.attached ? " (attached)" : "");
  } else {
    absl::StrAppend(&text, ", never heard");
  }
  if (!member.last_operation.empty()) {
    absl::StrAppend(&text, ", last did ", member.last_operation, " ",
                    Seconds(member.last_operation_age), " ago");
  }
  if (!member.progress_operation.empty()) {
    absl::StrAppend(&text, ", in ", member.progress_operation, " at ", member.progress, " for ",
                    Seconds(member.progress_age));
  }
  return text;
}

}  // namespace

std::string ToString(const MissingReport& report) {
  if (report.expected_count == 0) return "the missing ranks are not known";
  const int missing_count = std::max(report.expected_count - report.arrived_count, 0);
  std::string text = absl::StrCat(missing_count, " of ", report.expected_count, " missing");
  if (!report.missing.empty()) {
    absl::StrAppend(&text, ": ", Cut(NameRanks(report.missing), kMaxRangesText));
  }
  if (!report.details.empty()) {
    const int shown = std::min<int>(kDetailsInText, static_cast<int>(report.details.size()));
    absl::string_view separator = " (";
    for (int i = 0; i < shown; ++i) {
      absl::StrAppend(&text, separator, DetailText(report.details[i]));
      separator = "; ";
    }
    absl::StrAppend(&text, shown < missing_count ? "; ...)" : ")");
  }
  return Cut(std::move(text), kMaxReportText);
}

std::string ToString(const AwayReport& report) {
  const std::string coordinator = absl::StrCat("the coordinator at ", report.address);
  if (report.kind == AwayKind::kDraining) return absl::StrCat(coordinator, " is draining");
  return absl::StrCat(
      coordinator, report.kind == AwayKind::kSilent ? " does not answer" : " cannot be reached",
      report.detail.empty() ? "" : absl::StrCat(" (", Cut(report.detail, kMaxAwayDetail), ")"));
}

}  // namespace cohort::client
