// Fingerprints of requests. A caller that uses one operation id for two different requests gets an
// error, not the answer of the other request.
#ifndef COHORT_COORDINATOR_CORE_IDEMPOTENCY_REQUEST_FINGERPRINT_H_
#define COHORT_COORDINATOR_CORE_IDEMPOTENCY_REQUEST_FINGERPRINT_H_

#include <cstdint>
#include <string>

#include "coordinator/core/interface/call.h"

namespace cohort::coordinator {

// A number that the repeats of one request share. Two different requests share it with a
// probability of 2^-64. It is never 0. It does not depend on durations, because a repeat may have a
// shorter one, nor on the content of a blob, which the first call used up. Journals keep these
// numbers: after a change here, repeats of requests from before the upgrade are refused.
uint64_t Fingerprint(const CancelRoundCall& call);
uint64_t Fingerprint(const SendCall& call);
uint64_t Fingerprint(const ExpireCall& call);
uint64_t Fingerprint(const ProposeViewCall& call);
uint64_t Fingerprint(const PutCall& call);
uint64_t Fingerprint(const DeleteCall& call);
uint64_t Fingerprint(const AddCall& call);
uint64_t Fingerprint(const AppendCall& call);
uint64_t Fingerprint(const QueuePushCall& call);

// A text such as: put of key "a" (3 bytes). At most 300 bytes.
std::string DescribeRequest(const CancelRoundCall& call);
std::string DescribeRequest(const SendCall& call);
std::string DescribeRequest(const ExpireCall& call);
std::string DescribeRequest(const ProposeViewCall& call);
std::string DescribeRequest(const PutCall& call);
std::string DescribeRequest(const DeleteCall& call);
std::string DescribeRequest(const AddCall& call);
std::string DescribeRequest(const AppendCall& call);
std::string DescribeRequest(const QueuePushCall& call);

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_IDEMPOTENCY_REQUEST_FINGERPRINT_H_
