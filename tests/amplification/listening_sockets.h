// The sockets at which a process listens, as the kernel knows them.
#ifndef COHORT_TESTS_AMPLIFICATION_LISTENING_SOCKETS_H_
#define COHORT_TESTS_AMPLIFICATION_LISTENING_SOCKETS_H_

#include <sys/types.h>

#include <set>
#include <string>

namespace cohort::amplification {

// "port 7700" for TCP; the path of a Unix socket, or "@" and a name that has no file.
std::set<std::string> ListeningSockets(pid_t pid);

}  // namespace cohort::amplification

#endif  // COHORT_TESTS_AMPLIFICATION_LISTENING_SOCKETS_H_
