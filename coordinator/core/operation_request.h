// What a request asks, told apart from other requests: an operation id that comes with another one
// is a mistake of the caller, which gets an error in place of an answer to something else.
#ifndef COHORT_COORDINATOR_CORE_OPERATION_REQUEST_H_
#define COHORT_COORDINATOR_CORE_OPERATION_REQUEST_H_

#include <cstdint>
#include <string>

#include "coordinator/core/call.h"

namespace cohort::coordinator {

// A number that repeats of one request share and that different requests do not share, except by a
// chance of 2^-64; never 0. Times are left out, because a repeat may bring what is left of them; so
// is the content of a blob, which the first call used up. Journals keep these numbers: a change
// here refuses the repeats that cross an upgrade.
uint64_t Fingerprint(const CancelRoundCall& call);
uint64_t Fingerprint(const SendCall& call);
uint64_t Fingerprint(const ExpireCall& call);
uint64_t Fingerprint(const ProposeViewCall& call);
uint64_t Fingerprint(const PutCall& call);
uint64_t Fingerprint(const DeleteCall& call);
uint64_t Fingerprint(const AddCall& call);
uint64_t Fingerprint(const AppendCall& call);
uint64_t Fingerprint(const QueuePushCall& call);

// Such as: put of key "a" (3 bytes). At most 300 bytes.
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

#endif  // COHORT_COORDINATOR_CORE_OPERATION_REQUEST_H_
