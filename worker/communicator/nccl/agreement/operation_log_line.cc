#include "worker/communicator/nccl/agreement/operation_log_line.h"

#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/fingerprint.h"

namespace cohort::worker {

OperationLogLine LineOfReplay(int calls, uint32_t digest) {
  FlatCall call;
  call.collective = Collective::kReplay;
  call.count = calls;
  call.tag = digest;
  return LineOf(call);
}

OperationLogLine LineOfRefusal() {
  FlatCall call;
  call.collective = Collective::kFail;
  return LineOf(call);
}

bool IsRefusal(const OperationLogLine& line) {
  return CollectiveOf(line.key.collective()) == Collective::kFail;
}

OperationLogLine LineOf(const FlatCall& call) {
  OperationLogLine line;
  line.key = KeyOf(call);
  return line;
}

bool Same(const OperationLogLine& a, const OperationLogLine& b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

std::string Describe(const OperationLogLine& line) {
  if (IsRefusal(line)) return "a call with a wrong argument";
  const uint32_t which = line.registered & (kInputRegistered | kOutputRegistered);
  const char* const memory = which == 0                   ? ""
                             : which == kInputRegistered  ? ", registered input"
                             : which == kOutputRegistered ? ", registered output"
                                                          : ", registered memory";
  const uint32_t offset = line.registered >> kOffsetShift;
  return absl::StrCat(Describe(line.key), line.on_stream != 0 ? " on a stream" : "", memory,
                      offset == 0 ? "" : absl::StrCat(" at offset digest ", absl::Hex(offset)));
}

uint64_t Mixed(uint64_t digest, uint64_t number) { return SplitMix64(digest ^ number); }

uint64_t Chained(uint64_t chain, const OperationLogLine& line) {
  std::array<uint64_t, sizeof(line) / sizeof(uint64_t)> words;
  std::memcpy(words.data(), &line, sizeof(line));
  for (const uint64_t word : words) chain = Mixed(chain, word);
  return chain;
}

}  // namespace cohort::worker
