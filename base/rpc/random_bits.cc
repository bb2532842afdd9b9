#include "base/rpc/random_bits.h"

#include <sys/random.h>

namespace cohort {

Id128 RandomBits() {
  Id128 bits;
  // 16 bytes come whole once the kernel's pool is ready, which it is before any daemon starts; a
  // signal may interrupt the wait for it.
  while (bits.empty()) {
    if (getrandom(&bits, sizeof(bits), 0) != static_cast<ssize_t>(sizeof(bits))) bits = Id128{};
  }
  return bits;
}

}  // namespace cohort
