// Finds a secret in the output of a program, in every form in which code may have written it.
#ifndef COHORT_TESTS_SECURITY_SECRET_FORMS_H_
#define COHORT_TESTS_SECURITY_SECRET_FORMS_H_

#include <string>

#include "absl/strings/string_view.h"

namespace cohort::testing {

// The form of `secret` that `output` has: "as it is", "in hex", "in base64" or "escaped". Half of a
// secret counts, too, in the first two forms. Empty: it has none. A secret has at least 16 bytes.
std::string FormIn(absl::string_view output, absl::string_view secret);

}  // namespace cohort::testing

#endif  // COHORT_TESTS_SECURITY_SECRET_FORMS_H_
