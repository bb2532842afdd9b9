// Hand-written scripts of calls: calls that members make, and their edge cases.
#ifndef COHORT_TESTS_FUZZ_SAMPLES_SAMPLE_SCRIPTS_H_
#define COHORT_TESTS_FUZZ_SAMPLES_SAMPLE_SCRIPTS_H_

#include <map>
#include <string>

namespace cohort::coordinator::fuzz {

// File name to input, for request_fuzz.
std::map<std::string, std::string> SampleScripts();

}  // namespace cohort::coordinator::fuzz

#endif  // COHORT_TESTS_FUZZ_SAMPLES_SAMPLE_SCRIPTS_H_
