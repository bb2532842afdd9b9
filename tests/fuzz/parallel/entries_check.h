// Bytes that another rank may send in place of a tensor map:
// client/parallel/tensor_map/entries/entries.h.
#ifndef COHORT_TESTS_FUZZ_PARALLEL_ENTRIES_CHECK_H_
#define COHORT_TESTS_FUZZ_PARALLEL_ENTRIES_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cohort::parallel::fuzz {

// An input: the entries of a map, and the bytes of a value without tensors.
//
// Errors: INTERNAL names the violated rule. Bytes are refused with INVALID_ARGUMENT or
// RESOURCE_EXHAUSTED and a text that can travel. Otherwise the map keeps the limits, encodes, and
// its encoding decodes to the same. `accepted` (may be null): whether the bytes were a map.
absl::Status CheckEntries(absl::string_view input, bool* accepted = nullptr);

std::vector<std::string> SampleEntries();

}  // namespace cohort::parallel::fuzz

#endif  // COHORT_TESTS_FUZZ_PARALLEL_ENTRIES_CHECK_H_
