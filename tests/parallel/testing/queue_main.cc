// One end of a message queue, in a process of its own, so that a test can kill or stop it.
//
//   queue_main rank ADDRESS GROUP RANK SIZE [SETTING...]    makes a queue with the group's others
//   queue_main open HEX_HANDLE NAME                         reads one more
//   queue_main external NAME [SETTING...]                   writes one outside of any group
//
// Settings: host=NAME (as if on that host), bytes=N (of the ring), external=HEX_HANDLE,
// listen=ADDRESS, spare_mib=N (how many more addresses the process may use when it makes the
// queue).
//
// Prints `made PATH`, or `failed CODE TEXT` and ends. Then follows commands, one in a line, and
// prints one line for each:
//
//   write FIRST COUNT SEED MOST TIMEOUT_MS    values FIRST and so on, up to MOST bytes each; prints
//                                             `WRITTEN CODE TEXT`
//   read FIRST COUNT SEED MOST TIMEOUT_MS     checks that they come; `running` after a few, then
//                                             `READ CODE TEXT`; DATA_LOSS: something else came
//   idle MS         a call that waits for so long: `CPU_MS CODE TEXT`, the processor's time it took
//   handle          of a writer, in hex
//   readers COUNT   waits until so many read: `CODE TEXT`
//   departures      `NAME: WHY; ...`
//   shutdown TEXT   `OK`
//   fork            `OK`: a child that does nothing and outlives the program, not its test
//   leave           ends the program in order
//
// Ends with its standard input: so it never outlives its test.
#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/parallel/queue/message_queue.h"
#include "worker/group/local_group.h"

namespace cohort {
namespace {

using parallel::MessageQueue;
using parallel::QueueCall;
using parallel::QueueOptions;

constexpr uint64_t kValuesToRun = 5;

uint64_t Number(const std::string& text) {
  uint64_t number = 0;
  if (!absl::SimpleAtoi(text, &number)) std::abort();
  return number;
}

void Say(const absl::Status& status) {
  std::cout << absl::StatusCodeToString(status.code()) << " " << status.message() << std::endl;
}

// Number i of those with this seed; one in eight is large.
std::string Value(uint64_t seed, uint64_t i, uint64_t most) {
  std::mt19937_64 random(seed * 1000003 + i);
  const size_t size = random() % (random() % 8 == 0 ? most + 1 : most / 100 + 2);
  std::string value(size + 8, '\0');
  for (size_t at = 0; at < size; at += 8) {
    const uint64_t bits = random();
    std::memcpy(&value[at], &bits, sizeof(bits));
  }
  value.resize(size);
  return value;
}

double CpuMs() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto ms = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_usec) / 1e3;
  };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

struct Settings {
  QueueOptions queue;
  std::string host;
  uint64_t spare_mib = 0;  // 0: as many as there are
};

// Limits the process to the addresses that it has mapped now and `spare_mib` more.
void LimitAddresses(uint64_t spare_mib) {
  std::ifstream file("/proc/self/statm");
  uint64_t pages = 0;
  file >> pages;
  const rlim_t most = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + (spare_mib << 20);
  const rlimit limit = {most, most};
  if (setrlimit(RLIMIT_AS, &limit) != 0) std::abort();
}

Settings Parse(int argc, char** argv, int first) {
  Settings settings;
  settings.queue.blocks = 1;
  settings.queue.block_bytes = 1 << 20;
  for (int i = first; i < argc; ++i) {
    const std::pair<std::string, std::string> setting =
        absl::StrSplit(argv[i], absl::MaxSplits('=', 1));
    if (setting.first == "host") settings.host = setting.second;
    if (setting.first == "listen") settings.queue.listen = setting.second;
    if (setting.first == "bytes") {
      settings.queue.block_bytes = static_cast<int64_t>(Number(setting.second));
    }
    if (setting.first == "spare_mib") settings.spare_mib = Number(setting.second);
    if (setting.first == "external") {
      settings.queue.external_writer = absl::HexStringToBytes(setting.second);
    }
  }
  return settings;
}

absl::StatusOr<std::unique_ptr<MessageQueue>> MakeOfRank(int argc, char** argv,
                                                         std::unique_ptr<client::Group>* group) {
  const Settings settings = Parse(argc, argv, 6);
  worker::LocalGroupOptions options;
  options.membership.connection.address = argv[2];
  options.membership.group = argv[3];
  options.membership.rank = static_cast<int>(Number(argv[4]));
  options.membership.world_size = static_cast<int>(Number(argv[5]));
  options.bootstrap.host_identity = settings.host;
  auto joined = worker::LocalGroup::Create(std::move(options));
  if (!joined.ok()) return joined.status();
  *group = *std::move(joined);
  if (settings.spare_mib > 0) LimitAddresses(settings.spare_mib);
  return MessageQueue::Create(**group, settings.queue);
}

void Write(MessageQueue& queue, const std::vector<std::string>& words) {
  const uint64_t first = Number(words[1]);
  const uint64_t count = Number(words[2]);
  const QueueCall call = {absl::Milliseconds(static_cast<int64_t>(Number(words[5])))};
  absl::Status status;
  uint64_t i = first;
  for (; i < first + count; ++i) {
    status = queue.Enqueue(Value(Number(words[3]), i, Number(words[4])), call);
    if (!status.ok()) break;
  }
  std::cout << i - first << " ";
  Say(status);
}

void Read(MessageQueue& queue, const std::vector<std::string>& words) {
  const uint64_t first = Number(words[1]);
  const uint64_t count = Number(words[2]);
  const QueueCall call = {absl::Milliseconds(static_cast<int64_t>(Number(words[5])))};
  absl::Status status;
  uint64_t i = first;
  for (; i < first + count && status.ok(); ++i) {
    const std::string expected = Value(Number(words[3]), i, Number(words[4]));
    const auto check = [&](absl::string_view value) -> absl::Status {
      if (value == expected) return absl::OkStatus();
      return absl::DataLossError(absl::StrCat("value ", i, " is another"));
    };
    if (i % 2 == 0) {
      status = queue.DequeueView(check, call);
    } else {
      const absl::StatusOr<std::string> value = queue.Dequeue(call);
      status = value.ok() ? check(*value) : value.status();
    }
    if (!status.ok()) break;
    if (i - first == kValuesToRun) std::cout << "running" << std::endl;
  }
  std::cout << i - first << " ";
  Say(status);
}

// The child has all of this process's descriptors: fork() would close its connections.
void Fork() {
  const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, 0));
  if (child < 0) std::abort();
  if (child > 0) return;
  close(STDOUT_FILENO);
  // Waits until the test closes its end; lines that the test writes are not for the child.
  pollfd input = {STDIN_FILENO, 0, 0};
  while (poll(&input, 1, -1) < 0) {
  }
  _exit(0);
}

void Follow(MessageQueue& queue, const std::string& line) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  if (words[0] == "write") return Write(queue, words);
  if (words[0] == "read") return Read(queue, words);
  if (words[0] == "idle") {
    const double before = CpuMs();
    const QueueCall call = {absl::Milliseconds(static_cast<int64_t>(Number(words[1])))};
    // A writer writes more than the ring has room for.
    const absl::Status status = queue.is_writer() ? queue.Enqueue(std::string(8 << 20, 'x'), call)
                                                  : queue.Dequeue(call).status();
    std::cout << static_cast<int64_t>(CpuMs() - before) << " ";
    return Say(status);
  }
  if (words[0] == "handle") {
    std::cout << absl::BytesToHexString(queue.handle()) << std::endl;
    return;
  }
  if (words[0] == "readers") return Say(queue.AwaitReaders(static_cast<int>(Number(words[1]))));
  if (words[0] == "departures") {
    for (const parallel::QueueDeparture& left : queue.departures()) {
      std::cout << left.name << ": " << left.why << "; ";
    }
    std::cout << std::endl;
    return;
  }
  if (words[0] == "shutdown") queue.Shutdown(line.substr(9));
  if (words[0] == "fork") Fork();
  Say(absl::OkStatus());
}

int Main(int argc, char** argv) {
  const std::string kind = argv[1];
  std::unique_ptr<client::Group> group;
  const auto made = [&]() -> absl::StatusOr<std::unique_ptr<MessageQueue>> {
    if (kind == "rank") return MakeOfRank(argc, argv, &group);
    if (kind == "open") return MessageQueue::Open(absl::HexStringToBytes(argv[2]), argv[3]);
    return MessageQueue::CreateExternal(argv[2], Parse(argc, argv, 3).queue);
  };
  absl::StatusOr<std::unique_ptr<MessageQueue>> queue = made();
  if (!queue.ok()) {
    std::cout << "failed ";
    Say(queue.status());
    return 1;
  }
  std::cout << "made " << (*queue)->path() << std::endl;
  std::string line;
  while (std::getline(std::cin, line) && line != "leave") Follow(**queue, line);
  return 0;
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) { return cohort::Main(argc, argv); }
