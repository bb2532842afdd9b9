#include "base/peer_user.h"

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace cohort {
namespace {

constexpr uint64_t kUserIds = 0xffffffff;
constexpr uid_t kDefaultOverflow = 65534;

std::string TextOf(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

const std::string& UidMap() {
  static const auto* const uid_map = new std::string(TextOf("/proc/self/uid_map"));
  return *uid_map;
}

}  // namespace

bool IsOneUser(uid_t user, const std::string& uid_map, const std::string& overflow_uid) {
  uid_t overflow = kDefaultOverflow;
  std::istringstream(overflow_uid) >> overflow;
  if (user != overflow) return true;
  // Each line: the first id inside, the first id outside, how many.
  uint64_t mapped = 0;
  std::istringstream lines(uid_map);
  for (uint64_t inside, outside, count; lines >> inside >> outside >> count;) mapped += count;
  return mapped >= kUserIds;
}

bool IsOneUser(uid_t user) {
  static const auto* const overflow = new std::string(TextOf("/proc/sys/kernel/overflowuid"));
  return IsOneUser(user, UidMap(), *overflow);
}

uint64_t UserOutside(uid_t user, const std::string& uid_map) {
  // Each line: the first id inside, the first id outside, how many.
  std::istringstream lines(uid_map);
  for (uint64_t inside, outside, count; lines >> inside >> outside >> count;) {
    if (user >= inside && user - inside < count) return outside + (user - inside);
  }
  return user;
}

uint64_t UserOutside() { return UserOutside(geteuid(), UidMap()); }

std::string NameOfUser(uid_t user) {
  return IsOneUser(user) ? "user " + std::to_string(user)
                         : "a user whom this user namespace does not map";
}

bool IsThisUser(uid_t user) { return user == geteuid() && IsOneUser(user); }

}  // namespace cohort
