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

// The name of a process or a thread.
Json Name(const char* what, int process, int thread, const std::string& name) {
  return {
      {"ph", "M"}, {"name", what}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
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
    for (const FlightCall& call : record.calls) {
      const absl::Time end = call.finished.value_or(now);
      Json arguments = {{"sequence", call.sequence},
                        {"generation", call.generation},
                        {"type", std::string(NameOf(call.type))},
                        {"bytes", call.bytes},
                        {"state", call.state}};
      if (call.root >= 0) arguments["root"] = call.root;
      events.push_back({{"ph", "X"},
                        {"name", call.finished.has_value() ? call.verb : call.verb + " (running)"},
                        {"cat", "collective"},
                        {"pid", pid},
                        {"tid", record.rank},
                        {"ts", Microseconds(call.started)},
                        {"dur", absl::ToDoubleMicroseconds(end - call.started)},
                        {"args", std::move(arguments)}});
    }
  }
  const Json trace = {{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}};
  return trace.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace cohort::client
