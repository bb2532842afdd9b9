#include "worker/daemon/sessions/session_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text/logging.h"
#include "base/threads/thread.h"

namespace cohort::worker {

SessionTable::~SessionTable() {
  MutexLock lock(&state_->mutex);
  state_->ended = true;
}

absl::StatusOr<std::shared_ptr<Session>> SessionTable::Open(Session::Client client,
                                                            const Caller& caller) {
  COHORT_RETURN_IF_ERROR(caller.Require(Role::kMember, ""));
  COHORT_RETURN_IF_ERROR(caller.CheckCertificate());
  COHORT_RETURN_IF_ERROR(CheckServing());
  COHORT_RETURN_IF_ERROR(StartLeaver());
  client.identity = caller.identity();
  client.tenant = std::string(caller.tenant());
  COHORT_ASSIGN_OR_RETURN(std::shared_ptr<Session> session,
                          Session::Create(std::move(client), quotas_));
  {
    MutexLock lock(&state_->mutex);
    if (state_->sessions.size() >= kMaxSessions) {
      return absl::ResourceExhaustedError(
          absl::StrCat("there are ", kMaxSessions, " sessions, as many as a worker has"));
    }
    if (caller.checked()) COHORT_RETURN_IF_ERROR(CheckShare(*state_, session->client()));
    state_->sessions[session->id()] = session;
  }
  Log(LogLevel::kInfo, "session opened",
      {{"client", session->client().name},
       {"pid", session->client().pid},
       {"host", session->client().host},
       {"identity", caller.checked() ? caller.identity() : "not checked"},
       {"from", caller.address()}});
  COHORT_RETURN_IF_ERROR(CheckRights(session));
  return session;
}

absl::Status SessionTable::CheckShare(const State& state, const Session::Client& client) {
  size_t of_identity = 0;
  size_t of_tenant = 0;
  for (const auto* sessions : {&state.sessions, &state.leaving}) {
    for (const auto& [id, session] : *sessions) {
      of_identity += session->client().identity == client.identity ? 1 : 0;
      of_tenant += session->client().tenant == client.tenant ? 1 : 0;
    }
  }
  if (of_identity >= kMaxSessionsOfIdentity) {
    return absl::ResourceExhaustedError(absl::StrCat(
        client.identity, " has ", of_identity, " sessions, as many as one identity may have"));
  }
  if (!client.tenant.empty() && of_tenant >= kMaxSessionsOfTenant) {
    return absl::ResourceExhaustedError(absl::StrCat("tenant ", client.tenant, " has ", of_tenant,
                                                     " sessions, as many as one tenant may have"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Session>> SessionTable::Find(absl::string_view id,
                                                            const Caller& caller) const {
  COHORT_RETURN_IF_ERROR(caller.Require(Role::kMember, ""));
  if (id.size() != Id128::kBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("session: ", id.size(), " bytes; an id has ", Id128::kBytes));
  }
  std::shared_ptr<Session> session;
  {
    MutexLock lock(&state_->mutex);
    const auto found = state_->sessions.find(Id128::FromBytes(id));
    if (found == state_->sessions.end()) {
      return absl::NotFoundError("there is no such session: it has ended, or was another worker's");
    }
    session = found->second;
  }
  if (!caller.checked()) return session;
  if (session->client().identity != caller.identity()) {
    return caller.Deny(absl::StrCat("the session of ", session->Describe(), " belongs to ",
                                    session->client().identity, ", not to ", caller.identity()));
  }
  COHORT_RETURN_IF_ERROR(session->CheckTenants(caller));
  return session;
}

void SessionTable::End(const std::shared_ptr<Session>& session, absl::string_view cause) {
  if (!session->End(cause)) return;
  Log(LogLevel::kInfo, "session ended",
      {{"client", session->client().name},
       {"pid", session->client().pid},
       {"groups", static_cast<int64_t>(session->groups().size())},
       {"cause", cause}});
  {
    MutexLock lock(&state_->mutex);
    state_->sessions.erase(session->id());
    state_->leaving[session->id()] = session;
  }
  // On a thread of its own: a session whose coordinator is away does not delay the others.
  const absl::Status started = StartDetachedThread(
      "cohort-leave", [state = state_, session]() mutable { Leave(state, std::move(session)); });
  if (started.ok()) return;
  MutexLock lock(&state_->mutex);
  state_->in_turn.push_back(session);
}

void SessionTable::EndWithoutRights() {
  for (const std::shared_ptr<Session>& session : All()) CheckRights(session).IgnoreError();
}

absl::Status SessionTable::CheckRights(const std::shared_ptr<Session>& session) {
  const Session::Client& client = session->client();
  if (policy_ == nullptr || client.names.empty()) return absl::OkStatus();
  if (session->MayBelongTo(policy_->RemainingRightsOf(client.names))) return absl::OkStatus();
  const std::string lost = absl::StrCat("its client, ", client.identity, ", has lost its rights");
  End(session, lost);
  return absl::PermissionDeniedError(
      absl::StrCat("the session of ", session->Describe(), " has ended: ", lost));
}

absl::Status SessionTable::StartLeaver() {
  MutexLock lock(&state_->mutex);
  if (state_->has_leaver) return absl::OkStatus();
  COHORT_RETURN_IF_ERROR(
      StartDetachedThread("cohort-leave", [state = state_] { LeaveInTurn(state); }));
  state_->has_leaver = true;
  return absl::OkStatus();
}

void SessionTable::LeaveInTurn(const std::shared_ptr<State>& state) {
  const auto called = [&state]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return state->ended || !state->in_turn.empty();
  };
  while (true) {
    std::vector<std::shared_ptr<Session>> sessions;
    {
      MutexLock lock(&state->mutex);
      state->mutex.Await(absl::Condition(&called));
      if (state->in_turn.empty()) return;
      sessions.swap(state->in_turn);
    }
    for (std::shared_ptr<Session>& session : sessions) Leave(state, std::move(session));
  }
}

void SessionTable::Leave(const std::shared_ptr<State>& state, std::shared_ptr<Session> session) {
  session->Leave();
  const Id128 id = session->id();
  session.reset();
  std::shared_ptr<Session> left;  // after unlock
  MutexLock lock(&state->mutex);
  const auto found = state->leaving.find(id);
  left = std::move(found->second);
  state->leaving.erase(found);
}

std::vector<std::shared_ptr<Session>> SessionTable::All() const {
  std::vector<std::shared_ptr<Session>> all;
  MutexLock lock(&state_->mutex);
  for (const auto& [id, session] : state_->sessions) all.push_back(session);
  return all;
}

WorkerStats SessionTable::Stats() const {
  std::vector<std::shared_ptr<Session>> all = All();
  {
    MutexLock lock(&state_->mutex);
    for (const auto& [id, session] : state_->leaving) all.push_back(session);
  }
  WorkerStats stats;
  for (const std::shared_ptr<Session>& session : all) {
    ++stats.sessions;
    stats.groups += static_cast<int64_t>(session->groups().size());
    stats.tensors += session->tensors().count();
    stats.tensor_bytes += session->tensors().bytes();
  }
  return stats;
}

void SessionTable::Drain() {
  {
    MutexLock lock(&state_->mutex);
    state_->draining = true;
  }
  for (const std::shared_ptr<Session>& session : All()) session->joining().Cancel(CheckServing());
}

absl::Status SessionTable::CheckServing() const {
  MutexLock lock(&state_->mutex);
  return state_->draining ? absl::UnavailableError("the worker is draining") : absl::OkStatus();
}

bool SessionTable::AwaitLeft(Instant deadline) const {
  MutexLock lock(&state_->mutex);
  const auto none = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return state_->leaving.empty(); };
  return state_->mutex.AwaitWithTimeout(absl::Condition(&none), deadline - Clock::Steady().Now());
}

}  // namespace cohort::worker
