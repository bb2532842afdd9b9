#include "worker/group/seat.h"

#include <optional>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "client/collective/path_note.h"
#include "client/rendezvous/store_client.h"
#include "worker/group/supervisor.h"

namespace cohort::worker {
namespace {

using client::EventKind;

constexpr absl::Duration kNotePatience = absl::Seconds(2);

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

absl::StatusOr<std::unique_ptr<Seat>> Seat::Take(SeatOptions options) {
  auto seat = absl::WrapUnique(new Seat(std::move(options)));
  client::ProcessGroupOptions& membership = seat->options_.membership;
  if (membership.shared_connection == nullptr) {
    COHORT_ASSIGN_OR_RETURN(membership.shared_connection,
                            client::Connection::Create(membership.connection));
  }
  seat->connection_ = membership.shared_connection;
  membership.on_event = [seat = seat.get(),
                         next = membership.on_event](const client::GroupEvent& event) {
    seat->OnEvent(event);
    if (next != nullptr) next(event);
  };
  COHORT_ASSIGN_OR_RETURN(seat->membership_, client::ProcessGroup::Create(membership));
  seat->Stand();
  return seat;
}

Seat::~Seat() {
  Disregard();
  membership_.reset();
}

absl::StatusOr<Connections> Seat::Meet(absl::Duration timeout) {
  Disregard();
  BootstrapOptions bootstrap = options_.bootstrap;
  bootstrap.timeout = timeout;
  COHORT_ASSIGN_OR_RETURN(MetRanks met,
                          MeetRanks(*membership_, connection_->options().address, bootstrap));
  if (membership_->rank() == 0) NotePaths(met);
  if (met.links.empty()) return std::move(met.connections);
  // The watch begins here, so that it sees connections that close before Attend.
  COHORT_ASSIGN_OR_RETURN(std::shared_ptr<Supervisor> supervisor, Supervisor::Shared());
  MutexLock lock(&watch_mutex_);
  watch_ = std::make_unique<HostWatch>(std::move(supervisor), std::move(met.links),
                                       [this, generation = membership_->generation()](
                                           const std::string& cause) { End(generation, cause); });
  return std::move(met.connections);
}

void Seat::Attend(std::function<void(const std::string&)> on_end) {
  MutexLock lock(&mutex_);
  // The generation may have ended before this call.
  if (ended_generation_ == generation_) return on_end(cause_);
  on_end_ = std::move(on_end);
}

void Seat::Disregard() {
  {
    MutexLock lock(&mutex_);
    on_end_ = nullptr;
  }
  MutexLock lock(&watch_mutex_);
  watch_.reset();
}

absl::StatusOr<Connections> Seat::Rejoin(absl::Duration timeout) {
  const Instant deadline = Clock::Steady().Now() + timeout;
  const auto left = [deadline] { return deadline - Clock::Steady().Now(); };
  const std::string why =
      absl::StrCat("rank ", membership_->rank(), " goes on in the next generation");
  while (true) {
    Disregard();
    // Ranks of one host notice a death long before the coordinator, for which the generation may
    // still be complete. ABORTED means that it has ended there already, which is no error.
    const absl::Status reported = membership_->ReportError(why, /*fatal=*/true);
    if (!reported.ok() && !absl::IsAborted(reported)) return reported;
    COHORT_RETURN_IF_ERROR(membership_->Rejoin(left()));
    Stand();
    absl::StatusOr<Connections> met = Meet(left());
    // The next generation may end as well, before its ranks are connected.
    if (!absl::IsAborted(met.status()) || left() <= absl::ZeroDuration()) return met;
  }
}

void Seat::Tell(const std::string& why) {
  MutexLock lock(&watch_mutex_);
  if (watch_ != nullptr) watch_->SayGoodbye(why);
}

void Seat::NotePaths(const MetRanks& met) {
  const client::PathNote note = {membership_->generation(), met.connections.hosts,
                                 met.why_not_of_all};
  // The note is for people; the group works without it.
  client::StoreClient::Create(connection_, membership_->group())
      ->Put(client::kPathNoteKey, client::EncodePathNote(note), {}, kNotePatience)
      .IgnoreError();
}

void Seat::OnEvent(const client::GroupEvent& event) {
  const bool closes = event.kind == EventKind::kBroken || event.kind == EventKind::kClosed;
  const bool goes = event.kind == EventKind::kLost || event.kind == EventKind::kLeft;
  if (!closes && !goes) return;
  MutexLock lock(&mutex_);
  if (closes) return EndLocked(event.generation, Describe(event));
  // While a generation forms, a member may leave its rank to another member.
  if (event.generation > generation_) {
    early_.push_back({event.generation, event.revision, Describe(event)});
  } else if (event.revision > revision_) {
    EndLocked(event.generation, Describe(event));
  }
}

void Seat::Stand() {
  MutexLock lock(&mutex_);
  generation_ = membership_->generation();
  revision_ = membership_->revision();
  for (const Early& early : early_) {
    if (early.revision > revision_) EndLocked(early.generation, early.cause);
  }
  early_.clear();
}

void Seat::End(int64_t generation, const std::string& cause) {
  MutexLock lock(&mutex_);
  EndLocked(generation, cause);
}

void Seat::EndLocked(int64_t generation, const std::string& cause) {
  // A late event of an old generation does not end the present one, even if the old one showed its
  // end by a deadline alone. The first cause stays.
  if (generation <= ended_generation_ || generation < generation_) return;
  ended_generation_ = generation;
  cause_ = cause;
  if (on_end_ != nullptr) std::exchange(on_end_, nullptr)(cause_);
}

}  // namespace cohort::worker
