#include "coordinator/group_log.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/text/logging.h"

namespace cohort::coordinator {
namespace {

LogLevel LevelOf(EventKind kind) {
  switch (kind) {
    case EventKind::kLost:
    case EventKind::kBroken:
    case EventKind::kErrorReported:
    case EventKind::kSuspected:
    case EventKind::kViewRefused:
      return LogLevel::kWarning;
    case EventKind::kJoined:
    case EventKind::kCandidate:
    case EventKind::kDraining:
      return LogLevel::kDebug;
    default:
      return LogLevel::kInfo;
  }
}

}  // namespace

void GroupLog::OnGroupEvent(const GroupKey& key, const GroupEvent& event) {
  next_.OnGroupEvent(key, event);
  const std::string message = absl::StrCat("group ", EventKindName(event.kind));
  Log(LevelOf(event.kind), message,
      {{"tenant", key.tenant},
       {"group", key.group},
       {"generation", event.generation},
       {"member", event.member},
       {"rank", event.rank.value_or(-1)},
       {"cause", event.cause.empty() ? std::string() : event.cause.ToString()}});
}

void GroupLog::OnAsleep(absl::Duration asleep) {
  next_.OnAsleep(asleep);
  Log(LogLevel::kWarning, "the coordinator did not run; leases are extended by that time",
      {{"seconds", absl::StrCat(absl::ToDoubleSeconds(asleep))}});
}

}  // namespace cohort::coordinator
