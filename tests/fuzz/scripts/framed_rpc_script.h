// The input of framed_rpc_fuzz: the bytes that a framed RPC client writes, step by step.
//
//   input   pieces step*
//   pieces  1 byte: the bytes go out in pieces of 2^(n modulo 17)
//   step    form (1 byte), call (1 byte), method (1 byte), time left (1 byte: 2^n ms, above 31:
//           for ever), length of the body (2 bytes, little endian), body
//
// Every input is a script: too long parts are cut, and too large numbers are taken modulo.
#ifndef COHORT_TESTS_FUZZ_SCRIPTS_FRAMED_RPC_SCRIPT_H_
#define COHORT_TESTS_FUZZ_SCRIPTS_FRAMED_RPC_SCRIPT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace cohort::coordinator::fuzz {

// How a step becomes bytes. Forms from kCall up to kCancel are all calls, because clients send
// mostly calls.
inline constexpr uint8_t kCallForm = 0;
inline constexpr uint8_t kCancelForm = 5;
inline constexpr uint8_t kLyingForm = 6;  // the first 4 bytes of the body are its length
inline constexpr uint8_t kBareForm = 7;   // the body alone
inline constexpr uint8_t kFormCount = 8;

struct FramedRpcStep {
  uint8_t form = kCallForm;
  uint8_t call = 0;
  uint8_t method = 0;
  uint8_t time_left = 0xFF;
  std::string body;
};

struct FramedRpcScript {
  uint8_t pieces = 16;
  std::vector<FramedRpcStep> steps;
};

inline constexpr size_t kMaxFramedRpcSteps = 64;

FramedRpcScript ParseFramedRpcScript(absl::string_view input);
std::string SerializeFramedRpcScript(const FramedRpcScript& script);

// The bytes that follow the preface.
std::string FramedRpcBytes(const FramedRpcScript& script);

}  // namespace cohort::coordinator::fuzz

#endif  // COHORT_TESTS_FUZZ_SCRIPTS_FRAMED_RPC_SCRIPT_H_
