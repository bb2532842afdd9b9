// Seats: taking one, taking it again, leaving it.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/status_macros.h"
#include "worker/service/answer.h"
#include "worker/service/attached_entry.h"
#include "worker/service/local_entry.h"
#include "worker/service/worker_service.h"

namespace cohort::worker {
namespace {

constexpr absl::Duration kJoinTimeout = absl::Seconds(300);
constexpr absl::Duration kRejoinTimeout = absl::Seconds(60);

void Fill(uint64_t group, const GroupFacts& facts, v1::JoinGroupResponse* response) {
  response->set_group(group);
  response->set_generation(facts.generation);
  response->set_rank(facts.rank);
  response->set_world_size(facts.world_size);
  for (const std::string& path : facts.paths) response->add_paths(path);
  response->set_why_not(facts.why_not);
}

void LogSeat(absl::string_view what, const Session& session, const GroupFacts& facts) {
  Log(LogLevel::kInfo, what,
      {{"group", facts.group},
       {"generation", facts.generation},
       {"rank", facts.rank},
       {"world_size", facts.world_size},
       {"client", session.client().name},
       {"pid", session.client().pid}});
}

}  // namespace

grpc::Status WorkerService::JoinGroup(grpc::ServerContext* context,
                                      const v1::JoinGroupRequest* request,
                                      v1::JoinGroupResponse* response) {
  return Answer(context, Join(*request, response));
}

absl::Status WorkerService::Join(const v1::JoinGroupRequest& request,
                                 v1::JoinGroupResponse* response) {
  COHORT_RETURN_IF_ERROR(sessions_.CheckServing());
  COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<Session> session,
                          sessions_.Find(request.session()));
  COHORT_ASSIGN_OR_RETURN(const absl::Duration timeout,
                          ReadTimeout(request.has_timeout(), request.timeout(), kJoinTimeout));
  COHORT_ASSIGN_OR_RETURN(const CallGate::Pass pass, gate_.Enter());
  LocalGroupOptions options;
  client::ProcessGroupOptions& membership = options.membership;
  membership.connection.address =
      request.coordinator().empty() ? options_.coordinator : request.coordinator();
  membership.connection.tenant = request.tenant();
  membership.group = request.group();
  if (request.has_rank()) membership.rank = request.rank();
  membership.world_size = request.world_size();
  membership.member = request.member();
  membership.parameters_digest = request.parameters_digest();
  if (request.has_lease()) {
    COHORT_ASSIGN_OR_RETURN(membership.lease, ReadTimeout(true, request.lease(), membership.lease));
  }
  membership.store_timeout = timeout;
  options.bootstrap.advertised_host = options_.advertised_host;
  options.bootstrap.host_identity = options_.host_identity;
  options.bootstrap.timeout = timeout;
  COHORT_ASSIGN_OR_RETURN(options.bootstrap.heap, session->heap());

  const uint64_t group = session->NextGroup();
  const auto on_ended = [weak = std::weak_ptr<Session>(session), group](int64_t generation,
                                                                        const std::string& cause) {
    const std::shared_ptr<Session> told = weak.lock();
    if (told == nullptr) return;
    v1::SessionEvent event;
    event.mutable_group_ended()->set_group(group);
    event.mutable_group_ended()->set_generation(generation);
    event.mutable_group_ended()->set_cause(cause);
    told->Tell(event);
  };
  std::shared_ptr<GroupEntry> entry;
  if (request.attached()) {
    COHORT_ASSIGN_OR_RETURN(
        entry, AttachedEntry::Join({std::move(options.membership), std::move(options.bootstrap)},
                                   on_ended));
  } else {
    COHORT_ASSIGN_OR_RETURN(entry, LocalEntry::Join(std::move(options), on_ended));
  }
  if (const absl::Status added = session->AddGroup(group, entry); !added.ok()) {
    // The client went while its seat was being taken: the others must not wait for it.
    entry->Abort(added.message());
    entry->Leave(added.message());
    return added;
  }
  const GroupFacts facts = entry->facts();
  LogSeat("joined", *session, facts);
  Fill(group, facts, response);
  return absl::OkStatus();
}

grpc::Status WorkerService::RejoinGroup(grpc::ServerContext* context,
                                        const v1::RejoinGroupRequest* request,
                                        v1::JoinGroupResponse* response) {
  return Answer(context, Rejoin(*request, response));
}

absl::Status WorkerService::Rejoin(const v1::RejoinGroupRequest& request,
                                   v1::JoinGroupResponse* response) {
  COHORT_RETURN_IF_ERROR(sessions_.CheckServing());
  COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<Session> session,
                          sessions_.Find(request.session()));
  COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<GroupEntry> entry,
                          session->FindGroup(request.group()));
  COHORT_ASSIGN_OR_RETURN(const absl::Duration timeout,
                          ReadTimeout(request.has_timeout(), request.timeout(), kRejoinTimeout));
  COHORT_ASSIGN_OR_RETURN(const CallGate::Pass pass, gate_.Enter());
  COHORT_RETURN_IF_ERROR(entry->Rejoin(timeout));
  const GroupFacts facts = entry->facts();
  LogSeat("joined again", *session, facts);
  Fill(request.group(), facts, response);
  return absl::OkStatus();
}

grpc::Status WorkerService::LeaveGroup(grpc::ServerContext* context,
                                       const v1::LeaveGroupRequest* request,
                                       v1::LeaveGroupResponse*) {
  const auto leave = [&]() -> absl::Status {
    COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<Session> session,
                            sessions_.Find(request->session()));
    COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<GroupEntry> entry,
                            session->TakeGroup(request->group()));
    LogSeat("left", *session, entry->facts());
    // What is still called ends; else the others are told that it left, as of any rank.
    if (entry.use_count() > 1) entry->Abort("it leaves the group");
    return absl::OkStatus();
  };
  return Answer(context, leave());
}

grpc::Status WorkerService::AbortGroup(grpc::ServerContext* context,
                                       const v1::AbortGroupRequest* request,
                                       v1::AbortGroupResponse*) {
  const auto abort = [&]() -> absl::Status {
    COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<Session> session,
                            sessions_.Find(request->session()));
    COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<GroupEntry> entry,
                            session->FindGroup(request->group()));
    entry->Abort(request->cause());
    return absl::OkStatus();
  };
  return Answer(context, abort());
}

}  // namespace cohort::worker
