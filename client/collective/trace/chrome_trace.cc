#include "client/collective/trace/chrome_trace.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace cohort::client {
namespace {

using Json = nlohmann::ordered_json;

// A time as the microseconds since `origin`.
double Microseconds(absl::Time time, absl::Time origin) {
  return absl::ToDoubleMicroseconds(time - origin);
}

// A rank's thread has the rank's number; its device's thread has this number more.
constexpr int kDevices = 1 << 20;

// Names a process or a thread.
Json Name(const char* what, int process, int thread, const std::string& name) {
  return {
      {"ph", "M"}, {"name", what}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
}

// The thread of a device, after its rank's.
Json Order(int process, int thread, int position) {
  return {{"ph", "M"},
          {"name", "thread_sort_index"},
          {"pid", process},
          {"tid", thread},
          {"args", {{"sort_index", position}}}};
}

Json Slice(const FlightCall& call, int process, int thread, absl::Time start,
           std::optional<absl::Time> end, absl::Time now, absl::Time origin = absl::UnixEpoch()) {
  Json arguments = {{"sequence", call.sequence},
                    {"generation", call.generation},
                    {"type", std::string(NameOf(call.type))},
                    {"bytes", call.bytes},
                    {"state", call.state}};
  if (call.root >= 0) arguments["root"] = call.root;
  return {{"ph", "X"},
          {"name", absl::StrCat(NameOf(call.collective), end.has_value() ? "" : " (running)")},
          {"cat", "collective"},
          {"pid", process},
          {"tid", thread},
          {"ts", Microseconds(start, origin)},
          {"dur", absl::ToDoubleMicroseconds(end.value_or(now) - start)},
          {"args", std::move(arguments)}};
}

std::string Dump(Json events, Json other = Json::object()) {
  Json trace = {{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}};
  if (!other.empty()) trace["otherData"] = std::move(other);
  return trace.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The trace of one group, event by event.
class GroupWriter {
 public:
  explicit GroupWriter(const GroupTrace& trace) : trace_(trace), origin_(Origin(trace)) {
    for (const TraceCall& call : trace.calls) {
      for (const TracePart& part : call.parts) parts_[{part.rank, part.call}] = {&call, &part};
    }
  }

  std::string Write() {
    for (size_t i = 0; i < trace_.ranks.size(); ++i) WriteRank(static_cast<int>(i));
    for (const TraceCall& call : trace_.calls) WriteArrows(call);
    Json other = {{"start_unix_ns", absl::ToUnixNanos(origin_)}};
    if (!trace_.ranks.empty()) {
      other["group"] = trace_.ranks[0].record.group;
      other["generation"] = trace_.ranks[0].record.generation;
    }
    return Dump(std::move(events_), std::move(other));
  }

 private:
  struct Position {
    const TraceCall* call = nullptr;
    const TracePart* part = nullptr;
  };

  static absl::Time Origin(const GroupTrace& trace) {
    absl::Time first = absl::InfiniteFuture();
    for (const TraceRank& rank : trace.ranks) {
      for (const FlightCall& call : rank.record.calls) first = std::min(first, call.started);
    }
    return first == absl::InfiniteFuture() ? absl::UnixEpoch() : first;
  }

  const FlightRecord& RecordOf(int index) const {
    return trace_.ranks[static_cast<size_t>(index)].record;
  }
  // Some readers reserve the number 0.
  static int Process(const FlightRecord& record) { return record.rank + 1; }
  static int Thread(const FlightRecord& record, bool of_device) {
    return (of_device ? kDevices : 0) + record.rank + 1;
  }

  void WriteRank(int index) {
    const FlightRecord& record = RecordOf(index);
    const int process = Process(record);
    std::string name = absl::StrCat("rank ", record.rank);
    if (!record.host.empty()) absl::StrAppend(&name, ", ", record.pid, " on ", record.host);
    events_.push_back(Name("process_name", process, Thread(record, false), name));
    events_.push_back({{"ph", "M"},
                       {"name", "process_sort_index"},
                       {"pid", process},
                       {"args", {{"sort_index", record.rank}}}});
    events_.push_back(Name("thread_name", process, Thread(record, false), "calls"));
    events_.push_back(Order(process, Thread(record, false), 0));
    bool has_device = false;
    for (size_t i = 0; i < record.calls.size(); ++i) {
      const FlightCall& call = record.calls[i];
      WriteCall(index, i, false, call.started, call.finished);
      if (!call.device_started.has_value()) continue;
      has_device = true;
      WriteCall(index, i, true, *call.device_started, call.device_finished);
    }
    if (!has_device) return;
    events_.push_back(Name("thread_name", process, Thread(record, true), "device"));
    events_.push_back(Order(process, Thread(record, true), 1));
  }

  void WriteCall(int index, size_t call_index, bool of_device, absl::Time start,
                 std::optional<absl::Time> end) {
    const FlightRecord& record = RecordOf(index);
    const FlightCall& call = record.calls[call_index];
    Json slice = Slice(call, Process(record), Thread(record, of_device), start, end,
                       std::max(record.taken, start), origin_);
    Json& arguments = slice["args"];
    if (!end.has_value()) arguments["open"] = true;
    const auto position = parts_.find({index, call_index});
    if (position != parts_.end())
      AddPosition(*position->second.call, *position->second.part, arguments);
    events_.push_back(std::move(slice));
  }

  void AddPosition(const TraceCall& call, const TracePart& part, Json& arguments) const {
    arguments["call"] = call.number;
    if (call.differs) arguments["ranks_differ"] = true;
    for (const int absent : call.absent) {
      arguments["has_not_come"].push_back(RecordOf(absent).rank);
    }
    if (!call.last.has_value()) return;
    arguments["last_rank"] = RecordOf(*call.last).rank;
    arguments["longest_wait_us"] = absl::ToDoubleMicroseconds(call.longest_wait);
    if (!call.certain) arguments["uncertain"] = true;
    if (part.waited == absl::ZeroDuration()) return;
    arguments["waited_for"] = RecordOf(*call.last).rank;
    arguments["waited_us"] = absl::ToDoubleMicroseconds(part.waited);
  }

  // Each arrow begins in the slice of its rank, at that slice's time.
  void WriteArrows(const TraceCall& call) {
    if (call.parts.size() < 2) return;
    // In the order of the calls' begins, where the slices begin.
    std::vector<const TracePart*> parts;
    for (const TracePart& part : call.parts) parts.push_back(&part);
    const auto begin = [this](const TracePart* part) {
      return RecordOf(part->rank).calls[part->call].started;
    };
    std::stable_sort(parts.begin(), parts.end(),
                     [&](const TracePart* a, const TracePart* b) { return begin(a) < begin(b); });
    ++arrows_;
    for (const TracePart* const part : parts) {
      const FlightRecord& record = RecordOf(part->rank);
      const char* const phase = part == parts.front() ? "s" : part == parts.back() ? "f" : "t";
      Json event = {{"ph", phase},
                    {"name", "the same call"},
                    {"cat", "call"},
                    {"id", arrows_},
                    {"pid", Process(record)},
                    {"tid", Thread(record, false)},
                    {"ts", Microseconds(begin(part), origin_)}};
      // Binds to the slice at this time, not to the next one.
      if (part == parts.back()) event["bp"] = "e";
      events_.push_back(std::move(event));
    }
  }

  const GroupTrace& trace_;
  const absl::Time origin_;
  std::map<std::pair<int, size_t>, Position> parts_;
  Json events_ = Json::array();
  int64_t arrows_ = 0;
};

}  // namespace

std::string ChromeTrace(const GroupTrace& trace) { return GroupWriter(trace).Write(); }

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
  return Dump(std::move(events));
}

}  // namespace cohort::client
