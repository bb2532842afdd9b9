// All collectives with all types, reductions, sizes and roots, in place or not. Each rank makes the
// same list from a seed, and runs it with the others.
#ifndef COHORT_WORKER_GROUP_TESTING_RANK_PROGRAM_COLLECTIVE_TABLE_H_
#define COHORT_WORKER_GROUP_TESTING_RANK_PROGRAM_COLLECTIVE_TABLE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/communicator/arguments.h"
#include "worker/communicator/communicator.h"
#include "worker/group/testing/rank_program/backend.h"

namespace cohort::testing {

struct Cell {
  uint32_t number = 0;     // determines the ranks' inputs
  bool exchanges = false;  // to the next rank, from the one before; else runs `operation`
  FlatCall operation;
  bool in_place = false;
  int shift = 0;  // elements between the beginning of an allocation and the tensors
};

// Such as: all_reduce of 37 bf16 by sum, in place.
std::string Describe(const Cell& cell);

// Returns each collective, type, reduction that `reduces` accepts, and size (zero, one, odd, and
// around 1 MiB) once. The root, in-place calls, the address and the order are random.
std::vector<Cell> MakeTable(uint32_t seed, int ranks,
                            const std::function<bool(DataType, ReduceOp)>& reduces);

// Runs cells on one rank. One thread at a time.
class TableRun {
 public:
  // `communicator` and `backend` outlive it.
  TableRun(Backend& backend, worker::Communicator& communicator, uint32_t seed,
           absl::Duration timeout)
      : backend_(backend), communicator_(communicator), seed_(seed), timeout_(timeout) {}

  // Errors: those of the collective, after the name of the cell; DATA_LOSS (the result is wrong, or
  // other memory was written).
  absl::Status Run(const Cell& cell);

  // The digest of all results so far that all ranks have alike, bit by bit.
  uint64_t digest() const { return digest_; }

 private:
  // The offsets of a cell's tensors in an allocation.
  struct Layout {
    size_t bytes = 0;
    size_t input = 0;
    size_t input_bytes = 0;
    size_t output = 0;
    size_t output_bytes = 0;
  };
  Layout LayOut(const Cell& cell) const;
  absl::Status Call(const Cell& cell, const Layout& layout);
  absl::Status Check(const Cell& cell, absl::string_view output) const;
  absl::Status RunCell(const Cell& cell);

  Backend& backend_;
  worker::Communicator& communicator_;
  const uint32_t seed_;
  const absl::Duration timeout_;
  uint64_t digest_ = 0xCBF29CE484222325u;
  char* memory_ = nullptr;
  size_t memory_bytes_ = 0;
};

}  // namespace cohort::testing

#endif  // COHORT_WORKER_GROUP_TESTING_RANK_PROGRAM_COLLECTIVE_TABLE_H_
