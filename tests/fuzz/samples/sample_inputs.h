// The seed corpus, as code: at least one input for every method, with correct values and values
// that no honest client sends.
#ifndef COHORT_TESTS_FUZZ_SAMPLES_SAMPLE_INPUTS_H_
#define COHORT_TESTS_FUZZ_SAMPLES_SAMPLE_INPUTS_H_

#include <map>
#include <string>

namespace cohort::coordinator::fuzz {

// File name to input, for decode_fuzz and for request_fuzz.
std::map<std::string, std::string> SampleDecodeInputs();
std::map<std::string, std::string> SampleRequestInputs();

}  // namespace cohort::coordinator::fuzz

#endif  // COHORT_TESTS_FUZZ_SAMPLES_SAMPLE_INPUTS_H_
