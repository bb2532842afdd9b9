// A fuzzer's input: a sequence of requests, each with its caller and manner.
//
//   input   world step*
//   world   1 byte: the group that exists when the first step begins
//   step    method (1 byte), manner (1 byte), length of the request (2 bytes, little endian),
//           request
//
// Every input is a script: too long parts are cut, and too large numbers are taken modulo.
#ifndef COHORT_TESTS_FUZZ_SCRIPTS_REQUEST_SCRIPT_H_
#define COHORT_TESTS_FUZZ_SCRIPTS_REQUEST_SCRIPT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "coordinator/service/dispatch/method_table.h"

namespace cohort::coordinator::fuzz {

// The actions of a step that are no requests. Their numbers follow those of the methods.
inline constexpr size_t kAdvanceClock = kMethodCount;      // by 2^(first byte of the request) ms
inline constexpr size_t kCancelOldest = kMethodCount + 1;  // the caller that waits longest goes
inline constexpr size_t kActionCount = kMethodCount + 2;

enum class World { kEmpty = 0, kSharedFate = 1, kReportedFate = 2, kElastic = 3 };
inline constexpr int kWorldCount = 4;

// Bits of `manner`.
inline constexpr uint8_t kCallerMask = 0x07;         // kCallers and above: not a member
inline constexpr uint8_t kRaw = 0x08;                // the bytes go out as they are
inline constexpr uint8_t kOwnGeneration = 0x10;      // scope.generation stays as the bytes have it
inline constexpr uint8_t kRepeatable = 0x20;         // one of four operation ids
inline constexpr uint8_t kTenantStore = 0x40;        // scope.group stays as the bytes have it
inline constexpr uint8_t kAcknowledgeLatest = 0x80;  // the receipt seen last rides along
inline constexpr int kCallers = 4;

struct ScriptStep {
  size_t action = 0;  // a Method, kAdvanceClock or kCancelOldest
  uint8_t manner = 0;
  std::string request;
};

struct RequestScript {
  World world = World::kEmpty;
  std::vector<ScriptStep> steps;
};

inline constexpr size_t kMaxSteps = 64;
inline constexpr size_t kMaxRequestBytes = 0xFFFF;

RequestScript ParseScript(absl::string_view input);
std::string SerializeScript(const RequestScript& script);

}  // namespace cohort::coordinator::fuzz

#endif  // COHORT_TESTS_FUZZ_SCRIPTS_REQUEST_SCRIPT_H_
