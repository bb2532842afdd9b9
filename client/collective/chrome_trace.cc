#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/collective/worker_client.h"
#include "nlohmann/json.hpp"

namespace cohort::client {
namespace {

using Json = nlohmann::ordered_json;

double Microseconds(absl::Time time) {
  return absl::ToDoubleMicroseconds(time - absl::UnixEpoch());
}

// Ranks' threads have the rank's number, those of their devices one from here on.
constexpr int kDevices = 1 << 20;

// The name of a process or a thread.
Json Name(const char* what, int process, int thread, const std::string& name) {
  return {
      {"ph", "M"}, {"name", what}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
}

// Behind its rank's.
Json Order(int process, int thread, int place) {
  return {{"ph", "M"},
          {"name", "thread_sort_index"},
          {"pid", process},
          {"tid", thread},
          {"args", {{"sort_index", place}}}};
}

Json Slice(const FlightCall& call, int process, int thread, absl::Time start,
           std::optional<absl::Time> end, absl::Time now) {
  Json arguments = {{"sequence", call.sequence},
                    {"generation", call.generation},
                    {"type", std::string(NameOf(call.type))},
                    {"bytes", call.bytes},
                    {"state", call.state}};
  if (call.root >= 0) arguments["root"] = call.root;
  return {{"ph", "X"},
          {"name", end.has_value() ? call.verb : call.verb + " (running)"},
          {"cat", "collective"},
          {"pid", process},
          {"tid", thread},
          {"ts", Microseconds(start)},
          {"dur", absl::ToDoubleMicroseconds(end.value_or(now) - start)},
          {"args", std::move(arguments)}};
}

}  // namespace

std::string ChromeTrace(const std::vector<FlightRecord>& records, absl::Time now) {
  Json events = Json::array();
  std::map<std::pair<std::string, std::string>, int> processes;
  for (const FlightRecord& record : records) {
    const auto [process, is_new] = processes.emplace(std::make_pair(record.tenant, record.group),
                                                     static_cast<int>(processes.size()) + 1);
    const int pid = process->second;
    if (is_new)
      events.push_back(Name("process_name", pid, 0, absl::StrCat("group ", record.group)));
    events.push_back(Name("thread_name", pid, record.rank, absl::StrCat("rank ", record.rank)));
    const int device = kDevices + record.rank;
    bool has_device = false;
    for (const FlightCall& call : record.calls) {
      events.push_back(Slice(call, pid, record.rank, call.started, call.finished, now));
      if (!call.device_started.has_value()) continue;
      has_device = true;
      events.push_back(Slice(call, pid, device, *call.device_started, call.device_finished, now));
    }
    if (!has_device) continue;
    events.push_back(
        Name("thread_name", pid, device, absl::StrCat("rank ", record.rank, " device")));
    events.push_back(Order(pid, record.rank, 2 * record.rank));
    events.push_back(Order(pid, device, 2 * record.rank + 1));
  }
  const Json trace = {{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}};
  return trace.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace cohort::client
