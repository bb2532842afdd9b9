// Collectives and calls on objects. The thread of the call does the rank's share of the work.
#include <algorithm>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "base/memory/no_memory.h"
#include "base/status_macros.h"
#include "base/threads/timed_mutex.h"
#include "worker/daemon/methods/answer.h"
#include "worker/daemon/methods/cancellable_call.h"
#include "worker/daemon/methods/collective_request.h"
#include "worker/daemon/methods/worker_service.h"
#include "worker/group/membership/gather_member_objects.h"

namespace cohort::worker {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(300);
// Requests and answers that are not larger are not counted: their calls have threads, which take
// more.
constexpr size_t kSmallBytes = 4096;
constexpr char kRunCollective[] = "cohort.v1.WorkerService/RunCollective";

}  // namespace

grpc::Status WorkerService::RunCollective(grpc::ServerContext* context,
                                          const v1::RunCollectiveRequest* request,
                                          v1::RunCollectiveResponse* response) {
  auto memory = std::make_shared<HeldQuota>();
  KeepUntilAnswered(memory);
  return Answer(context, RunCollective(access_.CallerOf("RunCollective", *context), *request,
                                       /*buffered=*/0, response, memory.get()));
}

absl::Status WorkerService::RunCollective(const Caller& caller,
                                          const v1::RunCollectiveRequest& request, int64_t buffered,
                                          v1::RunCollectiveResponse* response, HeldQuota* memory) {
  const Instant started = Clock::Steady().Now();
  const Collective collective = CollectiveOf(request.collective());
  int64_t bytes = 0;
  const auto run = [&]() -> absl::Status {
    COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<Session> session,
                            sessions_.Find(request.session(), caller));
    COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<ClientRank> entry,
                            session->FindGroup(request.group()));
    COHORT_ASSIGN_OR_RETURN(const absl::Duration timeout,
                            ReadTimeout(request.has_timeout(), request.timeout(), kTimeout));
    COHORT_ASSIGN_OR_RETURN(const CallGate::Pass pass, gate_.Enter(session->calls()));
    *memory = session->CountCall();
    if (buffered > static_cast<int64_t>(kSmallBytes)) {
      COHORT_RETURN_IF_ERROR(memory->Add(buffered, "the request of a call"));
    }
    CollectiveRequest call(session->tensors(), options_.max_message_bytes, request, response,
                           *memory);
    LocalGroup* const group = entry->local();
    if (group == nullptr) {
      return absl::FailedPreconditionError(absl::StrCat("group ", entry->facts().group,
                                                        " is attached: its client runs its tensor ",
                                                        "collectives itself"));
    }
    const int64_t generation = group->generation();
    client::CallOptions options;
    options.timeout = timeout;
    absl::Status status;
    try {
      status = call.Run(*group, options);
    } catch (const std::bad_alloc&) {
      // Other ranks may wait for data that this one has not sent.
      status = NoMemory(kRunCollective, "a call", static_cast<int64_t>(request.ByteSizeLong()));
      group->Abort(status);
    }
    // A timeout while waiting for a message ends no generation.
    const bool looks = collective == Collective::kAwaitMessage;
    if (!looks || !absl::IsDeadlineExceeded(status)) entry->NoteResult(generation, status);
    bytes = call.bytes();
    return status;
  };
  absl::Status status;
  try {
    status = run();
  } catch (const std::bad_alloc&) {
    status = NoMemory(kRunCollective, "a call", static_cast<int64_t>(request.ByteSizeLong()));
  }
  metrics_.OnCall(collective, bytes, Clock::Steady().Now() - started, status.code());
  return status;
}

grpc::ServerUnaryReactor* WorkerService::RunObject(grpc::CallbackServerContext* context,
                                                   const v1::RunObjectRequest* request,
                                                   v1::RunObjectResponse* response) {
  // The call keeps its body until its answer is sent.
  const auto memory = std::make_shared<HeldQuota>();
  return RunCancellable(context, sessions_, gate_, access_.CallerOf("RunObject", *context),
                        request->session(), [=](const auto& session, const auto&) {
                          const Instant started = Clock::Steady().Now();
                          auto bytes = static_cast<int64_t>(request->object().size());
                          const absl::Status status = WithMemory(
                              "cohort.v1.WorkerService/RunObject", "an object", bytes, [&] {
                                return RunObject(*session, *request, response, memory.get());
                              });
                          for (const std::string& object : response->objects()) {
                            bytes = std::max(bytes, static_cast<int64_t>(object.size()));
                          }
                          metrics_.OnCall(NameOf(request->operation()), bytes,
                                          Clock::Steady().Now() - started, status.code());
                          return status;
                        });
}

namespace {

using Objects = std::vector<std::string>;

// Counts the objects of an answer, unless they are small.
absl::Status Count(const Objects& objects, HeldQuota& memory) {
  int64_t bytes = 0;
  for (const std::string& object : objects) bytes += static_cast<int64_t>(object.size());
  return bytes <= static_cast<int64_t>(kSmallBytes) ? absl::OkStatus()
                                                    : memory.Add(bytes, "the answer of a call");
}

// Runs the request, without a look at `taken`.
absl::StatusOr<Objects> RunObjectOnce(client::ProcessGroup& member,
                                      const v1::RunObjectRequest& request,
                                      absl::Duration timeout) {
  client::RoundOptions round;
  round.timeout = timeout;
  switch (request.operation()) {
    case v1::OBJECT_OPERATION_SEND:
      COHORT_RETURN_IF_ERROR(member.Send(request.object(), request.peer(), "", timeout));
      return Objects();
    case v1::OBJECT_OPERATION_RECEIVE: {
      COHORT_ASSIGN_OR_RETURN(std::string object, member.Receive(request.peer(), "", timeout));
      return Objects{std::move(object)};
    }
    case v1::OBJECT_OPERATION_BROADCAST: {
      COHORT_ASSIGN_OR_RETURN(std::string object,
                              member.Broadcast(request.object(), request.peer(), round));
      return Objects{std::move(object)};
    }
    case v1::OBJECT_OPERATION_ALL_GATHER: {
      if (request.members_size() > 0) {
        const std::vector<int> members(request.members().begin(), request.members().end());
        return AllGatherObjectsOf(member, members, request.object(), timeout);
      }
      COHORT_ASSIGN_OR_RETURN(const client::ObjectList objects,
                              member.AllGather(request.object(), round));
      return objects.ToStrings();
    }
    case v1::OBJECT_OPERATION_BARRIER:
      COHORT_RETURN_IF_ERROR(member.Barrier(round));
      return Objects();
    default:
      return absl::InvalidArgumentError(
          absl::StrCat(request.operation(), " is not an operation on objects"));
  }
}

// Runs the request after those before it in `inbox`. Gives a client that has cancelled its call, and
// calls again, the answer of that call if there was one.
absl::StatusOr<Objects> TakeNext(const Session& session, ClientRank& entry, int source,
                                 const v1::RunObjectRequest& request, absl::Duration timeout) {
  const Instant deadline = Clock::Steady().Now() + timeout;
  const std::shared_ptr<ClientRank::Inbox> inbox = entry.InboxOf(source);
  if (!inbox->mutex.LockFor(timeout)) {
    return absl::DeadlineExceededError(absl::StrCat(
        source == ClientRank::kRounds ? "objects of all ranks"
                                      : absl::StrCat("an object from rank ", source),
        ": another call that waits for them is not over"));
  }
  const TimedMutexLock lock(&inbox->mutex, std::adopt_lock);
  const size_t asked = source == ClientRank::kRounds
                           ? absl::HashOf(request.operation(), request.peer(), request.object())
                           : 0;
  if (inbox->sent > request.taken() && inbox->asked == asked) return inbox->last;
  inbox->last = Objects();
  inbox->last_bytes = HeldQuota();
  COHORT_ASSIGN_OR_RETURN(Objects objects, RunObjectOnce(entry.membership(), request,
                                                         deadline - Clock::Steady().Now()));
  HeldQuota bytes = session.CountCall();
  COHORT_RETURN_IF_ERROR(Count(objects, bytes));
  inbox->last = std::move(objects);
  inbox->last_bytes = std::move(bytes);
  inbox->sent = request.taken() + 1;
  inbox->asked = asked;
  return inbox->last;
}

// The inbox of the request's answer; nothing: it has none.
std::optional<int> InboxOf(const v1::RunObjectRequest& request, int world_size) {
  if (!request.has_taken() || request.members_size() > 0) return std::nullopt;
  switch (request.operation()) {
    case v1::OBJECT_OPERATION_RECEIVE:
      if (request.peer() < 0 || request.peer() >= world_size) return std::nullopt;
      return request.peer();
    case v1::OBJECT_OPERATION_SEND:
      return std::nullopt;
    default:
      return ClientRank::kRounds;
  }
}

}  // namespace

absl::Status WorkerService::RunObject(Session& session, const v1::RunObjectRequest& request,
                                      v1::RunObjectResponse* response, HeldQuota* memory) {
  COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<ClientRank> entry,
                          session.FindGroup(request.group()));
  COHORT_ASSIGN_OR_RETURN(const absl::Duration timeout,
                          ReadTimeout(request.has_timeout(), request.timeout(), kTimeout));
  *memory = session.CountCall();
  const size_t bytes = request.ByteSizeLong();
  if (bytes > kSmallBytes) {
    // The memory of an object doubles while its parts arrive, and a member's number has four bytes.
    const size_t most = 2 * bytes + sizeof(int32_t) * static_cast<size_t>(request.members_size());
    COHORT_RETURN_IF_ERROR(memory->Add(static_cast<int64_t>(most), "the request of a call"));
  }
  client::ProcessGroup& member = entry->membership();
  const std::optional<int> inbox = InboxOf(request, member.world_size());
  COHORT_ASSIGN_OR_RETURN(Objects objects, inbox.has_value()
                                               ? TakeNext(session, *entry, *inbox, request, timeout)
                                               : RunObjectOnce(member, request, timeout));
  COHORT_RETURN_IF_ERROR(Count(objects, *memory));
  for (std::string& object : objects) response->add_objects(std::move(object));
  return absl::OkStatus();
}

}  // namespace cohort::worker
