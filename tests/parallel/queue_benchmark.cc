// How long a value takes from the writer's Enqueue until a reader has it, and how many bytes go
// through a queue in a second. Each reader is a process.
//
//   bazel run --config=opt //tests/parallel:queue_benchmark
//
// Prints a line for each case: medians over all readers; of throughput, until the last has all.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "client/parallel/queue/message_queue.h"
#include "cohort/v1/queue.pb.h"
#include "tests/failure/child_process.h"

namespace cohort {
namespace {

using parallel::MessageQueue;
using testing::ChildProcess;

constexpr absl::Duration kPatience = absl::Seconds(120);

int64_t NowNs() { return absl::ToUnixNanos(Clock::Steady().Now()); }

// A value begins with when it was sent, by the clock that all processes of the machine share.
int Read(const std::string& handle, int64_t count) {
  auto queue = MessageQueue::Open(absl::HexStringToBytes(handle), "reader");
  if (!queue.ok()) std::abort();
  std::vector<int64_t> taken;
  while (true) {
    taken.clear();
    for (int64_t i = 0; i < count; ++i) {
      const absl::Status status = (*queue)->DequeueView([&](absl::string_view value) {
        int64_t sent = 0;
        std::memcpy(&sent, value.data(), sizeof(sent));
        // As a copy does, all of it is looked at.
        static std::string copy;
        copy.assign(value.data(), value.size());
        taken.push_back(NowNs() - sent);
        return absl::OkStatus();
      });
      if (!status.ok()) return 0;
    }
    std::sort(taken.begin(), taken.end());
    std::cout << taken[taken.size() / 2] << std::endl;
  }
}

double MedianUs(std::vector<std::unique_ptr<ChildProcess>>& readers) {
  std::vector<double> medians;
  for (const auto& reader : readers) {
    const absl::StatusOr<std::string> line = reader->ReadLine(kPatience);
    double ns = 0;
    if (!line.ok() || !absl::SimpleAtod(*line, &ns)) std::abort();
    medians.push_back(ns / 1e3);
  }
  std::sort(medians.begin(), medians.end());
  return medians[medians.size() / 2];
}

void Measure(bool stream, size_t bytes, int readers_wanted) {
  parallel::QueueOptions options;
  if (stream) options.listen = "127.0.0.1:0";
  auto queue = MessageQueue::CreateExternal("benchmark", options);
  if (!queue.ok()) std::abort();
  v1::QueueHandle handle;
  if (!handle.ParseFromString((*queue)->handle())) std::abort();
  if (stream) handle.clear_local();
  const int64_t count = bytes > 100000 ? 200 : 5000;
  std::vector<std::unique_ptr<ChildProcess>> readers;
  for (int i = 0; i < readers_wanted; ++i) {
    readers.push_back(std::make_unique<ChildProcess>(std::vector<std::string>{
        "/proc/self/exe", absl::BytesToHexString(handle.SerializeAsString()),
        absl::StrCat(count)}));
  }
  if (!(*queue)->AwaitReaders(readers_wanted).ok()) std::abort();

  std::string value(bytes, 'x');
  const auto enqueue = [&] {
    const int64_t now = NowNs();
    std::memcpy(value.data(), &now, sizeof(now));
    if (!(*queue)->Enqueue(value).ok()) std::abort();
  };
  // One at a time: the next when all have the one before.
  const auto all_have_it = [&] {
    for (const parallel::QueueReader& reader : (*queue)->readers()) {
      if (reader.bytes_behind > (stream ? int64_t{4} << 20 : 0)) return false;
    }
    return true;
  };
  for (int64_t i = 0; i < count; ++i) {
    enqueue();
    while (!all_have_it()) std::this_thread::yield();
    const int64_t pause = NowNs() + (stream ? 200000 : 0);
    while (NowNs() < pause) std::this_thread::yield();
  }
  const double latency = MedianUs(readers);
  const int64_t begin = NowNs();
  for (int64_t i = 0; i < count; ++i) enqueue();
  MedianUs(readers);
  const double seconds = static_cast<double>(NowNs() - begin) / 1e9;
  std::printf("%-13s  %8zu B  %d readers  %10.2f us  %10.0f values/s  %8.2f GB/s\n",
              stream ? "stream" : "shared memory", bytes, readers_wanted, latency,
              static_cast<double>(count) / seconds,
              static_cast<double>(count) * static_cast<double>(bytes) / seconds / 1e9);
  std::fflush(stdout);
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  if (argc == 3) return cohort::Read(argv[1], std::atoll(argv[2]));
  for (const bool stream : {false, true}) {
    for (const size_t bytes : {size_t{1} << 10, size_t{1} << 20}) {
      for (const int readers : {1, 7}) cohort::Measure(stream, bytes, readers);
    }
  }
  return 0;
}
