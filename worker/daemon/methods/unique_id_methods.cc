// Relays the ids of communicators, and the progress of ranks, between the coordinator and clients
// that run their ranks' collectives themselves.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/daemon/methods/answer.h"
#include "worker/daemon/methods/worker_service.h"

namespace cohort::worker {
namespace {

using Phase = client::ProcessGroup::InitPhase;

constexpr absl::Duration kFetchTimeout = absl::Seconds(300);

struct Attached {
  std::shared_ptr<Session> session;
  std::shared_ptr<ClientRank> entry;
};

// Finds the group of a request: in its session, attached, and in the request's generation.
template <typename Request>
absl::StatusOr<Attached> FindAttached(SessionTable& sessions, const Caller& caller,
                                      const Request& request) {
  COHORT_ASSIGN_OR_RETURN(std::shared_ptr<Session> session,
                          sessions.Find(request.session(), caller));
  COHORT_ASSIGN_OR_RETURN(std::shared_ptr<ClientRank> entry, session->FindGroup(request.group()));
  const GroupFacts facts = entry->facts();
  if (!facts.attached) {
    return absl::FailedPreconditionError(
        absl::StrCat("group ", facts.group, " was not joined as attached"));
  }
  if (facts.generation != request.generation()) {
    return absl::AbortedError(absl::StrCat("rank ", facts.rank, " of group ", facts.group,
                                           " is in generation ", facts.generation, ", not in ",
                                           request.generation()));
  }
  return Attached{std::move(session), std::move(entry)};
}

std::optional<Phase> FromProto(v1::GroupInitPhase phase) {
  static_assert(static_cast<int>(Phase::kFailed) + 1 == v1::GROUP_INIT_PHASE_FAILED);
  if (phase == v1::GROUP_INIT_PHASE_UNSPECIFIED || !v1::GroupInitPhase_IsValid(phase)) {
    return std::nullopt;
  }
  return static_cast<Phase>(phase - 1);
}

}  // namespace

grpc::Status WorkerService::PublishUniqueIds(grpc::ServerContext* context,
                                             const v1::PublishUniqueIdsRequest* request,
                                             v1::PublishUniqueIdsResponse*) {
  const auto publish = [&]() -> absl::Status {
    COHORT_ASSIGN_OR_RETURN(
        const Attached attached,
        FindAttached(sessions_, access_.CallerOf("PublishUniqueIds", *context), *request));
    COHORT_ASSIGN_OR_RETURN(const CallGate::Pass pass, gate_.Enter(attached.session->calls()));
    const std::vector<std::string> ids(request->ids().begin(), request->ids().end());
    return attached.entry->membership().PublishUniqueIds(request->name(), ids);
  };
  return Answer(context, publish());
}

grpc::Status WorkerService::FetchUniqueIds(grpc::ServerContext* context,
                                           const v1::FetchUniqueIdsRequest* request,
                                           v1::FetchUniqueIdsResponse* response) {
  const auto fetch = [&]() -> absl::Status {
    COHORT_ASSIGN_OR_RETURN(
        const Attached attached,
        FindAttached(sessions_, access_.CallerOf("FetchUniqueIds", *context), *request));
    COHORT_ASSIGN_OR_RETURN(const absl::Duration timeout,
                            ReadTimeout(request->has_timeout(), request->timeout(), kFetchTimeout));
    COHORT_ASSIGN_OR_RETURN(const CallGate::Pass pass, gate_.Enter(attached.session->calls()));
    COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> ids,
                            attached.entry->membership().FetchUniqueIds(request->name(), timeout));
    for (const std::string& id : ids) response->add_ids(id);
    return absl::OkStatus();
  };
  return Answer(context, fetch());
}

grpc::Status WorkerService::ReportGroupInit(grpc::ServerContext* context,
                                            const v1::ReportGroupInitRequest* request,
                                            v1::ReportGroupInitResponse*) {
  const auto report = [&]() -> absl::Status {
    COHORT_ASSIGN_OR_RETURN(
        const Attached attached,
        FindAttached(sessions_, access_.CallerOf("ReportGroupInit", *context), *request));
    const std::optional<Phase> phase = FromProto(request->phase());
    if (!phase.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("unknown phase ", request->phase()));
    }
    COHORT_ASSIGN_OR_RETURN(const CallGate::Pass pass, gate_.Enter(attached.session->calls()));
    return attached.entry->membership().ReportInit(request->name(), *phase, request->detail());
  };
  return Answer(context, report());
}

}  // namespace cohort::worker
