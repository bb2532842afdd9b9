// Texts that Mailboxes and NumberedSends share.
#ifndef COHORT_COORDINATOR_CORE_EXCHANGE_MAILBOXES_TEXT_H_
#define COHORT_COORDINATOR_CORE_EXCHANGE_MAILBOXES_TEXT_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace cohort::coordinator::mailboxes_text {

inline std::string RowId(int64_t sequence) {
  return absl::StrCat(absl::Dec(sequence, absl::kZeroPad20));
}

inline std::string TagText(const std::string& tag) {
  return tag.empty() ? "" : absl::StrCat(" tag \"", tag, "\"");
}

}  // namespace cohort::coordinator::mailboxes_text

#endif  // COHORT_COORDINATOR_CORE_EXCHANGE_MAILBOXES_TEXT_H_
