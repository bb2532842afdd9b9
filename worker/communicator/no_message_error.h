// The error of a wait for messages that did not arrive.
#ifndef COHORT_WORKER_COMMUNICATOR_NO_MESSAGE_ERROR_H_
#define COHORT_WORKER_COMMUNICATOR_NO_MESSAGE_ERROR_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/rank_set.h"

namespace cohort::worker {

// Keeps the error for each single rank, because a caller that polls gets it most of the time. Used
// by one thread at a time.
class NoMessageError {
 public:
  // DEADLINE_EXCEEDED. `peers` are those of AwaitMessage.
  absl::Status Of(absl::Span<const int> peers) {
    if (peers.size() != 1) {
      RankSet ranks;
      for (const int peer : peers) ranks.Add(peer);
      return Error(ranks.ToString());
    }
    const auto peer = static_cast<size_t>(peers[0]);
    if (of_one_.size() <= peer) of_one_.resize(peer + 1);
    if (of_one_[peer].ok()) of_one_[peer] = Error(absl::StrCat(peer));
    return of_one_[peer];
  }

 private:
  static absl::Status Error(absl::string_view ranks) {
    return absl::DeadlineExceededError(absl::StrCat("no message of rank ", ranks));
  }

  std::vector<absl::Status> of_one_;  // by rank; OK: not made yet
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NO_MESSAGE_ERROR_H_
