// Fills every field of a message, also of one that is added later.
#ifndef COHORT_TESTS_FUZZ_SAMPLES_FILL_EVERY_H_
#define COHORT_TESTS_FUZZ_SAMPLES_FILL_EVERY_H_

#include <cstdint>
#include <string>

#include "google/protobuf/message.h"

namespace cohort::coordinator::fuzz {

// One kind of value in every field of a message.
struct Values {
  int64_t integer64 = 0;
  int32_t integer32 = 0;
  int enumerator = 0;
  bool flag = false;
  std::string text;
  std::string bytes;
  int repeats = 1;
};

// Also fills messages in it, down to `depth`.
void FillEvery(const Values& values, int depth, google::protobuf::Message* message);

}  // namespace cohort::coordinator::fuzz

#endif  // COHORT_TESTS_FUZZ_SAMPLES_FILL_EVERY_H_
