// The port on which a socket's connection was accepted.
#ifndef COHORT_BASE_PORT_SOCKET_LOCAL_PORT_H_
#define COHORT_BASE_PORT_SOCKET_LOCAL_PORT_H_

namespace cohort {

// 0: a Unix socket.
int LocalPortOf(int fd);

}  // namespace cohort

#endif  // COHORT_BASE_PORT_SOCKET_LOCAL_PORT_H_
