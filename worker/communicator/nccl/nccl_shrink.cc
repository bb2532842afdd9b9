// How the ranks that are left of a group go on.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/rank_set.h"
#include "base/status_macros.h"
#include "worker/communicator/nccl/nccl_communicator.h"

namespace cohort::worker {
namespace {

constexpr size_t kMaxText = 400;

// The data that each rank that is left sends to the others, before and after the attempt.
struct Word {
  int32_t code = 0;
  int32_t broken = 0;
  uint64_t list = 0;  // a digest of the ranks that are gone
  char text[kMaxText] = {};

  void Say(absl::string_view what) {
    std::copy_n(what.data(), std::min(what.size(), kMaxText - 1), text);
  }
  std::string said() const { return std::string(text, strnlen(text, kMaxText)); }
};

absl::StatusOr<std::vector<Word>> GatherWords(Communicator& host, const Word& own,
                                              Instant deadline) {
  std::vector<Word> words(static_cast<size_t>(host.size()));
  COHORT_RETURN_IF_ERROR(host.AllGather(&own, words.data(), sizeof(own), DataType::kU8, deadline));
  return words;
}

// A rank that fails sends each of the others a byte, so that no rank goes on waiting for it.
absl::Status ReportFailure(Communicator& host, Instant deadline) {
  const char byte = 1;
  std::vector<Transfer> messages;
  for (int peer = 0; peer < host.size(); ++peer) {
    if (peer != host.rank()) messages.push_back(Transfer::Send(peer, &byte, 1, DataType::kU8));
  }
  return host.Exchange(messages, deadline);
}

// Receives the bytes of the ranks that failed, so that no message is left behind.
absl::Status TakeFailures(Communicator& host, const std::vector<Word>& words, Instant deadline) {
  std::vector<char> bytes(words.size());
  std::vector<Transfer> messages;
  for (size_t peer = 0; peer < words.size(); ++peer) {
    if (words[peer].code == 0 || static_cast<int>(peer) == host.rank()) continue;
    messages.push_back(Transfer::Receive(static_cast<int>(peer), &bytes[peer], 1, DataType::kU8));
  }
  return host.Exchange(messages, deadline);
}

absl::Status AnyFailed(Communicator& host) {
  for (int peer = 0; peer < host.size(); ++peer) {
    if (peer == host.rank()) continue;
    COHORT_ASSIGN_OR_RETURN(const bool failed, host.HasMessage(peer));
    if (failed) return absl::AbortedError(absl::StrCat("rank ", peer, " has failed in it"));
  }
  return absl::OkStatus();
}

std::string NameOf(const RankSet& gone) {
  return gone.empty() ? "any ranks" : absl::StrCat("ranks ", gone.ToString());
}

// Why this list and host are invalid, or OK.
absl::Status CheckRemainder(const NcclRemainder& remainder, const RankSet& gone, int rank,
                            int size) {
  const auto is_none = [size](int r) { return r < 0 || r >= size; };
  if (std::any_of(remainder.gone.begin(), remainder.gone.end(), is_none)) {
    return absl::InvalidArgumentError(absl::StrCat("there are no such ranks in a group of ", size));
  }
  if (gone.empty()) return absl::InvalidArgumentError("the list of lost ranks is empty");
  if (gone.Contains(rank)) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " itself is among them"));
  }
  const int left = size - gone.count();
  const int new_rank = rank - gone.CountBelow(rank);
  if (remainder.host->size() == left && remainder.host->rank() == new_rank) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("rank ", rank, " is to be rank ", new_rank, " of ", left, ", and comes as rank ",
                   remainder.host->rank(), " of ", remainder.host->size()));
}

// Compares the lists of the lost ranks. `valid` is what CheckRemainder says of the list of this
// rank. Returns whether the group is broken on any rank. Errors: INVALID_ARGUMENT (a list is
// invalid, or the lists differ), those of the host.
absl::StatusOr<bool> AgreeOnGone(Communicator& host, const RankSet& gone, const absl::Status& valid,
                                 bool broken_here, Instant deadline) {
  Word own;
  own.code = static_cast<int32_t>(valid.code());
  own.Say(valid.ok() ? NameOf(gone) : absl::StrCat(NameOf(gone), ": ", valid.message()));
  for (const int r : gone.ToVector()) own.list = own.list * 1000003 + static_cast<uint64_t>(r) + 1;
  own.broken = broken_here ? 1 : 0;
  COHORT_ASSIGN_OR_RETURN(const std::vector<Word> words, GatherWords(host, own, deadline));
  bool broken = false;
  for (size_t r = 0; r < words.size(); ++r) {
    broken = broken || words[r].broken != 0;
    if (words[r].code != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("remaining rank ", r, " continues without ", words[r].said()));
    }
    if (words[r].list != words[0].list) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the remaining ranks disagree on the lost ranks: remaining rank 0 continues without ",
          words[0].said(), "; remaining rank ", r, " without ", words[r].said()));
    }
  }
  return broken;
}

// Exchanges how the attempt ended on each rank. Returns OK if all have succeeded. Otherwise returns
// the failure of one rank, the same on all of them.
absl::Status AgreeOnOutcome(Communicator& host, const absl::Status& status, Instant deadline) {
  Word own;
  own.code = static_cast<int32_t>(status.code());
  own.Say(status.message());
  if (!status.ok()) COHORT_RETURN_IF_ERROR(ReportFailure(host, deadline));
  COHORT_ASSIGN_OR_RETURN(const std::vector<Word> outcomes, GatherWords(host, own, deadline));
  COHORT_RETURN_IF_ERROR(TakeFailures(host, outcomes, deadline));
  // A rank that was stopped by another's failure is named only if no other has failed.
  for (const bool aborted : {false, true}) {
    for (size_t r = 0; r < outcomes.size(); ++r) {
      const auto code = static_cast<absl::StatusCode>(outcomes[r].code);
      if (code == absl::StatusCode::kOk || (code == absl::StatusCode::kAborted) != aborted) {
        continue;
      }
      return absl::Status(code, absl::StrCat("remaining rank ", r, ": ", outcomes[r].said()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Shrink(
    const NcclRemainder& remainder, Instant deadline) {
  Communicator& host = *remainder.host;
  RankSet gone;
  for (const int r : remainder.gone) {
    if (r >= 0) gone.Add(r);
  }
  const absl::Status valid = CheckRemainder(remainder, gone, rank(), size());
  // In a group that works, operations in flight finish first, within half of the time.
  const Instant begin = Clock::Steady().Now();
  const absl::Status standing = valid.ok() ? Await(begin + (deadline - begin) / 2) : Broken();
  COHORT_ASSIGN_OR_RETURN(const bool broken,
                          AgreeOnGone(host, gone, valid, !standing.ok(), deadline));
  // After the attempt, ranks need time to exchange its outcome.
  const Instant now = Clock::Steady().Now();
  const Instant attempt_ends = now + (deadline - now) * 3 / 4;
  absl::Status ended = absl::AbortedError(
      absl::StrCat("the group goes on without ", NameOf(gone), ", as another group"));
  if (broken) {
    Break(ended).IgnoreError();
  } else {
    MutexLock lock(&mutex_);
    broken_ = ended;
  }
  NcclCommunicatorInit init;
  init.nccl = nccl_;
  init.device = clique_->device();
  init.compute_capability = compute_capability_;
  init.name = remainder.name;
  init.host = remainder.host;
  init.agreement = remainder.agreement;
  init.progress = progress_;
  init.operation_log = remainder.operation_log;
  absl::StatusOr<std::unique_ptr<NcclCommunicator>> result = Prepare(std::move(init));
  absl::Status status = result.status();
  if (status.ok()) {
    absl::StatusOr<std::unique_ptr<NcclClique>> shrunk = clique_->Shrink(
        gone.ToVector(), broken, remainder.name, attempt_ends, [&] { return AnyFailed(host); });
    status = shrunk.status();
    if (shrunk.ok()) (*result)->clique_ = *std::move(shrunk);
  }
  if (const absl::Status failure = AgreeOnOutcome(host, status, deadline); !failure.ok()) {
    if (result.ok() && (*result)->clique_ != nullptr) (*result)->clique_->Revoke();
    return failure;
  }
  COHORT_RETURN_IF_ERROR((*result)->AgreeOnInit(deadline));
  return result;
}

}  // namespace cohort::worker
