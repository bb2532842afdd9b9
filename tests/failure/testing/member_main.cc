// A member in a process of its own, so that a test can kill or stop it.
//
//   member_main ADDRESS GROUP RANK WORLD_SIZE [member=NAME] [lease_ms=N] [attached_ms=N]
//               [progress_ms=N] [expiration_ms=N] [fate=report]
//
// Prints `joined RANK WORLD_SIZE GENERATION`, or `failed CODE TEXT` and ends. Then runs commands,
// one in a line, on its main thread, and prints `CODE VALUE` for each (CODE as
// absl::StatusCodeToString):
//
//   barrier NAME            send DST COUNT SIZE          publish NAME ID        progress COUNTER
//   all_gather VALUE        receive SRC                  fetch NAME             leave
//   await_event             waits for the first event, which shows that its watch stream is open
//
// Ends with its standard input, so that it never outlives its test.
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "client/rendezvous/process_group/process_group.h"

namespace cohort {
namespace {

using client::ProcessGroup;
using client::ProcessGroupOptions;

int Number(const std::string& text) {
  int number = 0;
  return absl::SimpleAtoi(text, &number) ? number : -1;
}

bool ReadOptions(const std::vector<std::string>& arguments, ProcessGroupOptions* options) {
  if (arguments.size() < 4) return false;
  options->connection.address = arguments[0];
  options->connection.min_backoff = absl::Milliseconds(10);
  options->connection.max_backoff = absl::Milliseconds(100);
  options->group = arguments[1];
  options->rank = Number(arguments[2]);
  options->world_size = Number(arguments[3]);
  options->join_timeout = absl::Seconds(60);
  options->timeout = absl::Seconds(60);
  for (size_t index = 4; index < arguments.size(); ++index) {
    const std::pair<std::string, std::string> setting =
        absl::StrSplit(arguments[index], absl::MaxSplits('=', 1));
    const absl::Duration duration = absl::Milliseconds(Number(setting.second));
    if (setting.first == "member") {
      options->member = setting.second;
    } else if (setting.first == "lease_ms") {
      options->lease = duration;
    } else if (setting.first == "attached_ms") {
      options->attached_lease = duration;
    } else if (setting.first == "progress_ms") {
      options->progress_timeout = duration;
    } else if (setting.first == "expiration_ms") {
      options->data_expiration = duration;
    } else if (setting.first == "fate") {
      options->share_fate = setting.second != "report";
    } else {
      return false;
    }
  }
  return true;
}

void Say(const absl::Status& status, const std::string& value = "") {
  std::cout << absl::StatusCodeToString(status.code()) << " "
            << (status.ok() ? value : std::string(status.message())) << std::endl;
}

absl::Status SendMany(ProcessGroup& group, int destination, int count, int size_bytes) {
  for (int index = 0; index < count; ++index) {
    const absl::Status status = group.Send(std::string(size_bytes, 'x'), destination);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// Set by the first event. Lives as long as the process, as the callback may.
absl::Notification& FirstEvent() {
  static absl::Notification* const first = new absl::Notification;
  return *first;
}

void Follow(ProcessGroup& group, const std::string& line) {
  std::istringstream words(line);
  std::string command, first, second, third;
  words >> command >> first >> second >> third;
  if (command == "barrier") {
    client::RoundOptions options;
    options.name = first;
    options.timeout = absl::Seconds(60);
    Say(group.Barrier(options));
  } else if (command == "all_gather") {
    const absl::StatusOr<client::ObjectList> values = group.AllGather(first);
    Say(values.status(), values.ok() ? absl::StrJoin(*values, ",") : "");
  } else if (command == "send") {
    Say(SendMany(group, Number(first), Number(second), Number(third)));
  } else if (command == "receive") {
    const absl::StatusOr<std::string> object = group.Receive(Number(first));
    Say(object.status(), object.ok() ? *object : "");
  } else if (command == "publish") {
    Say(group.PublishUniqueIds(first, {second}));
  } else if (command == "fetch") {
    const absl::StatusOr<std::vector<std::string>> ids = group.FetchUniqueIds(first);
    Say(ids.status(), ids.ok() ? absl::StrJoin(*ids, ",") : "");
  } else if (command == "progress") {
    group.ReportProgress(Number(first), "test");
    Say(absl::OkStatus());
  } else if (command == "await_event") {
    const bool came = FirstEvent().WaitForNotificationWithTimeout(absl::Seconds(60));
    Say(came ? absl::OkStatus() : absl::DeadlineExceededError("no event came"));
  } else if (command == "leave") {
    Say(group.Leave("done"));
  } else {
    Say(absl::UnimplementedError(command));
  }
}

int Main(const std::vector<std::string>& arguments) {
  ProcessGroupOptions options;
  if (!ReadOptions(arguments, &options)) {
    std::cerr << "bad arguments" << std::endl;
    return 2;
  }
  options.on_event = [](const client::GroupEvent&) {
    if (!FirstEvent().HasBeenNotified()) FirstEvent().Notify();
  };
  const absl::StatusOr<std::unique_ptr<ProcessGroup>> group = ProcessGroup::Create(options);
  if (!group.ok()) {
    std::cout << "failed " << group.status() << std::endl;
    return 1;
  }
  std::cout << "joined " << (*group)->rank() << " " << (*group)->world_size() << " "
            << (*group)->generation() << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) Follow(**group, line);
  return 0;
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  return cohort::Main(std::vector<std::string>(argv + 1, argv + argc));
}
