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
  State& s = state();
  s.dropping = true;
  std::vector<std::shared_ptr<fake::Stream>> streams;
  {
    MutexLock lock(&s.mutex);
    for (auto& [handle, stream] : s.streams) streams.push_back(std::move(stream));
    for (auto& [device, stream] : s.default_streams) streams.push_back(std::move(stream));
    for (auto& stream : s.closed_streams) streams.push_back(std::move(stream));
    s.streams.clear();
    s.default_streams.clear();
    s.closed_streams.clear();
  }
  for (const auto& stream : streams) stream->Close();
  for (const auto& stream : streams) stream->AwaitEnd();
  MutexLock lock(&s.mutex);
  s.failures.clear();
  s.events.clear();
  s.graphs.clear();
  s.executables.clear();
  s.memory.clear();
  s.physical.clear();
  s.reserved.clear();
  s.used.clear();
  s.active.clear();
  s.pinned = 0;
  s.sticky = cudaSuccess;
  s.machine = machine;
  s.dropping = false;
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
  State& s = state();
  MutexLock lock(&s.mutex);
  std::map<Memory::Kind, size_t> ranges;
  for (const auto& [begin, memory] : s.memory) ++ranges[memory.kind];
  std::vector<std::string> alive;
  const auto add = [&alive](size_t count, absl::string_view what) {
    if (count == 0) return;
    alive.push_back(absl::StrCat(count, " ", what, count == 1 ? "" : "s"));
  };
  add(s.streams.size(), "stream");
  add(s.events.size(), "event");
  add(s.graphs.size(), "graph");
  add(s.executables.size(), "executable graph");
  add(ranges[Memory::Kind::kDevice], "device allocation");
  add(ranges[Memory::Kind::kPool], "stream-ordered allocation");
  add(s.physical.size(), "handle of physical memory");
  add(s.reserved.size(), "reserved range of addresses");
  add(ranges[Memory::Kind::kMapped], "mapped range");
  add(ranges[Memory::Kind::kOpened], "opened range");
  add(ranges[Memory::Kind::kPinned], "pinned allocation");
  add(ranges[Memory::Kind::kRegistered], "registered range");
  return absl::StrJoin(alive, ", ");
}

size_t FakeDeviceMemoryInUse() {
  State& s = state();
  MutexLock lock(&s.mutex);
  size_t sum = 0;
  for (const auto& [device, bytes] : s.used) sum += bytes;
  return sum;
}

}  // namespace cohort::worker::cuda
