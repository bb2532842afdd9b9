// One group over all its generations: its members, and the rounds, objects and keys they share.
//
// Rounds, Mailboxes, UniqueIds, GroupEvents and Store do not need each other and are classes of
// their own. The methods of Group are in several files:
//   group.cc            admission of calls; the store; parked calls of the group itself
//   group_exchange.cc   rounds, objects, unique ids
//   group_join.cc       how members join and get ranks
//   group_forming.cc   when a generation is complete
//   group_leases.cc   leases, streams, losses, leaving: how a generation breaks
//   group_view.cc       proposals: how the next generation begins without a break
//   group_records.cc    journal rows
//   group_who_is_missing.cc  missing ranks, open waits
#ifndef COHORT_COORDINATOR_CORE_GROUP_GROUP_H_
#define COHORT_COORDINATOR_CORE_GROUP_GROUP_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/core/exchange/mailboxes.h"
#include "coordinator/core/exchange/rounds.h"
#include "coordinator/core/exchange/unique_ids.h"
#include "coordinator/core/group/group_events.h"
#include "coordinator/core/idempotency/first_answers.h"
#include "coordinator/core/interface/call.h"
#include "coordinator/core/members/group_context.h"
#include "coordinator/core/runtime/step.h"
#include "coordinator/core/runtime/wait_table.h"
#include "coordinator/core/store/store.h"

namespace cohort::coordinator {

class Group final : public WaitOwner {
 public:
  // Makes a group that is FORMING and has no members; `generation` is its first.
  // `creator`: the member whose Join brought the spec; empty: CreateGroup did.
  Group(Step& step, Shard& shard, GroupKey key, GroupSpec spec, std::string creator, int64_t generation);
  // Makes a group of an earlier boot; Restore follows, then FinishRestore.
  Group(Shard& shard, GroupKey key, const GroupRecord& record);
  ~Group();
  // The memory of a group without members, for the account.
  static int64_t Cost(const GroupKey& key, const GroupSpec& spec);
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  // Handles any call on an existing group; a CreateGroupCall compares the specs.
  void Handle(Step& step, Call&& call);

  // Whether it has ended and may be destroyed.
  bool closed() const { return state_ == GroupState::kClosed; }
  int64_t generation() const { return context_.generation; }
  // Why the generation ended, or why the group was closed.
  const Cause& cause() const { return cause_; }
  int64_t last_number() const { return context_.last_number; }
  GroupInfo Describe(Instant now, bool with_members) const;
  int64_t released_barriers() const { return rounds_.released_barriers(); }
  int64_t members_lost() const { return members_lost_; }
  int64_t objects_expired() const { return mailboxes_.expired_count(); }
  // The number of calls that wait for another call; watches are not counted.
  int64_t waiter_count() const;
  int64_t live_count() const { return context_.roster.CountLive(); }
  const Tally& tally() const { return *context_.tally; }

  void NotifyOfDraining(Step& step) {
    events_.Notify(step, EventKind::kDraining, nullptr, Cause{});
  }

  void Restore(Instant now, const Record& row);
  void FinishRestore(Instant now);

  // Parked joins, proposals and acknowledgements.
  void Forget(Step& step, CallId id) override;
  void TimeOut(Step& step, CallId id) override;
  void Explain(CallId id, ParkedCall& parked) const override;

 private:
  Group(Shard& shard, GroupKey key, GroupSpec spec, int64_t generation, int world_size);

  // --- group.cc
  void Answer(Step& step, Call& call, CreateGroupCall& body);
  void Answer(Step& step, Call& call, GetGroupCall& body);
  void Answer(Step& step, Call& call, ListGroupsCall& body);
  void Answer(Step& step, Call& call, WatchGroupCall& body) { events_.Watch(step, call, body); }
  template <typename StoreCall>
  void Answer(Step& step, Call& call, StoreCall& body);  // the store's own calls
  // --- group_exchange.cc
  void Answer(Step& step, Call& call, EnterRoundCall& body);
  void Answer(Step& step, Call& call, CancelRoundCall& body);
  void Answer(Step& step, Call& call, SendCall& body);
  void Answer(Step& step, Call& call, ReceiveCall& body);
  void Answer(Step& step, Call& call, ExpireCall& body);
  void Answer(Step& step, Call& call, PutBlobCall& body);
  void Answer(Step& step, Call& call, GetBlobCall& body);
  void Answer(Step& step, Call& call, PublishIdsCall& body);
  void Answer(Step& step, Call& call, FetchIdsCall& body);
  void Answer(Step& step, Call& call, ReportInitCall& body);
  // --- group_who_is_missing.cc
  void Answer(Step& step, Call& call, WhoIsMissingCall& body);
  void Answer(Step& step, Call& call, DumpWaitsCall& body);
  void Answer(Step& step, Call& call, StatsCall& body);
  // --- group_join.cc
  void Answer(Step& step, Call& call, JoinCall& body);
  // --- group_leases.cc
  void Answer(Step& step, Call& call, LeaveCall& body);
  void Answer(Step& step, Call& call, KeepAliveCall& body);
  void Answer(Step& step, Call& call, AttachCall& body);
  void Answer(Step& step, Call& call, ReportErrorCall& body);
  void Answer(Step& step, Call& call, EvictCall& body);
  void Answer(Step& step, Call& call, CloseGroupCall& body);
  // --- group_view.cc
  void Answer(Step& step, Call& call, ProposeViewCall& body);
  void Answer(Step& step, Call& call, AckViewCall& body);

  // Whether the session, if the call has one, is of the identity that calls. False: the call was
  // refused and answered.
  bool OwnsSession(Step& step, const Call& call);
  // Returns the member that made the call; null: the call was refused and answered. `allowed_in`
  // says in which generations it may act.
  enum class AllowedIn { kAnyGeneration, kActiveOrBroken, kActiveOnly };
  Member* Admit(Step& step, const Call& call, const char* operation, AllowedIn allowed_in);
  // Puts the object into its mailbox and answers; false: it was refused.
  bool Accept(Step& step, int sender, HeldSend& send);
  void Settle(Step& step, const Member& member, const Caller& caller);
  void RenewLease(Step& step, Member& member);
  // Returns the bytes or the blob of a value, counted. After an error the caller answers.
  absl::StatusOr<Payload> Resolve(const Member& member, Value& value, MemoryKind kind);
  absl::Status Cut(const std::vector<int64_t>& sizes, std::vector<Payload>& values) const;
  void DropBlob(int64_t blob);

  // --- joining and completing
  // Returns the first difference, such as "world size 4, not 8"; empty: the specs agree.
  static std::string SpecDifference(const GroupSpec& ours, const GroupSpec& theirs);
  // Whether the caller may join with its spec, which may replace the group's.
  absl::Status AgreeOnSpec(Step& step, const JoinCall& body);
  // Replaces the group's spec. The caller and the `allies` members that were refused before
  // outnumber the present members.
  absl::Status ReplaceSpec(Step& step, const JoinCall& body, int allies);
  void RememberRefused(Step& step, const std::string& member, std::optional<int> rank,
                       const std::string& host, const GroupSpec& spec,
                       const std::string& difference);
  void BeginGeneration(Step& step, const Cause& cause);
  // Whether a newcomer finds a rank slot: a free one while FORMING, later that of a member that is
  // gone.
  bool HasRoom() const;
  void AddNewcomer(Step& step, Call& call, JoinCall& body);
  void ParkJoin(Step& step, Call& call, Member& member, bool with_members);
  void AnswerJoin(Step& step, Member& member);
  // Takes the member's parked Join off the lists, and returns it for an answer.
  CallId UnparkJoin(Member& member);
  void MaybeComplete(Step& step);
  // While FORMING, candidates take the free rank slots in the order in which they joined.
  void FillSlots(Step& step);
  void Complete(Step& step);
  RankSet ConfirmedRanks() const;
  MissingReport MissingRanks(Instant now) const;
  int CountWithoutRank() const;
  std::shared_ptr<const std::vector<MemberInfo>> Members(Instant now);

  // --- liveness
  // When the member is lost unless it calls before.
  Instant LostAt(const Member& member) const;
  void ScheduleLiveness(Instant now);
  void StartLivenessTimer(Instant now, Instant next);
  void CheckLiveness(Step& step);
  void AwaitConnection(Step& step, Member& member);
  void Lose(Step& step, Member& member, Cause cause);
  // Ends this incarnation of the member: answers its parked calls that name no rank, deletes its
  // bound keys and drops its streams.
  void EndIncarnation(Step& step, Member& member, const Cause& cause);
  void OnGoneWhileActive(Step& step, Member& member, const Cause& cause);
  void Break(Step& step, const Cause& cause);
  void Close(Step& step, Cause cause);
  void CloseIfEmpty(Step& step, const Cause& cause);
  void ScheduleLinger(Instant now);
  Cause CauseOf(CauseKind kind, std::string detail, Instant now) const;  // by no member
  Cause CauseOf(CauseKind kind, const Member& member, std::string detail, Instant now) const;

  // --- views
  struct Proposal {
    // Without this constructor, Clang rejects std::optional<Proposal>: the initialisers of the
    // members are not known yet.
    Proposal() {}
    ViewProposal view;
    RankSet remove;  // with the ranks that are already gone
    RankSet needed;  // ranks that have to acknowledge
    RankSet acknowledged;
    bool drop_silent = false;
    Id128 operation;  // of the proposer's call
    uint64_t fingerprint = 0;
    CallId proposer_call = 0;
    int proposer_rank = -1;
    TimerId timer = 0;
    std::map<CallId, std::string> calls;  // parked calls: member name
  };
  void DecideIfAcknowledged(Step& step);
  void CommitProposal(Step& step);
  void EndProposal(Step& step, ViewReply::Outcome outcome, const Cause& cause);
  void ProposalTimedOut(Step& step);
  void MemberGoneFromProposal(Step& step, const Member& member, const Cause& cause);
  ViewReply ViewFor(const std::string& member, ViewReply::Outcome outcome) const;

  // --- records
  void WriteGroup(Step& step);
  void WriteMember(Step& step, const Member& member);
  void EraseMember(Step& step, const Member& member);

  Shard& shard_;
  GroupContext context_;
  GroupState state_ = GroupState::kForming;
  // Why the generation broke; while FORMING, why the generation before broke.
  Cause cause_;
  std::string creator_;  // the member that brought the spec by its Join; empty: CreateGroup did
  // Members that were refused for their spec since the group was complete, the last
  // kRefusedJoinsKept.
  static constexpr size_t kRefusedJoinsKept = 64;
  struct RefusedJoin {
    std::string member;
    std::optional<int> rank;
    std::string host;
    GroupSpec spec;  // without labels
    std::string difference;
    Instant at;
  };
  std::deque<RefusedJoin> refused_joins_;
  FirstAnswers operations_;
  Store store_;
  Rounds rounds_;
  Mailboxes mailboxes_;
  UniqueIds unique_ids_;
  GroupEvents events_;
  std::optional<Proposal> proposal_;
  // The outcomes of the last few proposals by id, for repeats and late acknowledgements.
  struct Decided {
    ViewReply::Outcome outcome;
    Cause cause;
    Id128 operation;
    uint64_t fingerprint = 0;
  };
  std::map<int64_t, Decided> decided_;

  struct Blob {
    Payload payload;
    std::string member;
    TimerId expiry = 0;
  };
  std::map<int64_t, Blob> blobs_;

  std::map<CallId, std::string> joins_;  // parked joins: member name
  TimerId liveness_timer_ = 0;
  Instant liveness_at_;  // of the timer
  TimerId join_window_timer_ = 0;
  TimerId linger_timer_ = 0;
  Instant last_arrival_;  // of a join
  bool may_have_candidates_ = true;
  int64_t members_lost_ = 0;
  const Charge charge_;
  // The members of the present generation, shared by all answers until a member changes.
  std::shared_ptr<const std::vector<MemberInfo>> member_infos_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_GROUP_GROUP_H_
