#include "worker/group/membership/rank_membership.h"

#include <optional>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "client/collective/trace/path_report.h"
#include "client/rendezvous/store_client.h"
#include "worker/group/membership/watch_thread.h"

namespace cohort::worker {
namespace {

using client::EventKind;

// The reason of a member that leaves because its ProcessGroup is destroyed. Another reason is a
// failure, such as an exception.
constexpr absl::string_view kInOrder = "destroyed";
constexpr absl::Duration kNoteTimeout = absl::Seconds(2);
constexpr absl::Duration kReportTimeout = absl::Seconds(5);

// Such as: rank 3 (trainer-3 on host-a) ended the generation: LEASE_EXPIRED, nothing heard for 30s.
std::string Describe(const client::GroupEvent& event) {
  const client::Cause& cause = event.cause;
  std::string text;
  const std::optional<int> rank = cause.rank.has_value() ? cause.rank : event.rank;
  const std::string& member = cause.member.empty() ? event.member : cause.member;
  if (rank.has_value()) absl::StrAppend(&text, "rank ", *rank, " ");
  if (!member.empty()) {
    absl::StrAppend(&text, "(", member, cause.host.empty() ? "" : absl::StrCat(" on ", cause.host),
                    ") ");
  }
  absl::StrAppend(&text, text.empty() ? "the group: " : "ended the generation: ",
                  client::CauseKindName(cause.kind));
  if (!cause.detail.empty()) absl::StrAppend(&text, ", ", cause.detail);
  return text;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankMembership>> RankMembership::Join(
    RankMembershipOptions options) {
  auto rank_membership = absl::WrapUnique(new RankMembership(std::move(options)));
  client::ProcessGroupOptions& membership = rank_membership->options_.membership;
  if (membership.shared_connection == nullptr) {
    COHORT_ASSIGN_OR_RETURN(membership.shared_connection,
                            client::Connection::Create(membership.connection));
  }
  rank_membership->connection_ = membership.shared_connection;
  membership.on_event = [rank_membership = rank_membership.get(),
                         next = membership.on_event](const client::GroupEvent& event) {
    rank_membership->OnEvent(event);
    if (next != nullptr) next(event);
  };
  COHORT_ASSIGN_OR_RETURN(rank_membership->process_group_,
                          client::ProcessGroup::Create(membership));
  rank_membership->MarkComplete();
  return rank_membership;
}

RankMembership::~RankMembership() {
  StopWatching();
  process_group_.reset();
}

absl::StatusOr<Connections> RankMembership::Connect(absl::Duration timeout) {
  StopWatching();
  BootstrapOptions bootstrap = options_.bootstrap;
  bootstrap.timeout = timeout;
  COHORT_ASSIGN_OR_RETURN(ConnectedRanks connected,
                          ConnectRanks(*process_group_, connection_->options().address, bootstrap));
  if (process_group_->rank() == 0) StorePaths(connected);
  if (connected.links.empty()) return std::move(connected.connections);
  // The watch begins here, so that it sees connections that close before Notify.
  COHORT_ASSIGN_OR_RETURN(std::shared_ptr<WatchThread> watch_thread, WatchThread::Shared());
  MutexLock lock(&watch_mutex_);
  watch_ =
      std::make_unique<PeerProcessWatch>(
          std::move(watch_thread), std::move(connected.links),
          [this, generation = process_group_->generation()](int rank, bool left,
                                                            const std::string& cause) {
            MutexLock lock(&mutex_);
            left ? LeftLocked(generation, rank, cause) : EndLocked(generation, cause);
          });
  return std::move(connected.connections);
}

void RankMembership::Notify(Callbacks callbacks) {
  MutexLock lock(&mutex_);
  for (const auto& [rank, cause] : left_) callbacks.on_left(rank, cause);
  if (ended_generation_ == generation_) return callbacks.on_end(cause_);
  callbacks_ = std::move(callbacks);
}

void RankMembership::StopWatching() {
  {
    MutexLock lock(&mutex_);
    callbacks_ = {};
  }
  MutexLock lock(&watch_mutex_);
  watch_.reset();
}

absl::StatusOr<Connections> RankMembership::Rejoin(absl::Duration timeout) {
  const Instant deadline = Clock::Steady().Now() + timeout;
  const auto left = [deadline] { return deadline - Clock::Steady().Now(); };
  const std::string why =
      absl::StrCat("rank ", process_group_->rank(), " goes on in the next generation");
  while (true) {
    StopWatching();
    // Ranks of one host notice a death long before the coordinator, for which the generation may
    // still be complete. ABORTED means that it has ended there already, which is no error.
    const absl::Status reported = process_group_->ReportError(why, /*fatal=*/true);
    if (!reported.ok() && !absl::IsAborted(reported)) return reported;
    COHORT_RETURN_IF_ERROR(process_group_->Rejoin(left()));
    MarkComplete();
    absl::StatusOr<Connections> connected = Connect(left());
    // The next generation may end as well, before its ranks are connected.
    if (!absl::IsAborted(connected.status()) || left() <= absl::ZeroDuration()) return connected;
  }
}

void RankMembership::EndForAll(const std::string& why) {
  {
    MutexLock lock(&watch_mutex_);
    if (watch_ != nullptr) watch_->SayGoodbye(why);
  }
  client::AsyncOptions options;
  options.timeout = kReportTimeout;
  process_group_->async().ReportError(why, /*fatal=*/true, {}, options, [](const absl::Status&) {});
}

void RankMembership::StorePaths(const ConnectedRanks& connected) {
  const client::PathReport note = {process_group_->generation(), connected.connections.hosts,
                                   connected.why_not_of_all,
                                   connected.connections.tls_secret.has_value()};
  // The note is for people; the group works without it.
  client::StoreClient::Create(connection_, process_group_->group())
      ->Put(client::kPathReportKey, client::EncodePathReport(note), {}, kNoteTimeout)
      .IgnoreError();
}

void RankMembership::OnEvent(const client::GroupEvent& event) {
  const bool closes = event.kind == EventKind::kBroken || event.kind == EventKind::kClosed;
  const bool goes = event.kind == EventKind::kLost || event.kind == EventKind::kLeft;
  if (!closes && !goes) return;
  MutexLock lock(&mutex_);
  if (closes) return EndLocked(event.generation, Describe(event));
  const bool in_order = event.kind == EventKind::kLeft && event.cause.detail == kInOrder;
  const std::optional<int> left = in_order ? event.rank : std::nullopt;
  const std::string cause =
      left.has_value() ? absl::StrCat("rank ", *left, " left the group") : Describe(event);
  // While a generation forms, a member may leave its rank to another member.
  if (event.generation > generation_) {
    early_.push_back({event.generation, event.revision, left, cause});
  } else if (event.revision > revision_) {
    left.has_value() ? LeftLocked(event.generation, *left, cause)
                     : EndLocked(event.generation, cause);
  }
}

void RankMembership::MarkComplete() {
  MutexLock lock(&mutex_);
  generation_ = process_group_->generation();
  revision_ = process_group_->revision();
  left_.clear();
  for (const Early& early : early_) {
    if (early.revision <= revision_) continue;
    early.left.has_value() ? LeftLocked(early.generation, *early.left, early.cause)
                           : EndLocked(early.generation, early.cause);
  }
  early_.clear();
}

void RankMembership::LeftLocked(int64_t generation, int rank, const std::string& cause) {
  if (generation != generation_ || !left_.emplace(rank, cause).second) return;
  if (callbacks_.on_left != nullptr) callbacks_.on_left(rank, cause);
}

void RankMembership::EndLocked(int64_t generation, const std::string& cause) {
  // A late event of an old generation does not end the present one, even if the old one showed its
  // end by a deadline alone. The first cause stays.
  if (generation <= ended_generation_ || generation < generation_) return;
  ended_generation_ = generation;
  cause_ = cause;
  if (callbacks_.on_end != nullptr) std::exchange(callbacks_, {}).on_end(cause_);
}

}  // namespace cohort::worker
