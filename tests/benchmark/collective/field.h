// The participants of the collective benchmark: teams, and the ways in which they run an operation.
//
// An implementation is added by a program of its members (member.h, member_main.h) and a function
// that adds its team and entrants to the field; MakeField calls it.
#ifndef COHORT_TESTS_BENCHMARK_COLLECTIVE_FIELD_H_
#define COHORT_TESTS_BENCHMARK_COLLECTIVE_FIELD_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/benchmark/collective/processes/team.h"
#include "tests/benchmark/collective/processes/work.h"
#include "tests/failure/testing/host_network.h"

namespace cohort::benchmark {

// One way in which one team runs some operations. The table shows, in each cell, the best of the
// entrants that stand for the same implementation (and memory).
struct Entrant {
  std::vector<std::string> implementations;  // the rows that it stands for
  std::string label;                         // what the table calls it, where there are several
  Team* team = nullptr;
  std::vector<Collective> collectives;
  int64_t max_bytes = std::numeric_limits<int64_t>::max();
  Memory memory = Memory::kPlain;
  bool names_memory = false;  // whether the row has a field "memory"
  std::string way;            // as the member knows it

  int failures = 0;  // so far
};

struct Field {
  std::vector<std::unique_ptr<Team>> teams;
  std::vector<Entrant> entrants;
};

struct FieldOptions {
  int members = 2;
  int cores = 1;
  std::string programs;        // the folder that holds the programs of the members
  std::string scratch;         // a folder for logs and sockets
  std::string memory_scratch;  // one in memory (/dev/shm), for what Open MPI shares; may be empty
  std::string mpirun;
  std::string coordinator;  // the program
  std::string worker;       // the program
  absl::Duration deadline = absl::Seconds(20);
  std::vector<std::string> implementations;  // only these; empty: all
  // Where each rank is on a host of its own; null: all on this one.
  const testing::HostNetwork* hosts = nullptr;
};

// The order of entrants is that in which they run.
Field MakeField(const FieldOptions& options);

// Adds a team and returns it, for entrants to name.
Team* AddTeam(const FieldOptions& options, const std::string& name,
              std::function<std::vector<Command>(const Command& arguments)> commands, Field& field);

// Each adds one implementation.
void AddCohort(const FieldOptions& options, Field& field);
void AddOpenMpi(const FieldOptions& options, Field& field);
void AddGloo(const FieldOptions& options, Field& field);
void AddLimit(const FieldOptions& options, Field& field);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_COLLECTIVE_FIELD_H_
