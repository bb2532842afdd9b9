#include "coordinator/core/runtime/step.h"

#include <optional>
#include <utility>

namespace cohort::coordinator {

void Step::Answer(CallId id, ReplyBody body) {
  effects_.replies.push_back(Reply{id, absl::OkStatus(), nullptr, std::move(body)});
}

void Step::Fail(CallId id, absl::Status status, std::shared_ptr<const ErrorContext> context) {
  effects_.replies.push_back(Reply{id, std::move(status), std::move(context), EmptyReply{}});
}

void Step::LogEvent(const GroupKey& key, const GroupEvent& event) {
  if (effects_.wants_log_events) effects_.log_events.push_back(GroupLogEvent{key, event});
}

void Step::Write(const GroupKey& key, RecordKind kind, std::string id, RecordValue value) {
  if (!effects_.wants_records) return;
  effects_.records.push_back(Record{key, kind, std::move(id), std::move(value)});
}

void Step::Erase(const GroupKey& key, RecordKind kind, std::string id) {
  if (!effects_.wants_records) return;
  effects_.records.push_back(Record{key, kind, std::move(id), std::nullopt});
}

void Step::EraseAll(const GroupKey& key, RecordKind kind) {
  if (!effects_.wants_records) return;
  effects_.records.push_back(Record{key, kind, "", std::nullopt, true});
}

}  // namespace cohort::coordinator
