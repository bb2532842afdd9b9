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

const char* CauseKindName(CauseKind kind) {
  switch (kind) {
    case CauseKind::kNone:
      return "none";
    case CauseKind::kLeaseExpired:
      return "lease_expired";
    case CauseKind::kConnectionLost:
      return "connection_lost";
    case CauseKind::kEvicted:
      return "evicted";
    case CauseKind::kReplaced:
      return "replaced";
    case CauseKind::kLeft:
      return "left";
    case CauseKind::kReported:
      return "reported";
    case CauseKind::kNoProgress:
      return "no_progress";
    case CauseKind::kViewChanged:
      return "view_changed";
    case CauseKind::kClosed:
      return "closed";
    case CauseKind::kStaleGeneration:
      return "stale_generation";
  }
  return "unknown";
}

const char* GroupStateName(GroupState state) {
  switch (state) {
    case GroupState::kForming:
      return "forming";
    case GroupState::kActive:
      return "active";
    case GroupState::kBroken:
      return "broken";
    case GroupState::kClosed:
      return "closed";
  }
  return "unknown";
}

const char* MemberStateName(MemberState state) {
  switch (state) {
    case MemberState::kJoining:
      return "joining";
    case MemberState::kActive:
      return "active";
    case MemberState::kSuspected:
      return "suspected";
    case MemberState::kLost:
      return "lost";
    case MemberState::kLeft:
      return "left";
    case MemberState::kCandidate:
      return "candidate";
  }
  return "unknown";
}

const char* EventKindName(EventKind kind) {
  switch (kind) {
    case EventKind::kJoined:
      return "joined";
    case EventKind::kSuspected:
      return "suspected";
    case EventKind::kRecovered:
      return "recovered";
    case EventKind::kLost:
      return "lost";
    case EventKind::kLeft:
      return "left";
    case EventKind::kActive:
      return "active";
    case EventKind::kBroken:
      return "broken";
    case EventKind::kViewProposed:
      return "view_proposed";
    case EventKind::kViewCommitted:
      return "view_committed";
    case EventKind::kViewRefused:
      return "view_refused";
    case EventKind::kCandidate:
      return "candidate";
    case EventKind::kDraining:
      return "draining";
    case EventKind::kClosed:
      return "closed";
    case EventKind::kErrorReported:
      return "error_reported";
  }
  return "unknown";
}

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
