// The last calls of ranks, as a daemon returns them and as a file keeps them.
#ifndef COHORT_CLIENT_COLLECTIVE_TRACE_FLIGHT_RECORD_H_
#define COHORT_CLIENT_COLLECTIVE_TRACE_FLIGHT_RECORD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/collective/collective.h"
#include "base/tensor/data_type.h"

namespace cohort::client {

// One call of a rank.
struct FlightCall {
  int64_t sequence = 0;  // counts the rank's calls, from 1
  int64_t generation = 0;
  // Counts, from 1, the calls of the generation that all ranks make: a call has the same number on
  // all ranks. 0: a transfer between some ranks.
  int64_t number = 0;
  Collective collective = Collective::kUnknown;
  DataType type = DataType::kU8;
  int64_t bytes = 0;
  int root = -1;           // or the peer of a single transfer; -1: no root
  bool on_stream = false;  // it returned once its work was enqueued
  absl::Time started;      // of the calendar clock where it ran
  std::optional<absl::Time> finished;
  // "running"; "enqueued" (a stream has not come to it); "running on the device"; "OK", or the name
  // of the error
  std::string state;
  // When its work on a device began and ended, if it had any.
  std::optional<absl::Time> device_started;
  std::optional<absl::Time> device_finished;
};

// The last calls of a rank, oldest first.
struct FlightRecord {
  std::string tenant;
  std::string group;
  int64_t generation = 0;
  int rank = 0;
  int world_size = 0;
  std::string host;  // where the calls run, and in which process
  int pid = 0;
  // The steady clock that timed the calls: the same text is the same clock. Empty: unknown. Times
  // are that clock's, with `calendar` added.
  std::string clock;
  absl::Duration calendar;
  absl::Time taken;  // when this was read, as the calls' times
  std::vector<FlightCall> calls;
};

// Writes records as the text of a file, and parses it. For ranks that do not answer requests, such
// as those of a LocalGroup, and for daemons that are asked only on their own host.
std::string FormatFlightRecords(const std::vector<FlightRecord>& records);
// Errors: INVALID_ARGUMENT (the text is not of records, or damaged: says where).
absl::StatusOr<std::vector<FlightRecord>> ParseFlightRecords(absl::string_view text);

// Creates or replaces `path` at once. Errors: INTERNAL (it cannot be written; names it).
absl::Status WriteFlightRecords(const std::string& path, const std::vector<FlightRecord>& records);

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_TRACE_FLIGHT_RECORD_H_
