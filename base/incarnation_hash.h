// The number by which clients tell the incarnations of a member apart.
#ifndef COHORT_BASE_INCARNATION_HASH_H_
#define COHORT_BASE_INCARNATION_HASH_H_

#include <cstdint>

namespace cohort {

// A client that knows an incarnation can join as that member, so answers have this in its place:
// the first 8 bytes of the SHA-256 of its 8 bytes, both in the order of little-endian machines, without
// the sign. 0 stays 0.
int64_t IncarnationHash(int64_t incarnation);

}  // namespace cohort

#endif  // COHORT_BASE_INCARNATION_HASH_H_
