#include "base/rpc/random_bits.h"

#include <sys/random.h>

namespace cohort {

namespace {

// Up to 256 bytes come whole once the kernel's pool is ready, which it is before any daemon starts;
// a signal may interrupt the wait for it.
void Fill(void* bytes, size_t size) {
  while (getrandom(bytes, size, 0) != static_cast<ssize_t>(size)) {
  }
}

}  // namespace

Id128 RandomBits() {
  Id128 bits;
  while (bits.empty()) Fill(&bits, sizeof(bits));
  return bits;
}

int64_t RandomNumbers::Next() {
  if (left_ == 0) {
    Fill(words_.data(), sizeof(words_));
    left_ = words_.size();
  }
  const int64_t number = static_cast<int64_t>(words_[--left_] >> 1);
  return number == 0 ? Next() : number;
}

}  // namespace cohort
