// How a call to the coordinator runs.
#ifndef COHORT_CLIENT_RENDEZVOUS_SESSION_CALL_MODE_H_
#define COHORT_CLIENT_RENDEZVOUS_SESSION_CALL_MODE_H_

namespace cohort::client {

// The continuation of a call runs in the call, or later on a thread of the library.
enum class CallMode { kBlocking, kAsync };

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_SESSION_CALL_MODE_H_
