// Where the flight records of a group's ranks are found: in the workers that the coordinator knows
// of, or others, and in files.
#ifndef COHORT_CLIENT_CLI_TRACE_SOURCES_H_
#define COHORT_CLIENT_CLI_TRACE_SOURCES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/command.h"
#include "client/collective/flight_record.h"

namespace cohort::cli {

struct TraceRequest {
  std::string group;
  std::vector<std::string> workers;  // empty: those that the coordinator knows of
  std::vector<std::string> files;
  bool offline = false;  // the coordinator is not asked
};

// A rank of which there is no record.
struct MissingRecord {
  int rank = 0;
  std::string who;  // such as: rank 3 (trainer-3 on host-a)
  std::string why;
};

struct TraceSources {
  int64_t generation = 0;
  int world_size = 0;
  std::vector<client::FlightRecord> records;  // of each rank at most one
  std::map<int, std::string> from;            // by rank: an address or a file
  std::vector<MissingRecord> missing;         // by rank
};

// Asks all workers at once, until the command's timeout. Errors: those of GetGroup, unless workers
// or files are given; those of files, which are named; NOT_FOUND (a file is of other groups).
absl::StatusOr<TraceSources> FindRecords(Context& context, const TraceRequest& request);

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_TRACE_SOURCES_H_
