#include "base/group_report.h"

namespace cohort {

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

}  // namespace cohort
