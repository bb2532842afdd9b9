#include "worker/cuda/testing/fake_runtime.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/cuda/testing/fake_state.h"

namespace cohort::worker::cuda {

using fake::Memory;
using fake::State;
using fake::state;

void ResetFakeRuntime(const FakeMachine& machine) {
  state().dropping = true;
  std::vector<std::shared_ptr<fake::Stream>> streams;
  {
    MutexLock lock(&state().mutex);
    for (auto& [handle, stream] : state().streams) streams.push_back(std::move(stream));
    for (auto& [device, stream] : state().default_streams) streams.push_back(std::move(stream));
    for (auto& stream : state().closed_streams) streams.push_back(std::move(stream));
    state().streams.clear();
    state().default_streams.clear();
    state().closed_streams.clear();
  }
  for (const auto& stream : streams) stream->Close();
  for (const auto& stream : streams) stream->AwaitEnd();
  MutexLock lock(&state().mutex);
  state().failures.clear();
  state().events.clear();
  state().graphs.clear();
  state().executables.clear();
  state().memory.clear();
  state().physical.clear();
  state().reserved.clear();
  state().used.clear();
  state().active.clear();
  state().pinned = 0;
  state().sticky = cudaSuccess;
  state().machine = machine;
  state().dropping = false;
  fake::LastError() = cudaSuccess;
  fake::CurrentDevice() = 0;
}

void FailNextCall(absl::string_view function, cudaError_t error, int calls_before) {
  MutexLock lock(&state().mutex);
  state().failures[std::string(function)].push_back({error, calls_before});
}

void LoseContext(cudaError_t error) {
  MutexLock lock(&state().mutex);
  state().sticky = error;
  state().dropping = true;
}

std::string AliveInFakeRuntime() {
  MutexLock lock(&state().mutex);
  std::map<Memory::Kind, size_t> ranges;
  for (const auto& [begin, memory] : state().memory) ++ranges[memory.kind];
  std::vector<std::string> alive;
  const auto add = [&alive](size_t count, absl::string_view what) {
    if (count == 0) return;
    alive.push_back(absl::StrCat(count, " ", what, count == 1 ? "" : "s"));
  };
  add(state().streams.size(), "stream");
  add(state().events.size(), "event");
  add(state().graphs.size(), "graph");
  add(state().executables.size(), "executable graph");
  add(ranges[Memory::Kind::kDevice], "device allocation");
  add(ranges[Memory::Kind::kPool], "stream-ordered allocation");
  add(state().physical.size(), "handle of physical memory");
  add(state().reserved.size(), "reserved range of addresses");
  add(ranges[Memory::Kind::kMapped], "mapped range");
  add(ranges[Memory::Kind::kPinned], "pinned allocation");
  return absl::StrJoin(alive, ", ");
}

size_t FakeDeviceMemoryInUse() {
  MutexLock lock(&state().mutex);
  size_t sum = 0;
  for (const auto& [device, bytes] : state().used) sum += bytes;
  return sum;
}

}  // namespace cohort::worker::cuda
