// Connections of a process that forks.
//
// A child of fork() has copies of its parent's descriptors. If the parent dies, its connections stay
// open for as long as the child lives, and their peers do not notice the death. So a connection by
// which others watch this process is closed in each child.
#ifndef COHORT_BASE_FORK_H_
#define COHORT_BASE_FORK_H_

namespace cohort {

// In each later child of fork(), `fd` is no socket any more, but /dev/null: the child keeps the
// number, which objects of the parent's copy may still close. Does nothing for other files than
// sockets. When the socket is closed, its number may be used again by any file. Thread-safe.
//
// Children by vfork and posix_spawn need no care: the descriptors end with exec.
void CloseInChildren(int fd);

}  // namespace cohort

#endif  // COHORT_BASE_FORK_H_
