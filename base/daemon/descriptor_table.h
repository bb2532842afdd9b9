// The descriptors that a daemon may have open.
#ifndef COHORT_BASE_DAEMON_DESCRIPTOR_TABLE_H_
#define COHORT_BASE_DAEMON_DESCRIPTOR_TABLE_H_

namespace cohort {

// Raises the soft limit to the hard limit: the usual soft limit of 1024 protects programs that call
// select, which daemons do not. Then makes room for that many descriptors, or 65,536 if that is
// less, in the kernel's table (512 KiB).
//
// A daemon calls it before its first threads. Later, the kernel doubles the table by itself as
// descriptors are opened. As soon as the process has threads, it waits for all processors then
// (synchronize_rcu), up to two seconds on a busy machine, and each thread that opens a descriptor
// waits with it.
void MakeRoomForDescriptors();

}  // namespace cohort

#endif  // COHORT_BASE_DAEMON_DESCRIPTOR_TABLE_H_
