// Which users of other processes this process can tell apart.
#ifndef COHORT_BASE_PEER_USER_H_
#define COHORT_BASE_PEER_USER_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace cohort {

// Whether `user`, as the kernel reports it of a socket's peer, is one user. In a user namespace all
// users that it does not map have one number, the overflow user id (65534).
bool IsOneUser(uid_t user);

// Whether it is the user of this process.
bool IsThisUser(uid_t user);

// The number of this process's user outside of its user namespace. Namespaces may call different
// users by one number; outside, their numbers differ.
uint64_t UserOutside();

// Such as: user 1000.
std::string NameOfUser(uid_t user);

// For tests: the answers for other contents of /proc/self/uid_map and
// /proc/sys/kernel/overflowuid.
bool IsOneUser(uid_t user, const std::string& uid_map, const std::string& overflow_uid);
uint64_t UserOutside(uid_t user, const std::string& uid_map);

}  // namespace cohort

#endif  // COHORT_BASE_PEER_USER_H_
