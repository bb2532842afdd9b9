// Hand-written scripts of framed RPC.
#ifndef COHORT_TESTS_FUZZ_SAMPLES_SAMPLE_FRAMED_RPC_SCRIPTS_H_
#define COHORT_TESTS_FUZZ_SAMPLES_SAMPLE_FRAMED_RPC_SCRIPTS_H_

#include <map>
#include <string>

namespace cohort::coordinator::fuzz {

// File name to input, for framed_rpc_fuzz.
std::map<std::string, std::string> SampleFramedRpcInputs();

}  // namespace cohort::coordinator::fuzz

#endif  // COHORT_TESTS_FUZZ_SAMPLES_SAMPLE_FRAMED_RPC_SCRIPTS_H_
