#include "worker/service/group_entry.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::worker {
namespace {

// Such as: rank 3 (trainer-3 on host-a): LEASE_EXPIRED, nothing heard for 30s.
std::string Describe(const client::GroupEvent& event) {
  const client::Cause& cause = event.cause;
  const std::optional<int> rank = cause.rank.has_value() ? cause.rank : event.rank;
  const std::string& member = cause.member.empty() ? event.member : cause.member;
  std::string text = rank.has_value() ? absl::StrCat("rank ", *rank) : "the group";
  if (!member.empty()) {
    absl::StrAppend(&text, " (", member, cause.host.empty() ? "" : absl::StrCat(" on ", cause.host),
                    ")");
  }
  absl::StrAppend(&text, ": ", client::CauseKindName(cause.kind));
  if (!cause.detail.empty()) absl::StrAppend(&text, ", ", cause.detail);
  return text;
}

bool IsEnd(client::EventKind kind) {
  return kind == client::EventKind::kBroken || kind == client::EventKind::kClosed ||
         kind == client::EventKind::kLost || kind == client::EventKind::kLeft;
}

}  // namespace

// Outlives the group: the coordinator's connection tells of ends while it is being left.
struct GroupEntry::Ends {
  explicit Ends(OnEnded tell) : on_ended(std::move(tell)) {}

  void Note(int64_t generation, const std::string& cause) {
    {
      MutexLock lock(&mutex);
      if (generation <= ended) return;
      ended = generation;
      why = cause;
    }
    if (on_ended != nullptr) on_ended(generation, cause);
  }
  std::string WhyOf(int64_t generation) const {
    MutexLock lock(&mutex);
    return ended == generation ? why : std::string();
  }

  const OnEnded on_ended;
  mutable Mutex mutex;
  int64_t ended ABSL_GUARDED_BY(mutex) = 0;
  std::string why ABSL_GUARDED_BY(mutex);
};

absl::StatusOr<std::shared_ptr<GroupEntry>> GroupEntry::Join(LocalGroupOptions options,
                                                             OnEnded on_ended) {
  std::shared_ptr<GroupEntry> entry(new GroupEntry());
  entry->ends_ = std::make_shared<Ends>(std::move(on_ended));
  entry->tenant_ = options.membership.connection.tenant;
  options.membership.on_event = [ends = entry->ends_](const client::GroupEvent& event) {
    if (IsEnd(event.kind)) ends->Note(event.generation, Describe(event));
  };
  COHORT_ASSIGN_OR_RETURN(entry->group_, LocalGroup::Create(std::move(options)));
  entry->TakeFacts();
  return entry;
}

void GroupEntry::TakeFacts() {
  GroupFacts facts;
  facts.tenant = tenant_;
  facts.group = group_->name();
  facts.generation = group_->generation();
  facts.rank = group_->rank();
  facts.world_size = group_->size();
  facts.paths = group_->paths();
  facts.why_not = group_->why_not();
  MutexLock lock(&mutex_);
  facts_ = std::move(facts);
}

GroupFacts GroupEntry::facts() const {
  GroupFacts facts;
  {
    MutexLock lock(&mutex_);
    facts = facts_;
  }
  facts.ended = ends_->WhyOf(facts.generation);
  return facts;
}

absl::Status GroupEntry::Rejoin(absl::Duration timeout) {
  COHORT_RETURN_IF_ERROR(group_->Rejoin(timeout));
  TakeFacts();
  return absl::OkStatus();
}

void GroupEntry::NoteResult(int64_t generation, const absl::Status& status) {
  if (!absl::IsAborted(status) && !absl::IsDeadlineExceeded(status)) return;
  ends_->Note(generation, std::string(status.message()));
}

void GroupEntry::Abort(absl::string_view cause) { group_->Abort(absl::AbortedError(cause)); }

void GroupEntry::Leave(absl::string_view reason) {
  // Whoever is told otherwise first, or not at all, is told by the connections of the ranks.
  group_->membership().Leave(reason).IgnoreError();
}

absl::Status GroupEntry::HandOver(const shm::LocalSocket&, Instant) {
  return absl::UnimplementedError("this group was not joined as attached");
}

}  // namespace cohort::worker
