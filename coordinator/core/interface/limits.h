// Every limit of the coordinator. RESOURCE_EXHAUSTED names a limit with its name in this struct.
#ifndef COHORT_COORDINATOR_CORE_INTERFACE_LIMITS_H_
#define COHORT_COORDINATOR_CORE_INTERFACE_LIMITS_H_

#include <cstdint>

namespace cohort::coordinator {

struct Limits {
  // A limit is a total over all shards, unless its comment names a smaller unit.
  int64_t max_groups = 100000;
  int64_t max_members = 16384;                 // per group
  int64_t max_candidates = 1024;               // per group, waiting to be added to a view
  int64_t max_inline_bytes = 3 << 20;          // value of a request; values of an answer together
  int64_t max_object_bytes = 64 << 20;         // a value
  // All memory that the coordinator keeps for its callers (memory_account.h); an eighth is reserved
  // for calls that wait. The program's default is half of the memory that it may use (options.h).
  int64_t max_bytes_held = int64_t{4} << 30;
  int64_t max_group_bytes_held = int64_t{1} << 30;  // values of one group, or of a tenant's store
  // The share of one tenant. The program's default for bytes follows from max_bytes_held
  // (options.h).
  int64_t max_tenant_groups = 75000;
  int64_t max_tenant_members = 1000000;  // also those that left or were lost and keep a rank
  int64_t max_tenant_bytes_held = int64_t{3} << 30;
  int64_t max_tenant_waiters = 500000;  // calls that wait
  int64_t max_tenant_streams = 65536;   // watches, uploads and downloads
  // Above this rate the coordinator reads a tenant's connections more slowly, while other tenants
  // call. With an access policy alone.
  int64_t max_tenant_requests_per_second = 50000;
  int64_t max_mailbox_depth = 10000;           // undelivered objects per (source, destination, tag)
  int64_t max_send_window = 1024;              // held numbered sends per (source, destination, tag)
  int64_t max_ordered_mailboxes = 65536;       // per group; mailboxes with numbered sends
  int64_t max_unacknowledged = 4096;           // objects delivered to a member, not acknowledged
  int64_t max_round_names = 4096;              // per group; the longest idle one is forgotten
  int64_t max_open_rounds = 1024;              // numbers open at once under one name
  int64_t max_waiters_per_group = 262144;
  int64_t max_keys = 1000000;                  // per namespace
  int64_t max_value_bytes = 1 << 20;           // of a key or a queue entry
  int64_t max_queue_depth = 100000;
  int64_t max_event_log = 4096;                // kept for watchers, per group and per namespace
  int64_t max_operations_kept = 16384;         // first answers kept per group for repeats
  int64_t max_unique_id_names = 256;           // per generation
  int64_t max_blobs = 1024;                    // uploaded values not used yet, per group
  int64_t max_closed_names = 65536;            // closed groups with an exactly known generation
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_INTERFACE_LIMITS_H_
