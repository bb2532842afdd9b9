// Methods that join, rejoin, leave and abort a group.
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/tensor/device.h"
#include "base/text/logging.h"
#include "base/text/printable.h"
#include "client/collective/remote/worker_client.h"
#include "worker/daemon/limits/quota.h"
#include "worker/daemon/methods/answer.h"
#include "worker/daemon/methods/cancellable_call.h"
#include "worker/daemon/methods/request_texts.h"
#include "worker/daemon/methods/served_addresses.h"
#include "worker/daemon/methods/worker_service.h"
#include "worker/daemon/sessions/attached_rank.h"
#include "worker/daemon/sessions/daemon_rank.h"

namespace cohort::worker {
namespace {

constexpr absl::Duration kJoinTimeout = absl::Seconds(300);
constexpr absl::Duration kRejoinTimeout = absl::Seconds(60);
// The group keeps the cause of its end.
constexpr size_t kMaxCauseBytes = 1024;

void Fill(uint64_t group, const GroupFacts& facts, v1::JoinGroupResponse* response) {
  response->set_group(group);
  response->set_generation(facts.generation);
  response->set_rank(facts.rank);
  response->set_world_size(facts.world_size);
  for (const std::string& path : facts.paths) response->add_paths(path);
  for (const std::string& machine : facts.machines) response->add_machines(machine);
  response->set_why_not(facts.why_not);
}

absl::StatusOr<Placement> ReadPlacement(int placement) {
  if (placement >= 0 && placement <= static_cast<int>(Placement::kBoth)) {
    return static_cast<Placement>(placement);
  }
  return absl::InvalidArgumentError(absl::StrCat(placement, " is not the number of a placement"));
}

// Such as: tls
absl::string_view BetweenHosts(const GroupFacts& facts) {
  for (const std::string& path : facts.paths) {
    if (absl::StartsWith(path, "tcp ")) return "plain";
    if (absl::StartsWith(path, "tls ")) return "tls";
  }
  return "no sockets";
}

void LogMembership(absl::string_view what, const Session& session, const GroupFacts& facts) {
  Log(LogLevel::kInfo, what,
      {{"group", facts.group},
       {"generation", facts.generation},
       {"rank", facts.rank},
       {"world_size", facts.world_size},
       {"between_hosts", BetweenHosts(facts)},
       {"client", session.client().name},
       {"pid", session.client().pid}});
}

// Returns `entry` with its descriptors, which are given back when it goes.
std::shared_ptr<ClientRank> Holding(std::shared_ptr<HeldQuota> descriptors,
                                    std::shared_ptr<ClientRank> entry) {
  struct Holder {
    std::shared_ptr<HeldQuota> descriptors;
    std::shared_ptr<ClientRank> entry;  // destroyed first
  };
  auto holder = std::make_shared<Holder>();
  holder->descriptors = std::move(descriptors);
  holder->entry = std::move(entry);
  return std::shared_ptr<ClientRank>(holder, holder->entry.get());
}

// The error of a join that was cancelled.
absl::Status NotJoined(absl::string_view rank, absl::string_view group, const absl::Status& why) {
  return absl::Status(why.code(), absl::StrCat("rank ", rank, " of group ", Printable(group),
                                               " does not join: ", why.message()));
}

// The daemon calls no address that a client has made up: the address could be one that only the
// daemon reaches. Errors: PERMISSION_DENIED.
absl::Status CheckCoordinator(const WorkerServiceOptions& daemon, const std::string& address,
                              const Caller& caller) {
  const std::vector<std::string>& allowed = daemon.allowed_coordinators;
  const bool may = address == daemon.coordinator ||
                   std::any_of(allowed.begin(), allowed.end(), [&](const std::string& other) {
                     return other == address || other == "*";
                   });
  if (may) return absl::OkStatus();
  return caller.Deny(absl::StrCat("this worker calls the coordinator ", daemon.coordinator,
                                  ", not ", Excerpt(address),
                                  ", which is not in --allowed-coordinators"));
}

// Returns the options of a join that ends when `joining` is cancelled. `addresses`: where this
// daemon is served.
absl::StatusOr<LocalGroupOptions> ReadJoin(const WorkerServiceOptions& daemon,
                                           const std::vector<std::string>& addresses,
                                           const v1::JoinGroupRequest& request,
                                           const Caller& caller, Session& session,
                                           const std::shared_ptr<client::Cancellation>& joining) {
  COHORT_ASSIGN_OR_RETURN(const absl::Duration timeout,
                          ReadTimeout(request.has_timeout(), request.timeout(), kJoinTimeout));
  LocalGroupOptions options;
  client::ProcessGroupOptions& membership = options.membership;
  membership.connection.address =
      request.coordinator().empty() ? daemon.coordinator : request.coordinator();
  COHORT_RETURN_IF_ERROR(CheckCoordinator(daemon, membership.connection.address, caller));
  membership.connection.tenant = caller.ResolveTenant(request.tenant());
  COHORT_RETURN_IF_ERROR(caller.Require(Role::kMember, membership.connection.tenant));
  membership.group = request.group();
  if (request.has_rank()) membership.rank = request.rank();
  membership.world_size = request.world_size();
  membership.min_world_size = request.min_world_size();
  membership.member = request.member();
  membership.parameters_digest = request.parameters_digest();
  if (request.has_lease()) {
    COHORT_ASSIGN_OR_RETURN(membership.lease, ReadTimeout(true, request.lease(), membership.lease));
  }
  if (request.has_data_expiration()) {
    COHORT_ASSIGN_OR_RETURN(membership.data_expiration, ReadTimeout(true, request.data_expiration(),
                                                                    membership.data_expiration));
  }
  // With these, a client that collects all flight records of a group finds the ranks in this
  // worker.
  membership.addresses =
      AddressesForOthers(addresses, daemon.advertised_host, membership.connection.address);
  membership.labels[std::string(client::kWorkerLabel)] = absl::StrCat(getpid());
  membership.join_timeout = timeout;
  membership.timeout = timeout;
  membership.cancellation = joining;
  options.gives_way = true;
  options.bootstrap.advertised_host = daemon.advertised_host;
  options.bootstrap.host_identity = daemon.host_identity;
  options.bootstrap.host_folder = daemon.host_folder;
  options.bootstrap.timeout = timeout;
  options.bootstrap.cancellation = joining;
  // The daemon runs the calls of other ranks itself, with the certificate of its environment.
  if (request.attached()) options.bootstrap.tls = static_cast<TlsState>(request.rank_tls());
  COHORT_ASSIGN_OR_RETURN(options.bootstrap.heap, session.heap());
  COHORT_ASSIGN_OR_RETURN(options.bootstrap.placement, ReadPlacement(request.placement()));
  if (options.bootstrap.placement != Placement::kHost && !request.attached()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "group ", Printable(request.group()), " has placement ",
        NameOf(options.bootstrap.placement),
        ": the daemon moves host memory only; join as attached, and the client moves GPU tensors"));
  }
  return options;
}

// Tells the client of the session, while it is connected, what happens to its group.
ClientRank::Notifier NotifierOf(const std::shared_ptr<Session>& session, uint64_t group) {
  const std::weak_ptr<Session> weak = session;
  ClientRank::Notifier notifier;
  notifier.on_ended = [weak, group](int64_t generation, const std::string& cause) {
    const std::shared_ptr<Session> live_session = weak.lock();
    if (live_session == nullptr) return;
    v1::SessionEvent event;
    event.mutable_group_ended()->set_group(group);
    event.mutable_group_ended()->set_generation(generation);
    event.mutable_group_ended()->set_cause(cause);
    live_session->Notify(event);
  };
  notifier.on_left = [weak, group](int64_t generation, int rank, const std::string& cause) {
    const std::shared_ptr<Session> live_session = weak.lock();
    if (live_session == nullptr) return;
    v1::SessionEvent event;
    event.mutable_rank_left()->set_group(group);
    event.mutable_rank_left()->set_generation(generation);
    event.mutable_rank_left()->set_rank(rank);
    event.mutable_rank_left()->set_cause(cause);
    live_session->Notify(event);
  };
  return notifier;
}

}  // namespace

grpc::ServerUnaryReactor* WorkerService::JoinGroup(grpc::CallbackServerContext* context,
                                                   const v1::JoinGroupRequest* request,
                                                   v1::JoinGroupResponse* response) {
  const Caller caller = access_.CallerOf("JoinGroup", *context);
  return RunCancellable(context, sessions_, gate_, caller, request->session(),
                        [=](const auto& session, const auto& cancellation) -> absl::Status {
                          COHORT_RETURN_IF_ERROR(sessions_.CheckServing());
                          return Join(session, *request, caller, access_.NamesOf(*context),
                                      cancellation, response);
                        });
}

absl::Status WorkerService::Join(const std::shared_ptr<Session>& session,
                                 const v1::JoinGroupRequest& request, const Caller& caller,
                                 std::vector<std::string> client_names,
                                 const std::shared_ptr<client::Cancellation>& joining,
                                 v1::JoinGroupResponse* response) {
  const client::Cancellation::Listener end_of_session(
      session->joining(), [&](const absl::Status& why) { joining->Cancel(why); });
  COHORT_ASSIGN_OR_RETURN(LocalGroupOptions options,
                          ReadJoin(options_, addresses_, request, caller, *session, joining));
  options.membership.connection.client_names = std::move(client_names);

  // The exact number is known in each generation once the ranks have met; until then this is the
  // most.
  const auto of_ranks = [](int size) { return absl::StrCat("a group of ", size, " ranks"); };
  COHORT_ASSIGN_OR_RETURN(
      HeldQuota taken,
      HeldQuota::Take(session->descriptors(), MostDescriptorsOfGroup(request.world_size()),
                      of_ranks(request.world_size())));
  auto descriptors = std::make_shared<HeldQuota>(std::move(taken));
  options.bootstrap.take_descriptors = [descriptors, of_ranks](int size, int count) {
    return descriptors->Resize(count, of_ranks(size));
  };
  const uint64_t group = session->NextGroup();
  ClientRank::Notifier notifier = NotifierOf(session, group);
  const absl::StatusOr<std::shared_ptr<ClientRank>> entered =
      request.attached()
          ? AttachedRank::Join({std::move(options.membership), std::move(options.bootstrap)},
                               std::move(notifier))
          : DaemonRank::Join(std::move(options), std::move(notifier));
  const absl::StatusOr<std::shared_ptr<ClientRank>> joined =
      entered.ok() ? Holding(std::move(descriptors), *entered) : entered;
  absl::Status cancelled = joining->reason();
  if (joined.ok() && cancelled.ok()) cancelled = session->AddGroup(group, *joined);
  if (!cancelled.ok()) {
    if (joined.ok()) {
      // The client went while its rank joined: the other ranks must not wait for it.
      (*joined)->Abort(cancelled.message());
      (*joined)->Leave(cancelled.message());
    }
    return NotJoined(request.has_rank() ? absl::StrCat(request.rank()) : "?", request.group(),
                     cancelled);
  }
  COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<ClientRank> entry, joined);
  COHORT_RETURN_IF_ERROR(sessions_.CheckRights(session));
  const GroupFacts facts = entry->facts();
  LogMembership("joined", *session, facts);
  Fill(group, facts, response);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* WorkerService::RejoinGroup(grpc::CallbackServerContext* context,
                                                     const v1::RejoinGroupRequest* request,
                                                     v1::JoinGroupResponse* response) {
  return RunCancellable(
      context, sessions_, gate_, access_.CallerOf("RejoinGroup", *context), request->session(),
      [=](const auto& session, const auto&) { return Rejoin(session, *request, response); });
}

absl::Status WorkerService::Rejoin(const std::shared_ptr<Session>& session,
                                   const v1::RejoinGroupRequest& request,
                                   v1::JoinGroupResponse* response) {
  COHORT_RETURN_IF_ERROR(sessions_.CheckServing());
  COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<ClientRank> entry,
                          session->FindGroup(request.group()));
  COHORT_ASSIGN_OR_RETURN(const absl::Duration timeout,
                          ReadTimeout(request.has_timeout(), request.timeout(), kRejoinTimeout));
  const client::Cancellation::Listener end_of_session(
      session->joining(), [&](const absl::Status& why) { entry->joining().Cancel(why); });
  const absl::Status rejoined = entry->Rejoin(timeout);
  const GroupFacts facts = entry->facts();
  if (const absl::Status cancelled = entry->joining().reason(); !cancelled.ok()) {
    return NotJoined(absl::StrCat(facts.rank), facts.group, cancelled);
  }
  COHORT_RETURN_IF_ERROR(rejoined);
  LogMembership("joined again", *session, facts);
  Fill(request.group(), facts, response);
  return absl::OkStatus();
}

grpc::Status WorkerService::LeaveGroup(grpc::ServerContext* context,
                                       const v1::LeaveGroupRequest* request,
                                       v1::LeaveGroupResponse*) {
  const auto leave = [&]() -> absl::Status {
    COHORT_ASSIGN_OR_RETURN(
        const std::shared_ptr<Session> session,
        sessions_.Find(request->session(), access_.CallerOf("LeaveGroup", *context)));
    COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<ClientRank> entry,
                            session->TakeGroup(request->group()));
    LogMembership("left", *session, entry->facts());
    // If other calls still use the group, they are ended. Otherwise it ends here, and its
    // destructor tells the other ranks that this rank leaves.
    if (entry.use_count() > 1) {
      entry->Abort("it leaves the group");
      entry->joining().Cancel(absl::AbortedError("it leaves the group"));
    }
    return absl::OkStatus();
  };
  return Answer(context, leave());
}

grpc::Status WorkerService::AbortGroup(grpc::ServerContext* context,
                                       const v1::AbortGroupRequest* request,
                                       v1::AbortGroupResponse*) {
  const auto abort = [&]() -> absl::Status {
    COHORT_ASSIGN_OR_RETURN(
        const std::shared_ptr<Session> session,
        sessions_.Find(request->session(), access_.CallerOf("AbortGroup", *context)));
    COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<ClientRank> entry,
                            session->FindGroup(request->group()));
    entry->Abort(Printable(absl::string_view(request->cause()).substr(0, kMaxCauseBytes)));
    return absl::OkStatus();
  };
  return Answer(context, abort());
}

}  // namespace cohort::worker
