// Parses JSON objects whose writer may have made a mistake, or attacks.
#ifndef COHORT_BASE_ACCESS_JSON_FIELDS_H_
#define COHORT_BASE_ACCESS_JSON_FIELDS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace cohort {

inline constexpr size_t kMaxJsonDepth = 16;

// An object of at most kMaxJsonDepth levels, each with different keys. Two readers may take
// different ones of two equal keys. Errors: INVALID_ARGUMENT, a text such as "is not JSON".
absl::StatusOr<nlohmann::json> ParseStrictJson(absl::string_view text);

// A field of an object; empty: it is missing or no text.
std::string TextField(const nlohmann::json& object, const char* name);

// INVALID_ARGUMENT if `object` is no object or has other fields than these.
absl::Status CheckFields(const nlohmann::json& object, const std::vector<absl::string_view>& names);

}  // namespace cohort

#endif  // COHORT_BASE_ACCESS_JSON_FIELDS_H_
