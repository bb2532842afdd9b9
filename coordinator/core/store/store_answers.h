// Helpers that the files of the store share.
#ifndef COHORT_COORDINATOR_CORE_STORE_STORE_ANSWERS_H_
#define COHORT_COORDINATOR_CORE_STORE_STORE_ANSWERS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "coordinator/core/store/store.h"

namespace cohort::coordinator {

inline absl::Status OverLimit(absl::string_view limit, int64_t value, absl::string_view current) {
  return absl::ResourceExhaustedError(
      absl::StrCat("the limit ", limit, " is ", value, ": ", current));
}

// The fingerprint of a request that may be repeated; 0: it has no operation id.
template <typename C>
uint64_t FingerprintOf(const Caller& caller, const C& call) {
  return caller.operation_id.empty() ? 0 : Fingerprint(call);
}

template <typename R>
void Store::AnswerFirst(Step& step, CallId id, const Caller& caller, uint64_t fingerprint,
                        R answer) {
  operations_.Remember(step, key_, caller.operation_id, fingerprint, answer, shard_.limits);
  step.Answer(id, std::move(answer));
}

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_STORE_STORE_ANSWERS_H_
