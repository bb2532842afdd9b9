// Finds the flight records of a group's ranks: in the workers that the coordinator knows or in
// given ones, and in files.
#ifndef COHORT_CLIENT_CLI_TRACE_TRACE_SOURCES_H_
#define COHORT_CLIENT_CLI_TRACE_TRACE_SOURCES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/context/command_context.h"
#include "client/collective/trace/flight_record.h"

namespace cohort::cli {

struct TraceRequest {
  std::string group;
  std::vector<std::string> workers;  // empty: the workers that the coordinator knows
  std::vector<std::string> files;
  bool offline = false;  // the coordinator is not asked
};

// A rank without a record.
struct MissingRecord {
  int rank = 0;
  std::string who;  // such as: rank 3 (trainer-3 on host-a)
  std::string why;
};

struct TraceSources {
  int64_t generation = 0;
  int world_size = 0;
  std::vector<client::FlightRecord> records;  // at most one for each rank
  std::map<int, std::string> from;            // by rank: an address or a file
  std::vector<MissingRecord> missing;         // by rank
};

// Asks all workers at once, until the command's timeout. Errors: those of GetGroup, unless workers
// or files are given; those of files, which are named; NOT_FOUND (a file is of other groups).
absl::StatusOr<TraceSources> FindRecords(Context& context, const TraceRequest& request);

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_TRACE_TRACE_SOURCES_H_
