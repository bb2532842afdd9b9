// The compared implementations: their rank processes, and the variants in which they run a call.
//
// An implementation is added by a program of its members (member.h, member_main.h) and a function
// that adds its processes and variants; MakeImplementations calls it.
#ifndef COHORT_TESTS_BENCHMARK_COLLECTIVE_IMPLEMENTATIONS_H_
#define COHORT_TESTS_BENCHMARK_COLLECTIVE_IMPLEMENTATIONS_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/benchmark/collective/processes/member_processes.h"
#include "tests/benchmark/collective/processes/work.h"
#include "tests/failure/testing/host_network.h"

namespace cohort::benchmark {

// One setting or algorithm of one implementation, for some operations. The table shows, for each
// size, the best of the variants that stand for the same row (and memory).
struct Variant {
  std::vector<std::string> rows;  // the implementations that the table names for it
  std::string label;              // what the table calls it, where there are several
  MemberProcesses* processes = nullptr;
  std::vector<Collective> collectives;
  int64_t max_bytes = std::numeric_limits<int64_t>::max();
  Memory memory = Memory::kPlain;
  bool names_memory = false;  // whether the row has a field "memory"
  std::string algorithm;      // as the member knows it

  int failures = 0;  // so far
};

struct Implementations {
  std::vector<std::unique_ptr<MemberProcesses>> processes;
  std::vector<Variant> variants;
};

struct ImplementationOptions {
  int members = 2;
  int cores = 1;
  std::string programs;        // the folder that holds the programs of the members
  std::string scratch;         // a folder for logs and sockets
  std::string memory_scratch;  // one in memory (/dev/shm), for what Open MPI shares; may be empty
  std::string mpirun;
  std::string coordinator;  // the program
  std::string worker;       // the program
  // A folder of deploy/certificates.sh with a name `rank`; empty: without cohort-tcp-tls.
  std::string certificates;
  // For the implementations in Python; the first is empty: without them.
  std::string python;          // the interpreter
  std::string python_member;   // the member's program
  std::string python_package;  // the folder that holds the package `cohort`
  absl::Duration deadline = absl::Seconds(20);
  std::vector<std::string> names;  // only these; empty: all
  // Where each rank is on a host of its own; null: all on this one.
  const testing::HostNetwork* hosts = nullptr;
};

// The order of variants is that in which they run.
Implementations MakeImplementations(const ImplementationOptions& options);

// Adds the processes of one implementation and returns them, for variants to name.
MemberProcesses* AddMemberProcesses(
    const ImplementationOptions& options, const std::string& name,
    std::function<std::vector<Command>(const Command& arguments)> commands,
    Implementations& implementations);

// Each adds one implementation.
void AddCohort(const ImplementationOptions& options, Implementations& implementations);
void AddOpenMpi(const ImplementationOptions& options, Implementations& implementations);
void AddGloo(const ImplementationOptions& options, Implementations& implementations);
void AddLimit(const ImplementationOptions& options, Implementations& implementations);
void AddPython(const ImplementationOptions& options, Implementations& implementations);

// The coordinator of Cohort's members, which listens on the socket `coordinator` of their folder.
Command CoordinatorCommand(const ImplementationOptions& options, const Command& arguments);
// The folder that all members of one start share, from their arguments.
std::string FolderOf(const Command& arguments);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_COLLECTIVE_IMPLEMENTATIONS_H_
