// The work for one input: its instant and its effects.
#ifndef COHORT_COORDINATOR_CORE_RUNTIME_STEP_H_
#define COHORT_COORDINATOR_CORE_RUNTIME_STEP_H_

#include <memory>
#include <string>

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

  void Answer(CallId id, ReplyBody body);
  void Fail(CallId id, absl::Status status, std::shared_ptr<const ErrorContext> context = nullptr);

  void LogEvent(const GroupKey& key, const GroupEvent& event);

  // Whether records are wanted; a caller that would copy much asks first.
  bool keeps_records() const { return effects_.wants_records; }
  void Write(const GroupKey& key, RecordKind kind, std::string id, RecordValue value);
  void Erase(const GroupKey& key, RecordKind kind, std::string id);
  void EraseAll(const GroupKey& key, RecordKind kind);

 private:
  const Instant now_;
  Effects& effects_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_RUNTIME_STEP_H_
