#include "coordinator/core/members/tensor_waits.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace cohort::coordinator {
namespace {

constexpr size_t kWaitsShown = 100;
constexpr size_t kRanksShown = 64;
// An operation that is younger at its report counts as moving. A rank reports a quarter of a second
// after it was asked, so an operation that hung before the question is older.
constexpr absl::Duration kMoves = absl::Milliseconds(200);
// An operation that all ranks have begun may take this long because it is large.
constexpr absl::Duration kLong = absl::Seconds(10);

class Describer {
 public:
  Describer(Instant now, const GroupContext& context) : now_(now), context_(context) {}

  void Describe(WhoIsMissingReply& reply) {
    const RankSet all_ranks = RankSet::All(context_.world_size);
    for (const int rank : all_ranks.ToVector()) {
      const Member* const member = context_.roster.ByRank(rank);
      if (member == nullptr || !member->live()) continue;
      if (member->owes_report()) reply.unanswered.Add(rank);
      if (!member->tensors.has_value() && !member->owes_report()) reply.unknown.Add(rank);
    }
    std::map<int64_t, RankSet> inside;  // by number
    for (const int rank : all_ranks.ToVector()) {
      const TensorOperation* const open = Open(rank);
      if (open == nullptr) continue;
      if (open->number > 0) {
        inside[open->number].Add(rank);
      } else if (open->begun >= kMoves) {
        AddTransfer(rank, *open);
      }
    }
    for (const auto& [number, ranks] : inside) AddOperation(number, ranks);
    std::stable_sort(waits_.begin(), waits_.end(),
                     [](const TensorWait& a, const TensorWait& b) { return a.age > b.age; });
    if (waits_.size() > kWaitsShown) waits_.resize(kWaitsShown);
    NameRanks(reply);
    reply.tensor_waits = std::move(waits_);
  }

 private:
  const TensorReport* ReportOf(int rank) const {
    const Member* const member = context_.roster.ByRank(rank);
    return member != nullptr && member->tensors.has_value() ? &*member->tensors : nullptr;
  }
  // Null: there is no operation, or it is one of another generation.
  const TensorOperation* OfGeneration(const std::optional<TensorOperation>& operation) const {
    return operation.has_value() && operation->generation == context_.generation ? &*operation
                                                                                 : nullptr;
  }
  const TensorOperation* Open(int rank) const {
    const TensorReport* const report = ReportOf(rank);
    return report == nullptr ? nullptr : OfGeneration(report->open);
  }
  const TensorOperation* Last(int rank) const {
    const TensorReport* const report = ReportOf(rank);
    return report == nullptr ? nullptr : OfGeneration(report->last);
  }
  // Whether the rank's report is the answer to a question.
  bool IsAnswer(int rank) const {
    const Member& member = *context_.roster.ByRank(rank);
    return member.asked_at != absl::InfinitePast() && !member.owes_report();
  }
  absl::Duration Age(int rank, const TensorOperation& operation) const {
    return now_ - context_.roster.ByRank(rank)->tensors_at + operation.begun;
  }
  // The ranks for which the ranks in `inside` sleep.
  RankSet WaitedFor(const RankSet& inside) const {
    RankSet waited_for;
    for (const int rank : inside.ToVector()) {
      for (const int other : RankSet::FromRanges(ReportOf(rank)->waits_for).ToVector()) {
        if (other != rank && other < context_.world_size) waited_for.Add(other);
      }
    }
    return waited_for;
  }

  void AddOperation(int64_t number, const RankSet& inside) {
    TensorWait wait;
    RankSet arrived;
    bool is_passed = false;  // some rank has begun a later one
    for (int rank = 0; rank < context_.world_size; ++rank) {
      const TensorOperation* const last = Last(rank);
      if (last == nullptr || last->number < number) continue;
      arrived.Add(rank);
      is_passed |= last->number > number;
    }
    bool has_answer = false;
    bool is_old = false;
    bool is_silent = false;
    const Collective collective = Open(inside.first())->collective;
    for (const int rank : inside.ToVector()) {
      const TensorOperation& open = *Open(rank);
      arrived.Add(rank);
      has_answer |= IsAnswer(rank);
      is_silent |= context_.roster.ByRank(rank)->owes_report();
      is_old |= open.begun >= kMoves;
      wait.age = std::max(wait.age, Age(rank, open));
    }
    // Reports that were not asked for may be from different times.
    if (!has_answer && is_passed) return;
    if (!is_old && !is_silent) return;
    const RankSet waited_for = WaitedFor(inside);
    const RankSet all_ranks = RankSet::All(context_.world_size);
    const bool is_complete = arrived == all_ranks;
    if (is_complete && waited_for.empty() && !is_silent && wait.age < kLong) return;
    wait.operation = absl::StrCat(NameOf(collective), " #", number);
    wait.missing = context_.roster.Missing(now_, all_ranks, arrived);
    wait.missing.since_first = wait.age;
    wait.inside = inside.ToRanges();
    wait.waited_for = waited_for.ToRanges();
    wait.mismatch = Mismatch(number, collective);
    Add(std::move(wait));
  }

  // The ranks that began another operation than the first rank inside under this number.
  std::string Mismatch(int64_t number, Collective collective) const {
    std::map<absl::string_view, RankSet> others;  // by name
    for (int rank = 0; rank < context_.world_size; ++rank) {
      const TensorOperation* const last = Last(rank);
      if (last != nullptr && last->number == number && last->collective != collective) {
        others[NameOf(last->collective)].Add(rank);
      }
    }
    std::string text;
    for (const auto& [other, ranks] : others) {
      absl::StrAppend(&text, text.empty() ? "" : ", ", cohort::NameRanks(ranks.ToRanges()),
                      " called ", other);
    }
    return text;
  }

  void AddTransfer(int rank, const TensorOperation& open) {
    TensorWait wait;
    RankSet inside;
    inside.Add(rank);
    RankSet peers = WaitedFor(inside);
    wait.inside = inside.ToRanges();
    wait.waited_for = peers.ToRanges();
    wait.age = Age(rank, open);
    // If both ranks are in the transfer, it may just be large.
    const TensorOperation* const other =
        open.peer >= 0 && open.peer < context_.world_size ? Open(open.peer) : nullptr;
    const bool matches = other != nullptr && other->number == 0 && other->peer == rank;
    if (matches && peers.empty() && wait.age < kLong) return;
    if (peers.empty() && open.peer >= 0 && open.peer < context_.world_size) peers.Add(open.peer);
    wait.operation = std::string(NameOf(open.collective));
    if (!peers.empty()) {
      absl::StrAppend(&wait.operation, " with ", cohort::NameRanks(peers.ToRanges()));
    }
    wait.missing = context_.roster.Missing(now_, peers, RankSet());
    wait.missing.since_first = wait.age;
    Add(std::move(wait));
  }

  void Add(TensorWait wait) {
    for (const int rank : RankSet::FromRanges(wait.missing.missing).ToVector()) named_.Add(rank);
    for (const int rank : RankSet::FromRanges(wait.waited_for).ToVector()) named_.Add(rank);
    waits_.push_back(std::move(wait));
  }

  void NameRanks(WhoIsMissingReply& reply) {
    for (const int rank : reply.unanswered.ToVector()) named_.Add(rank);
    for (const int rank : reply.unknown.ToVector()) named_.Add(rank);
    for (const int rank : named_.ToVector()) {
      if (reply.ranks.size() == kRanksShown) break;
      RankReport& report = reply.ranks.emplace_back();
      report.rank = rank;
      const Member* const member = context_.roster.ByRank(rank);
      if (member == nullptr) continue;
      report.member = member->name;
      report.host = member->host;
      report.last_heard = now_ - member->last_heard;
      if (!member->tensors.has_value()) continue;
      report.reported = now_ - member->tensors_at;
      report.tensors = *member->tensors;
    }
  }

  const Instant now_;
  const GroupContext& context_;
  std::vector<TensorWait> waits_;
  RankSet named_;
};

}  // namespace

void DescribeTensorWaits(Instant now, const GroupContext& context, WhoIsMissingReply& reply) {
  Describer(now, context).Describe(reply);
}

}  // namespace cohort::coordinator
