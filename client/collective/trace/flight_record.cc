#include "client/collective/trace/flight_record.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"

namespace cohort::client {
namespace {

using Json = nlohmann::ordered_json;

// The first key of the file, which tells it from other kinds of files.
constexpr char kRecords[] = "cohort_flight_records";
// The most ranks of a group that a file may claim.
constexpr int kMostRanks = 1 << 20;

void Set(Json& json, const char* name, const std::optional<absl::Time>& time) {
  if (time.has_value()) json[name] = absl::ToUnixNanos(*time);
}

std::optional<absl::Time> TimeAt(const Json& json, const char* name) {
  if (!json.contains(name)) return std::nullopt;
  return absl::FromUnixNanos(json.at(name).get<int64_t>());
}

Json ToJson(const FlightCall& call) {
  Json json = {{"sequence", call.sequence},
               {"generation", call.generation},
               {"number", call.number},
               {"collective", std::string(NameOf(call.collective))},
               {"type", std::string(NameOf(call.type))},
               {"bytes", call.bytes},
               {"root", call.root},
               {"on_stream", call.on_stream},
               {"state", call.state}};
  Set(json, "started_ns", call.started);
  Set(json, "finished_ns", call.finished);
  Set(json, "device_started_ns", call.device_started);
  Set(json, "device_finished_ns", call.device_finished);
  return json;
}

absl::StatusOr<FlightCall> ReadCall(const Json& json) {
  FlightCall call;
  call.sequence = json.at("sequence").get<int64_t>();
  call.generation = json.at("generation").get<int64_t>();
  call.number = json.at("number").get<int64_t>();
  call.collective = FindCollective(json.at("collective").get<std::string>());
  const auto type = json.at("type").get<std::string>();
  const std::optional<DataType> known = FindDataType(type);
  if (!known.has_value()) return absl::InvalidArgumentError(absl::StrCat("no type ", type));
  call.type = *known;
  call.bytes = json.at("bytes").get<int64_t>();
  call.root = json.at("root").get<int>();
  call.on_stream = json.at("on_stream").get<bool>();
  call.state = json.at("state").get<std::string>();
  call.started = absl::FromUnixNanos(json.at("started_ns").get<int64_t>());
  call.finished = TimeAt(json, "finished_ns");
  call.device_started = TimeAt(json, "device_started_ns");
  call.device_finished = TimeAt(json, "device_finished_ns");
  return call;
}

Json ToJson(const FlightRecord& record) {
  Json calls = Json::array();
  for (const FlightCall& call : record.calls) calls.push_back(ToJson(call));
  return {{"tenant", record.tenant},
          {"group", record.group},
          {"generation", record.generation},
          {"rank", record.rank},
          {"world_size", record.world_size},
          {"host", record.host},
          {"pid", record.pid},
          {"clock", record.clock},
          {"calendar_ns", absl::ToInt64Nanoseconds(record.calendar)},
          {"taken_ns", absl::ToUnixNanos(record.taken)},
          {"calls", std::move(calls)}};
}

absl::StatusOr<FlightRecord> ReadRecord(const Json& json) {
  FlightRecord record;
  record.tenant = json.at("tenant").get<std::string>();
  record.group = json.at("group").get<std::string>();
  record.generation = json.at("generation").get<int64_t>();
  record.rank = json.at("rank").get<int>();
  record.world_size = json.at("world_size").get<int>();
  if (record.rank < 0 || record.rank >= record.world_size || record.world_size > kMostRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("a record of rank ", record.rank, " of ", record.world_size));
  }
  record.host = json.at("host").get<std::string>();
  record.pid = json.at("pid").get<int>();
  record.clock = json.at("clock").get<std::string>();
  record.calendar = absl::Nanoseconds(json.at("calendar_ns").get<int64_t>());
  record.taken = absl::FromUnixNanos(json.at("taken_ns").get<int64_t>());
  for (const Json& from : json.at("calls")) {
    COHORT_ASSIGN_OR_RETURN(FlightCall call, ReadCall(from));
    record.calls.push_back(std::move(call));
  }
  return record;
}

}  // namespace

std::string FormatFlightRecords(const std::vector<FlightRecord>& records) {
  Json list = Json::array();
  for (const FlightRecord& record : records) list.push_back(ToJson(record));
  return Json({{kRecords, std::move(list)}}).dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<std::vector<FlightRecord>> ParseFlightRecords(absl::string_view text) {
  // The JSON library throws its errors, with the name of the field or the position.
  try {
    const Json json = Json::parse(text.begin(), text.end());
    if (!json.is_object() || !json.contains(kRecords)) {
      return absl::InvalidArgumentError(absl::StrCat("these are no flight records: no ", kRecords));
    }
    std::vector<FlightRecord> records;
    for (const Json& from : json.at(kRecords)) {
      COHORT_ASSIGN_OR_RETURN(FlightRecord record, ReadRecord(from));
      records.push_back(std::move(record));
    }
    return records;
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("damaged flight records: ", error.what()));
  }
}

absl::Status WriteFlightRecords(const std::string& path, const std::vector<FlightRecord>& records) {
  // Readers see the old file until the rename.
  const std::string beside = absl::StrCat(path, ".", getpid());
  errno = 0;
  std::ofstream out(beside, std::ios::binary | std::ios::trunc);
  out << FormatFlightRecords(records);
  out.close();
  if (out.good() && std::rename(beside.c_str(), path.c_str()) == 0) return absl::OkStatus();
  const std::string why = std::strerror(errno);
  std::remove(beside.c_str());
  return absl::InternalError(absl::StrCat("cannot write ", path, ": ", why));
}

}  // namespace cohort::client
