// What the files of the store share.
#ifndef COHORT_COORDINATOR_CORE_STORE_INTERNAL_H_
#define COHORT_COORDINATOR_CORE_STORE_INTERNAL_H_

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "coordinator/core/store.h"

namespace cohort::coordinator {

inline absl::Status OverLimit(absl::string_view limit, int64_t value, absl::string_view current) {
  return absl::ResourceExhaustedError(
      absl::StrCat("the limit ", limit, " is ", value, ": ", current));
}

inline absl::Status UsedForAnotherCall() {
  return absl::InvalidArgumentError("operation id was used for another call");
}

template <typename R>
bool Store::Repeated(Step& step, CallId id, const Caller& caller) const {
  const ReplyBody* first = operations_.Find(caller.operation_id);
  if (first == nullptr) return false;
  if (std::holds_alternative<R>(*first)) {
    step.Answer(id, *first);
  } else {
    step.Fail(id, UsedForAnotherCall());
  }
  return true;
}

template <typename R>
void Store::AnswerFirst(Step& step, CallId id, const Caller& caller, R answer) {
  operations_.Remember(step, key_, caller.operation_id, answer, shard_.limits);
  step.Answer(id, std::move(answer));
}

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_STORE_INTERNAL_H_
