// The work for one input: its instant and its effects.
#ifndef COHORT_COORDINATOR_CORE_RUNTIME_STEP_H_
#define COHORT_COORDINATOR_CORE_RUNTIME_STEP_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/clock.h"
#include "coordinator/core/interface/effects.h"
#include "coordinator/core/interface/record.h"
#include "coordinator/core/interface/reply.h"

namespace cohort::coordinator {

class Step {
 public:
  Step(Instant now, Effects& effects) : now_(now), effects_(effects) {}

  Instant now() const { return now_; }

  void Answer(CallId id, ReplyBody body) {
    effects_.replies.push_back(Reply{id, absl::OkStatus(), nullptr, std::move(body)});
  }
  void Fail(CallId id, absl::Status status, std::shared_ptr<const ErrorContext> context = nullptr) {
    effects_.replies.push_back(Reply{id, std::move(status), std::move(context), EmptyReply{}});
  }

  void LogEvent(const GroupKey& key, const GroupEvent& event) {
    if (effects_.wants_log_events) effects_.log_events.push_back(GroupLogEvent{key, event});
  }

  // Whether records are wanted; a caller that would copy much asks first.
  bool keeps_records() const { return effects_.wants_records; }
  void Write(const GroupKey& key, RecordKind kind, std::string id, RecordValue value) {
    if (!effects_.wants_records) return;
    effects_.records.push_back(Record{key, kind, std::move(id), std::move(value)});
  }
  void Erase(const GroupKey& key, RecordKind kind, std::string id) {
    if (!effects_.wants_records) return;
    effects_.records.push_back(Record{key, kind, std::move(id), std::nullopt});
  }
  void EraseAll(const GroupKey& key, RecordKind kind) {
    if (!effects_.wants_records) return;
    effects_.records.push_back(Record{key, kind, "", std::nullopt, true});
  }

 private:
  const Instant now_;
  Effects& effects_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_RUNTIME_STEP_H_
