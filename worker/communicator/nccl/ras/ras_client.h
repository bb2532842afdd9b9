// NCCL's own view of a job: the report of its RAS threads, requested on this machine's socket.
//
// The protocol is lines of text over TCP, as the client that comes with NCCL speaks it: a greeting,
// a time-out, the format, and "STATUS", upon which the report follows until the connection closes.
// The format that programs can read, JSON, is there from 2.28.7 on.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_RAS_RAS_CLIENT_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_RAS_RAS_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace cohort::worker {

struct NcclRasProcess {
  std::string host;  // its address; "unknown"
  int pid = -1;      // as its host counts; -1: not known
  int device = -1;   // as the process counts
};

// A rank that has answered.
struct NcclRasRank {
  int rank = 0;
  NcclRasProcess process;
  int init_state = 0;  // an ncclResult_t, as is the next
  int async_error = 0;
  bool finalizes = false;
  bool is_destroyed = false;
  bool is_aborted = false;
  // How many it has launched, by NCCL's names, such as "AllReduce".
  std::map<std::string, uint64_t> operations;
};

// A rank that has not answered, or does not know of the communicator any more.
struct NcclRasMissingRank {
  int rank = 0;
  NcclRasProcess process;
  bool is_unresponsive = false;  // its process has not answered this question
  bool is_dead = false;          // NCCL has given its process up
};

struct NcclRasCommunicator {
  std::string hash;  // of NCCL's own, with a second part that sets equal ones apart
  int size = 0;
  std::vector<NcclRasRank> ranks;
  std::vector<NcclRasMissingRank> missing;
};

struct NcclRasReport {
  std::string nccl_version;
  std::vector<NcclRasCommunicator> communicators;
  // Requests that were not answered while the report was made: it may then lack something.
  int timeouts = 0;
};

// Errors: DATA_LOSS (not a report; names the fault, and its position).
absl::StatusOr<NcclRasReport> ParseNcclRasReport(absl::string_view json);

// Returns findings for people, a sentence each: ranks that are dead, silent, failed, or behind the
// others in an operation. Empty: all ranks answer, and have launched the same operations.
std::vector<std::string> FindingsOf(const NcclRasCommunicator& communicator);

struct NcclRasOptions {
  // HOST:PORT, of which HOST is "localhost" or a number. Empty: $NCCL_RAS_ADDR, or else where NCCL
  // listens by itself, localhost:28028.
  std::string address;
  size_t most_bytes = size_t{16} << 20;  // of the report
  // The longest wait for NCCL's greeting: other programs of the machine may listen there.
  absl::Duration greeting = absl::InfiniteDuration();
};

// NCCL asks all other processes of the job. It gets the time until `deadline` (steady time) less
// one second, but at least one second, and then answers without the processes that are silent.
//
// Errors: INVALID_ARGUMENT (the address), UNAVAILABLE (no process listens there, or it hangs up),
// DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED (a longer report), FAILED_PRECONDITION (an NCCL before
// 2.28.7), DATA_LOSS (no such answer: another program listens there).
absl::StatusOr<NcclRasReport> AskNcclRas(const NcclRasOptions& options, Instant deadline);

// Returns the error with NCCL's findings on this machine after its text, a few hundred bytes.
// Returns the same error if NCCL has no findings, or does not answer within half a second.
absl::Status WithNcclFindings(const absl::Status& error, const NcclRasOptions& options = {});

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_RAS_RAS_CLIENT_H_
