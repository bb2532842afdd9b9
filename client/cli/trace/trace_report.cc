#include "client/cli/trace/trace_report.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/rank_set.h"
#include "client/cli/output/format.h"
#include "client/cli/output/table.h"

namespace cohort::cli {
namespace {

using client::FlightCall;
using client::GroupTrace;
using client::TraceCall;
using client::TraceClock;
using client::TracePart;
using client::TraceRank;

// Smaller contradictions of clocks come from reading them.
constexpr double kReadErrorNs = 20'000;
constexpr double kMillion = 1e6;

const TraceRank& RankAt(const GroupTrace& trace, int index) {
  return trace.ranks[static_cast<size_t>(index)];
}

const FlightCall& CallOf(const GroupTrace& trace, const TracePart& part) {
  return RankAt(trace, part.rank).record.calls[part.call];
}

int RankOf(const GroupTrace& trace, int index) { return RankAt(trace, index).record.rank; }

// The ranks with the longest waits first, at most `most` of them.
std::vector<const TraceCall*> LongestWaits(const GroupTrace& trace, size_t most) {
  std::vector<const TraceCall*> calls;
  for (const TraceCall& call : trace.calls) {
    if (call.last.has_value()) calls.push_back(&call);
  }
  std::stable_sort(calls.begin(), calls.end(), [](const TraceCall* a, const TraceCall* b) {
    return a->longest_wait > b->longest_wait;
  });
  if (calls.size() > most) calls.resize(most);
  return calls;
}

// Calls that a rank is still in, and calls that a rank never began.
std::vector<const TraceCall*> OpenCalls(const GroupTrace& trace) {
  std::vector<const TraceCall*> calls;
  for (const TraceCall& call : trace.calls) {
    if (call.open || !call.absent.empty()) calls.push_back(&call);
  }
  return calls;
}

// The ranks that are still in the call; if all have left it, those that were in it.
RankSet RanksIn(const GroupTrace& trace, const TraceCall& call) {
  RankSet ranks;
  for (const TracePart& part : call.parts) {
    if (!call.open || !client::IsOver(CallOf(trace, part))) ranks.Add(RankOf(trace, part.rank));
  }
  return ranks;
}

RankSet RanksAbsent(const GroupTrace& trace, const TraceCall& call) {
  RankSet ranks;
  for (const int index : call.absent) ranks.Add(RankOf(trace, index));
  return ranks;
}

// How long the first of these ranks has been in it.
absl::Duration OpenFor(const GroupTrace& trace, const TraceCall& call) {
  absl::Duration longest;
  for (const TracePart& part : call.parts) {
    const FlightCall& own = CallOf(trace, part);
    const absl::Time end = client::IsOver(own) && own.finished.has_value()
                               ? *own.finished
                               : RankAt(trace, part.rank).record.taken;
    longest = std::max(longest, end - own.started);
  }
  return longest;
}

// Such as: +1.2ms, -8us.
std::string Signed(double nanoseconds) {
  return absl::StrCat(nanoseconds < 0 ? "-" : "+",
                      ShortDuration(absl::Nanoseconds(std::abs(nanoseconds))));
}

// Such as: +1.2s (+-8us), 3.1 ppm.
std::string FormatClock(const TraceReport& report, int index) {
  if (index == 0) return "";
  const client::ClockEstimate& clock = report.trace.clocks[static_cast<size_t>(index)].estimate;
  if (report.raw_clocks) return "as it is";
  std::string text = Signed(clock.ahead);
  if (std::isinf(clock.least) && std::isinf(clock.most)) return "not known: no call in common";
  if (std::isinf(clock.least)) {
    absl::StrAppend(&text, " (", Signed(clock.most), " at most)");
  } else if (std::isinf(clock.most)) {
    absl::StrAppend(&text, " (", Signed(clock.least), " at least)");
  } else {
    absl::StrAppend(&text, " (+-", ShortDuration(absl::Nanoseconds((clock.most - clock.least) / 2)),
                    ")");
  }
  if (clock.drift != 0) absl::StrAppendFormat(&text, ", %.1f ppm", clock.drift * kMillion);
  return text;
}

std::string FormatRanks(const TraceReport& report) {
  const GroupTrace& trace = report.trace;
  const bool has_clocks = trace.clocks.size() > 1;
  std::vector<std::string> titles = {">RANK", "FROM", "HOST", ">CALLS", ">LAST IN", ">WAITED FOR"};
  if (has_clocks) titles.push_back("CLOCK AHEAD");
  Table table(titles);
  for (const TraceRank& rank : trace.ranks) {
    std::vector<std::string> row = {absl::StrCat(rank.record.rank),
                                    report.sources.from.at(rank.record.rank),
                                    rank.record.host,
                                    absl::StrCat(rank.record.calls.size()),
                                    absl::StrCat(rank.last_in),
                                    rank.last_in == 0 ? "" : ShortDuration(rank.waited_for)};
    if (has_clocks) row.push_back(FormatClock(report, rank.clock));
    table.AddRow(row);
  }
  return table.empty() ? "" : absl::StrCat("\n", table.ToString());
}

std::string FormatWaits(const TraceReport& report) {
  const GroupTrace& trace = report.trace;
  Table table({">GENERATION", ">CALL", "COLLECTIVE", ">BYTES", ">WAITED", "FOR"});
  for (const TraceCall* const call : LongestWaits(trace, report.top)) {
    const FlightCall& own = CallOf(trace, call->parts.front());
    table.AddRow({absl::StrCat(call->generation), absl::StrCat(call->number),
                  std::string(NameOf(own.collective)), FormatBytes(own.bytes),
                  ShortDuration(call->longest_wait),
                  absl::StrCat("rank ", RankOf(trace, *call->last),
                               call->certain ? "" : ", if the clocks are right")});
  }
  return table.empty() ? "" : absl::StrCat("\nThe longest waits:\n", table.ToString());
}

// all_reduce, call 18 of generation 2: ranks 0-1 are in it since 3.2s; rank 2 has not come
std::string FormatOpen(const GroupTrace& trace, const TraceCall& call) {
  const RankSet in = RanksIn(trace, call);
  std::string text = absl::StrCat(
      NameOf(CallOf(trace, call.parts.front()).collective), ", call ", call.number,
      " of generation ", call.generation, ": ", NameRanks(in.ToRanges()),
      call.open ? (in.count() == 1 ? " is" : " are") : "",
      call.open ? " in it since " : " gave up after ", ShortDuration(OpenFor(trace, call)));
  const RankSet absent = RanksAbsent(trace, call);
  if (!absent.empty()) {
    absl::StrAppend(&text, "; ", NameRanks(absent.ToRanges()),
                    absent.count() == 1 ? " has" : " have", " not come");
  }
  return text;
}

size_t CountDifferent(const GroupTrace& trace) {
  return static_cast<size_t>(std::count_if(trace.calls.begin(), trace.calls.end(),
                                           [](const TraceCall& call) { return call.differs; }));
}

Json CallJson(const GroupTrace& trace, const TraceCall& call) {
  const FlightCall& own = CallOf(trace, call.parts.front());
  Json json = {{"generation", call.generation},
               {"call", call.number},
               {"collective", std::string(NameOf(own.collective))},
               {"bytes", own.bytes}};
  if (!call.last.has_value()) return json;
  json["rank"] = RankOf(trace, *call.last);
  json["wait_seconds"] = Seconds(call.longest_wait);
  json["certain"] = call.certain;
  for (const TracePart& part : call.parts) {
    if (part.waited == absl::ZeroDuration()) continue;
    json["waits"].push_back(
        {{"rank", RankOf(trace, part.rank)}, {"seconds", Seconds(part.waited)}});
  }
  return json;
}

Json OpenJson(const GroupTrace& trace, const TraceCall& call) {
  Json json = CallJson(trace, call);
  json["open"] = call.open;
  json["seconds"] = Seconds(OpenFor(trace, call));
  json["in"] = ToJson(RanksIn(trace, call).ToRanges());
  json["has_not_come"] = ToJson(RanksAbsent(trace, call).ToRanges());
  return json;
}

Json ClockJson(const TraceReport& report, size_t index) {
  const GroupTrace& trace = report.trace;
  const TraceClock& clock = trace.clocks[index];
  RankSet ranks;
  for (const TraceRank& rank : trace.ranks) {
    if (rank.clock == static_cast<int>(index)) ranks.Add(rank.record.rank);
  }
  Json json = {{"host", clock.host}, {"ranks", ToJson(ranks.ToRanges())}};
  if (report.raw_clocks) return json;
  const auto set = [&json](const char* name, double nanoseconds) {
    if (std::isfinite(nanoseconds)) json[name] = nanoseconds / 1e9;
  };
  set("ahead_seconds", clock.estimate.ahead);
  set("least_seconds", clock.estimate.least);
  set("most_seconds", clock.estimate.most);
  json["drift_ppm"] = clock.estimate.drift * kMillion;
  return json;
}

}  // namespace

std::string FormatReport(const TraceReport& report) {
  const GroupTrace& trace = report.trace;
  std::string text =
      absl::StrCat("group ", Printable(report.group), ", generation ", report.sources.generation,
                   ": ", Counted(static_cast<int64_t>(trace.calls.size()), "call"), " of all, as ",
                   trace.ranks.size(), " of ", Counted(report.sources.world_size, "rank"), " had ",
                   trace.ranks.size() == 1 ? "it" : "them",
                   report.output.empty() ? "" : absl::StrCat("; ", Printable(report.output)), "\n");
  absl::StrAppend(&text, FormatRanks(report));
  if (trace.contradiction > kReadErrorNs) {
    absl::StrAppend(&text, "the clocks contradict each other by ",
                    ShortDuration(absl::Nanoseconds(trace.contradiction)),
                    ": one was set, or does not run evenly\n");
  }
  for (const MissingRecord& missing : report.sources.missing) {
    absl::StrAppend(&text, missing.rank == report.sources.missing.front().rank ? "\n" : "",
                    "nothing of ", missing.who, ": ", Printable(missing.why), "\n");
  }
  absl::StrAppend(&text, FormatWaits(report));
  const std::vector<const TraceCall*> open = OpenCalls(trace);
  if (!open.empty()) absl::StrAppend(&text, "\n");
  for (const TraceCall* const call : open) {
    absl::StrAppend(&text, FormatOpen(trace, *call), "\n");
  }
  if (const size_t different = CountDifferent(trace); different > 0) {
    absl::StrAppend(&text, "\nin ", Counted(static_cast<int64_t>(different), "call"),
                    " the ranks called different things\n");
  }
  return text;
}

Json ToJson(const TraceReport& report) {
  const GroupTrace& trace = report.trace;
  Json json = {{"group", report.group},
               {"generation", report.sources.generation},
               {"world_size", report.sources.world_size},
               {"call_count", trace.calls.size()}};
  if (!report.output.empty()) json["output"] = report.output;
  json["ranks"] = Json::array();
  for (const TraceRank& rank : trace.ranks) {
    json["ranks"].push_back({{"rank", rank.record.rank},
                             {"from", report.sources.from.at(rank.record.rank)},
                             {"host", rank.record.host},
                             {"pid", rank.record.pid},
                             {"generation", rank.record.generation},
                             {"call_count", rank.record.calls.size()},
                             {"last_in_count", rank.last_in},
                             {"waited_for_seconds", Seconds(rank.waited_for)}});
  }
  json["missing"] = Json::array();
  for (const MissingRecord& missing : report.sources.missing) {
    json["missing"].push_back({{"rank", missing.rank}, {"why", missing.why}});
  }
  json["clocks"] = Json::array();
  for (size_t i = 0; i < trace.clocks.size(); ++i) json["clocks"].push_back(ClockJson(report, i));
  json["contradiction_seconds"] = trace.contradiction / 1e9;
  json["longest_waits"] = Json::array();
  for (const TraceCall* const call : LongestWaits(trace, report.top)) {
    json["longest_waits"].push_back(CallJson(trace, *call));
  }
  json["in_flight"] = Json::array();
  for (const TraceCall* const call : OpenCalls(trace)) {
    json["in_flight"].push_back(OpenJson(trace, *call));
  }
  json["different_count"] = CountDifferent(trace);
  return json;
}

}  // namespace cohort::cli
