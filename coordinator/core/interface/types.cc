#include "coordinator/core/interface/types.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace cohort::coordinator {
namespace {

const char* What(CauseKind kind) {
  switch (kind) {
    case CauseKind::kNone:
      return "ended";
    case CauseKind::kLeaseExpired:
      return "was lost: its lease expired";
    case CauseKind::kConnectionLost:
      return "was lost: its connection broke";
    case CauseKind::kEvicted:
      return "was evicted";
    case CauseKind::kReplaced:
      return "was replaced by a newer incarnation";
    case CauseKind::kLeft:
      return "left";
    case CauseKind::kReported:
      return "reported a fatal error";
    case CauseKind::kNoProgress:
      return "was lost: alive, but it made no progress";
    case CauseKind::kViewChanged:
      return "changed the view";
    case CauseKind::kClosed:
      return "closed the group";
    case CauseKind::kStaleGeneration:
      return "belongs to an older generation";
  }
  return "ended";
}

}  // namespace

std::string CutText(const std::string& text, size_t max_bytes) {
  size_t end = std::min(max_bytes, text.size());
  while (end > 0 && end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
    --end;
  }
  return text.substr(0, end);
}

std::string Cause::Culprit() const {
  if (member.empty()) return "";
  std::string text = absl::StrCat("member ", member);
  if (rank.has_value()) absl::StrAppend(&text, " (rank ", *rank, ")");
  if (!host.empty()) absl::StrAppend(&text, " on ", host);
  return text;
}

std::string Cause::ToString() const {
  std::string text = absl::StrCat("generation ", generation, ": ", Culprit(),
                                  member.empty() ? "" : " ", What(kind));
  if (!detail.empty()) absl::StrAppend(&text, ": ", CutText(detail, 512));
  return text;
}

const char* RoundKindName(RoundKind kind) {
  switch (kind) {
    case RoundKind::kBarrier:
      return "barrier";
    case RoundKind::kAllGather:
      return "all_gather";
    case RoundKind::kGather:
      return "gather";
    case RoundKind::kBroadcast:
      return "broadcast";
    case RoundKind::kScatter:
      return "scatter";
    case RoundKind::kVote:
      return "vote";
    case RoundKind::kAgreeAlive:
      return "agree_alive";
  }
  return "round";
}

const char* InitPhaseName(InitPhase phase) {
  switch (phase) {
    case InitPhase::kGotId:
      return "got_id";
    case InitPhase::kCallingInit:
      return "calling_init";
    case InitPhase::kDone:
      return "done";
    case InitPhase::kFailed:
      return "failed";
  }
  return "unknown";
}

}  // namespace cohort::coordinator
