// The form in which a bearer token is known to a server.
#ifndef COHORT_BASE_ACCESS_TOKEN_HASH_H_
#define COHORT_BASE_ACCESS_TOKEN_HASH_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace cohort {

inline constexpr size_t kTokenHashBytes = 32;

// SHA-256, in kTokenHashBytes bytes. A token is random, so it needs no salt.
std::string HashToken(absl::string_view token);

}  // namespace cohort

#endif  // COHORT_BASE_ACCESS_TOKEN_HASH_H_
