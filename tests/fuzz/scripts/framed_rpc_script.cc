#include "tests/fuzz/scripts/framed_rpc_script.h"

#include <algorithm>

#include "base/framed_rpc/frame.h"

namespace cohort::coordinator::fuzz {
namespace {

constexpr size_t kStepBytes = 6;
constexpr size_t kMaxBodyBytes = 0xFFFF;

uint8_t ByteOf(absl::string_view bytes, size_t at) { return static_cast<uint8_t>(bytes[at]); }

uint32_t Number(absl::string_view bytes) {
  uint32_t number = 0;
  for (size_t i = std::min<size_t>(bytes.size(), 4); i > 0; --i) {
    number = number << 8 | ByteOf(bytes, i - 1);
  }
  return number;
}

std::string Frame(const FramedRpcStep& step) {
  framed_rpc::Header header;
  header.kind =
      step.form % kFormCount == kCancelForm ? framed_rpc::Kind::kCancel : framed_rpc::Kind::kCall;
  header.call = step.call;
  header.method = step.method;
  header.extra = step.time_left < 32 ? uint32_t{1} << step.time_left : framed_rpc::kNoTimeout;
  header.body_bytes = step.form % kFormCount == kLyingForm
                          ? Number(step.body)
                          : static_cast<uint32_t>(step.body.size());
  std::string bytes;
  framed_rpc::AppendHeader(header, &bytes);
  return bytes + step.body;
}

}  // namespace

FramedRpcScript ParseFramedRpcScript(absl::string_view input) {
  FramedRpcScript script;
  if (input.empty()) return script;
  script.pieces = ByteOf(input, 0);
  input.remove_prefix(1);
  while (input.size() >= kStepBytes && script.steps.size() < kMaxFramedRpcSteps) {
    FramedRpcStep& step = script.steps.emplace_back();
    step.form = ByteOf(input, 0);
    step.call = ByteOf(input, 1);
    step.method = ByteOf(input, 2);
    step.time_left = ByteOf(input, 3);
    const size_t size = ByteOf(input, 4) | static_cast<size_t>(ByteOf(input, 5)) << 8;
    step.body = std::string(input.substr(kStepBytes, size));
    input.remove_prefix(kStepBytes + step.body.size());
  }
  return script;
}

std::string SerializeFramedRpcScript(const FramedRpcScript& script) {
  std::string bytes(1, static_cast<char>(script.pieces));
  for (const FramedRpcStep& step : script.steps) {
    const size_t size = std::min(step.body.size(), kMaxBodyBytes);
    for (const size_t byte : {size_t{step.form}, size_t{step.call}, size_t{step.method},
                              size_t{step.time_left}, size & 0xFF, size >> 8}) {
      bytes.push_back(static_cast<char>(byte));
    }
    bytes.append(step.body, 0, size);
  }
  return bytes;
}

std::string FramedRpcBytes(const FramedRpcScript& script) {
  std::string bytes;
  for (const FramedRpcStep& step : script.steps) {
    bytes += step.form % kFormCount == kBareForm ? step.body : Frame(step);
  }
  return bytes;
}

}  // namespace cohort::coordinator::fuzz
