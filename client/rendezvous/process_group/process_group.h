// One membership in a process group: objects between ranks, barriers, membership. It is like
// vLLM's StatelessProcessGroup, but the store is outside of the ranks, and every failure has a
// name.
//
//   cohort::client::ProcessGroupOptions options;
//   options.connection.address = "coordinator:7700";
//   options.group = "trainer-weights";
//   options.rank = 3;
//   options.world_size = 8;
//   COHORT_ASSIGN_OR_RETURN(auto group, cohort::client::ProcessGroup::Create(options));
//   COHORT_RETURN_IF_ERROR(group->Barrier());
//
// All methods are thread-safe and block the caller for at most their timeout, unless they say
// otherwise. After a broken connection or a restart of the coordinator, a call repeats its request
// with the same operation id, until the timeout: it acts once.
//
// Late members. Each member counts its own rounds under a name (Barrier, AllGather, Gather,
// Broadcast, Scatter, Vote). If a member comes to a round that has ended without it, its call fails
// at once with the error of that round: DEADLINE_EXCEEDED with the members that were missing,
// CANCELLED, or FAILED_PRECONDITION. RoundReport::missed_number is the number of that round. The
// member neither waits alone nor joins a later round by mistake. Its next call under the name takes
// part in the round where the others are, however many rounds it missed. With
// RoundOptions::catch_up the same call goes on there, and the values of the missed rounds are lost.
// A Broadcast or Scatter waits for its late readers until the value expires (data_expiration); such
// a reader gets DATA_LOSS once.
//
// Errors common to all methods (GetErrorInfo gives cause, culprit, generation, operation):
//   DEADLINE_EXCEEDED   The timeout ended; the text and the result's MissingReport name the missing
//                       members.
//   ABORTED             This generation ended (member lost, replaced, view changed, group closed):
//                       call Rejoin.
//   UNAVAILABLE         The coordinator was away for the whole timeout, or is draining.
//   INVALID_ARGUMENT    A rank, name or size is out of bounds; nothing was sent to others.
//   RESOURCE_EXHAUSTED  A limit, named in the text.
//   FAILED_PRECONDITION The members disagree (both sides are named), or this member has left.
#ifndef COHORT_CLIENT_RENDEZVOUS_PROCESS_GROUP_PROCESS_GROUP_H_
#define COHORT_CLIENT_RENDEZVOUS_PROCESS_GROUP_PROCESS_GROUP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/rank_set.h"
#include "client/rendezvous/process_group/async_process_group.h"
#include "client/rendezvous/process_group/object_list.h"
#include "client/rendezvous/process_group/process_group_types.h"
#include "client/rendezvous/report/report.h"

namespace cohort::client {

class ProcessGroup {
 public:
  // Joins and blocks until the group is complete, at most `join_timeout`.
  // Errors besides: ALREADY_EXISTS (another live member holds the rank); FAILED_PRECONDITION
  // (another spec or digest than that of the members that are here, at once; both sides are named);
  // DEADLINE_EXCEEDED (lists the ranks without a member, and the members that were refused there).
  //
  // The coordinator notices a dead process by a stream that is opened as this returns. The stream
  // stands one round trip later. If a member is killed before that, only its lease shows it.
  static absl::StatusOr<std::unique_ptr<ProcessGroup>> Create(const ProcessGroupOptions& options);
  // The same without blocking; `done` runs on the connection's thread.
  static void CreateAsync(const ProcessGroupOptions& options,
                          std::function<void(absl::StatusOr<std::unique_ptr<ProcessGroup>>)> done);

  // Leaves if Leave was not called, and waits for the answer: at most a second. Also waits for a
  // running on_event, unless on_event itself destroys this object.
  virtual ~ProcessGroup() = default;

  virtual const std::string& group() const = 0;
  virtual const std::string& member() const = 0;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual int64_t generation() const = 0;
  // The revision of the event that formed this generation. Later events of the generation have
  // larger revisions.
  virtual int64_t revision() const = 0;
  // Members and state, fresh from the coordinator.
  virtual absl::StatusOr<GroupInfo> Describe() = 0;
  // The open waits of the group, with the ranks that each of them misses. Tensor operations are as
  // the ranks last reported them: AdminClient::WhoIsMissing asks for newer reports.
  virtual absl::StatusOr<WhoIsMissingReport> WhoIsMissing() = 0;

  // --- Objects. Bytes are never interpreted. `tag` separates sequences between one pair of ranks.

  // Puts an object into dst's mailbox; does not wait for dst. dst == rank(): INVALID_ARGUMENT.
  // Objects to one dst under one tag arrive in the order of the calls, those of async() included. Each
  // call starts when the one before it has its answer. So a slow call delays the calls after it, up
  // to their own timeouts; other tags and destinations go on meanwhile. A failed call stops no
  // later call. After DEADLINE_EXCEEDED, UNAVAILABLE or CANCELLED, its object may still arrive,
  // once and perhaps after objects that were sent later. Objects of successful calls are always in
  // order. Source: StatelessProcessGroup.send_obj, with the sender in the key.
  virtual absl::Status Send(absl::string_view object, int dst, absl::string_view tag = "",
                            absl::Duration timeout = absl::ZeroDuration()) = 0;
  // Blocks until src's next object arrives. DATA_LOSS: objects expired unread (reported once, with
  // their numbers).
  virtual absl::StatusOr<std::string> Receive(int src, absl::string_view tag = "",
                                              absl::Duration timeout = absl::ZeroDuration()) = 0;
  // Returns the oldest object from any source.
  virtual absl::StatusOr<ReceivedObject> ReceiveAny(absl::string_view tag = "",
                                                    absl::Duration timeout = absl::ZeroDuration()) = 0;
  // All participants must call. The root passes the object and does not block; the others get it.
  // Source: StatelessProcessGroup.broadcast_obj, freed when all have read it.
  virtual absl::StatusOr<std::string> Broadcast(absl::string_view object, int root,
                                                const RoundOptions& options = {}) = 0;
  // All participants must call; all get the objects in order of rank. One round trip. Source:
  // StatelessProcessGroup.all_gather_obj.
  virtual absl::StatusOr<ObjectList> AllGather(absl::string_view object,
                                                             const RoundOptions& options = {}) = 0;
  // All participants must call; only the root gets the objects, the others an empty list.
  virtual absl::StatusOr<ObjectList> Gather(absl::string_view object, int root,
                                                          const RoundOptions& options = {}) = 0;
  // All participants must call. The root passes one object per participant, in order of rank; each
  // gets its own.
  virtual absl::StatusOr<std::string> Scatter(const std::vector<std::string>& objects, int root,
                                              const RoundOptions& options = {}) = 0;
  // Frees undelivered objects older than `older_than` (absent: the group's data_expiration).
  // Returns their number. The coordinator also expires objects by itself, later.
  virtual absl::StatusOr<int64_t> ExpireData(std::optional<absl::Duration> older_than = {}) = 0;
  virtual absl::StatusOr<GroupStats> Stats() = 0;

  // --- Agreement.

  // All participants must call. It takes one round trip and leaves nothing behind, so it may be
  // called any number of times. DEADLINE_EXCEEDED ends this round for all that wait in it: `report`
  // (may be null) lists the missing ranks.
  virtual absl::Status Barrier(const RoundOptions& options = {}, RoundReport* report = nullptr) = 0;
  // Ends the open barrier `name` with CANCELLED for all that wait in it.
  virtual absl::Status CancelBarrier(absl::string_view name, absl::string_view reason) = 0;
  // All participants must call with the same op; all get the same result.
  virtual absl::StatusOr<VoteResult> Vote(int64_t value, VoteOp op, const RoundOptions& options = {}) = 0;
  // The members that are alive, agreed by all of them: each gets the same answer. Works after a
  // loss.
  virtual absl::StatusOr<std::vector<RankRange>> AgreeAlive(
      absl::Duration timeout = absl::Seconds(30)) = 0;

  // The same methods without blocking. It lives as long as this object.
  virtual AsyncProcessGroup& async() = 0;

  // --- Unique ids of communicators, one set per (name, generation).

  // The ids are freed when all members but this one have fetched them; the publisher does not count
  // as a reader.
  virtual absl::Status PublishUniqueIds(absl::string_view name, const std::vector<std::string>& ids) = 0;
  virtual absl::StatusOr<std::vector<std::string>> FetchUniqueIds(
      absl::string_view name, absl::Duration timeout = absl::ZeroDuration()) = 0;
  enum class InitPhase { kGotId, kCallingInit, kDone, kFailed };
  virtual absl::Status ReportInit(absl::string_view name, InitPhase phase, absl::string_view detail) = 0;

  // --- Membership.

  // For groups with a progress_timeout: the working thread calls it to show its progress. It never
  // blocks; the lease thread sends the counter. If the counter stands still too long, this member
  // is lost (NO_PROGRESS). A member that waits in a round is not lost: it waits for others.
  virtual void ReportProgress(int64_t counter, absl::string_view operation) = 0;
  // Tells all members. A fatal error ends the generation for all, with this cause if it is the
  // first.
  virtual absl::Status ReportError(absl::string_view detail, bool fatal,
                                   const std::vector<RankRange>& suspected = {}) = 0;
  // After ABORTED: joins the next generation and blocks until that is complete, at most
  // `timeout` (zero: join_timeout). Rank and world size may change; counters of rounds begin
  // anew.
  virtual absl::Status Rejoin(absl::Duration timeout = absl::ZeroDuration()) = 0;
  // Proposes the next view; blocks until all members that stay have acknowledged it. After success
  // this object is in it. ABORTED at once if another proposal is in flight (names its proposer).
  virtual absl::StatusOr<ViewResult> ProposeView(const std::vector<RankRange>& remove,
                                                 const std::vector<std::string>& add,
                                                 absl::Duration timeout = absl::Seconds(30),
                                                 bool drop_silent = false) = 0;
  // Accepts or refuses a proposal that an event announced; blocks until it is decided. If it is
  // committed, this object is in the new view.
  virtual absl::StatusOr<ViewResult> AckView(int64_t proposal, bool accept, absl::string_view reason = "",
                                             absl::Duration timeout = absl::Seconds(30)) = 0;
  // Leaves the group: waits of other members that need this one end. The objects that it sent stay
  // readable.
  virtual absl::Status Leave(absl::string_view reason = "") = 0;
  // Ends the group for all members.
  virtual absl::Status Close(absl::string_view reason = "") = 0;

 protected:
  ProcessGroup() = default;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_PROCESS_GROUP_PROCESS_GROUP_H_
