// Hand-written scripts of lanes.
#ifndef COHORT_TESTS_FUZZ_SAMPLE_LANES_H_
#define COHORT_TESTS_FUZZ_SAMPLE_LANES_H_

#include <map>
#include <string>

namespace cohort::coordinator::fuzz {

// File name to input, for lane_fuzz.
std::map<std::string, std::string> SampleLaneInputs();

}  // namespace cohort::coordinator::fuzz

#endif  // COHORT_TESTS_FUZZ_SAMPLE_LANES_H_
