// The roles that a peer may have in a tenant.
#ifndef COHORT_BASE_ACCESS_ROLE_H_
#define COHORT_BASE_ACCESS_ROLE_H_

#include <array>
#include <optional>

#include "absl/strings/string_view.h"

namespace cohort {

// Each role may do what those before it may.
enum class Role {
  kNone,
  kObserver,  // reads
  kMember,    // joins groups, and writes
  kOperator,  // evicts members, drains, changes limits
};

inline constexpr std::array<const char*, 4> kRoleNames = {"none", "observer", "member", "operator"};

inline const char* RoleName(Role role) { return kRoleNames[static_cast<size_t>(role)]; }

// Nothing: there is no such role.
inline std::optional<Role> ParseRole(absl::string_view name) {
  for (size_t i = 0; i < kRoleNames.size(); ++i) {
    if (name == kRoleNames[i]) return static_cast<Role>(i);
  }
  return std::nullopt;
}

}  // namespace cohort

#endif  // COHORT_BASE_ACCESS_ROLE_H_
