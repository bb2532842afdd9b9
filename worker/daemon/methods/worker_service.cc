#include "worker/daemon/methods/worker_service.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/escaping.h"
#include "base/clock.h"
#include "base/host_name.h"
#include "base/rpc/answered_by_worker.h"
#include "base/version.h"
#include "worker/daemon/methods/answer.h"
#include "worker/daemon/methods/collective_request.h"
#include "worker/daemon/methods/streams/session_stream.h"
#include "worker/group/flight_recorder/flight_export.h"

namespace cohort::worker {
namespace {

void Fill(const client::FlightCall& call, v1::FlightEntry* to) {
  to->set_sequence(call.sequence);
  to->set_generation(call.generation);
  to->set_number(call.number);
  to->set_collective(NameOf(call.collective).data());
  to->set_data_type(static_cast<int>(call.type));
  to->set_bytes(call.bytes);
  to->set_root(call.root);
  to->set_on_stream(call.on_stream);
  to->set_started_ns(absl::ToUnixNanos(call.started));
  if (call.finished.has_value()) to->set_finished_ns(absl::ToUnixNanos(*call.finished));
  if (call.device_started.has_value()) {
    to->set_device_started_ns(absl::ToUnixNanos(*call.device_started));
  }
  if (call.device_finished.has_value()) {
    to->set_device_finished_ns(absl::ToUnixNanos(*call.device_finished));
  }
  to->set_state(call.state);
}

}  // namespace

WorkerService::WorkerService(WorkerServiceOptions options, SessionTable& sessions, CallGate& gate,
                             Metrics& metrics)
    : CheckedService(
          *v1::JoinGroupRequest::descriptor()->file()->FindServiceByName("WorkerService"),
          [this](const char* method, const grpc::ServerContextBase& context) {
            return access_.CallerOf(method, context).Has(RoleOfMethod(method), "");
          }),
      options_(std::move(options)),
      access_(options_.checks_access),
      started_(Clock::Steady().Now()),
      sessions_(sessions),
      gate_(gate),
      metrics_(metrics),
      streams_(options_.stream_idle_limit, gate.max_calls()) {
  AddCallback("OpenSession", this, &WorkerService::OpenSession);
  AddCallback("JoinGroup", this, &WorkerService::JoinGroup);
  AddCallback("RejoinGroup", this, &WorkerService::RejoinGroup);
  AddBlocking("LeaveGroup", this, &WorkerService::LeaveGroup);
  AddBlocking("AbortGroup", this, &WorkerService::AbortGroup);
  AddBlocking("CreateTensor", this, &WorkerService::CreateTensor);
  AddBlocking("FreeTensor", this, &WorkerService::FreeTensor);
  AddCallback("WriteTensor", this, &WorkerService::WriteTensor);
  AddCallback("ReadTensor", this, &WorkerService::ReadTensor);
  AddBlocking<WorkerService, v1::RunCollectiveRequest>(
      "RunCollective", this, &WorkerService::RunCollective, CollectiveRequest::kMostFields);
  AddCallback<WorkerService, v1::RunObjectRequest>("RunObject", this, &WorkerService::RunObject);
  AddBlocking("PublishUniqueIds", this, &WorkerService::PublishUniqueIds);
  AddBlocking("FetchUniqueIds", this, &WorkerService::FetchUniqueIds);
  AddBlocking("ReportGroupInit", this, &WorkerService::ReportGroupInit);
  AddBlocking("GetWorker", this, &WorkerService::GetWorker);
  AddBlocking("GetFlightRecord", this, &WorkerService::GetFlightRecord);
}

grpc::ServerWriteReactor<v1::SessionEvent>* WorkerService::OpenSession(
    grpc::CallbackServerContext* context, const v1::OpenSessionRequest* request) {
  context->AddTrailingMetadata(kAnsweredKey, "1");
  absl::StatusOr<std::shared_ptr<Session>> session = sessions_.Open(
      {request->client(), request->pid(), request->host(), "", "", access_.NamesOf(*context)},
      access_.CallerOf("OpenSession", *context));
  if (!session.ok()) return new SessionStream(sessions_, session.status());
  v1::SessionEvent event;
  v1::SessionOpened& opened = *event.mutable_opened();
  opened.set_session((*session)->id().ToBytes());
  opened.set_attach_socket(options_.attach_socket);
  opened.set_attach_folder(options_.attach_folder);
  opened.set_coordinator(options_.coordinator);
  opened.set_pid(getpid());
  opened.set_host(HostName());
  opened.set_max_message_bytes(options_.max_message_bytes);
  return new SessionStream(sessions_, *std::move(session), event);
}

grpc::Status WorkerService::GetWorker(grpc::ServerContext* context, const v1::GetWorkerRequest*,
                                      v1::GetWorkerResponse* response) {
  const Caller caller = access_.CallerOf("GetWorker", *context);
  if (const absl::Status may = caller.Require(RoleOfMethod("GetWorker"), ""); !may.ok()) {
    return Answer(context, may);
  }
  const WorkerStats stats = sessions_.Stats();
  response->set_version(kVersion);
  response->set_pid(getpid());
  response->set_host(HostName());
  const absl::Duration uptime = Clock::Steady().Now() - started_;
  response->mutable_uptime()->set_seconds(absl::ToInt64Seconds(uptime));
  response->set_coordinator(options_.coordinator);
  response->set_session_count(static_cast<int32_t>(stats.sessions));
  response->set_tensor_count(stats.tensors);
  response->set_tensor_bytes(stats.tensor_bytes);
  response->set_draining(sessions_.draining());
  response->set_call_count(gate_.active());
  for (const std::shared_ptr<Session>& session : sessions_.All()) {
    for (const auto& [number, entry] : session->groups()) {
      const GroupFacts facts = entry->facts();
      if (!caller.Has(Role::kObserver, facts.tenant)) continue;
      v1::WorkerRank& rank = *response->add_ranks();
      // Enough digits to tell sessions apart, too few to use one.
      rank.set_session(absl::BytesToHexString(session->id().ToBytes().substr(0, 4)));
      rank.set_client(session->client().name);
      rank.set_client_pid(session->client().pid);
      rank.set_tenant(facts.tenant);
      rank.set_group(facts.group);
      rank.set_generation(facts.generation);
      rank.set_rank(facts.rank);
      rank.set_world_size(facts.world_size);
      rank.set_attached(facts.attached);
      for (const std::string& path : facts.paths) rank.add_paths(path);
      rank.set_ended(facts.ended);
      for (const WaitedFor& wait : entry->ReadWaits()) {
        v1::RankWait& to = *rank.add_waits();
        to.set_rank(wait.rank);
        to.set_seconds(absl::ToDoubleSeconds(wait.time));
      }
    }
  }
  return Answer(context, absl::OkStatus());
}

grpc::Status WorkerService::GetFlightRecord(grpc::ServerContext* context,
                                            const v1::GetFlightRecordRequest* request,
                                            v1::GetFlightRecordResponse* response) {
  const Caller caller = access_.CallerOf("GetFlightRecord", *context);
  if (const absl::Status may = caller.Require(RoleOfMethod("GetFlightRecord"), ""); !may.ok()) {
    return Answer(context, may);
  }
  for (const std::shared_ptr<Session>& session : sessions_.All()) {
    for (const auto& [number, entry] : session->groups()) {
      const GroupFacts facts = entry->facts();
      if (!request->group().empty() && request->group() != facts.group) continue;
      if (!caller.Has(Role::kObserver, facts.tenant)) continue;
      const client::FlightRecord read = ExportFlightRecord(entry->ReadFlightRecord());
      v1::FlightRecord& record = *response->add_records();
      record.set_tenant(facts.tenant);
      record.set_group(facts.group);
      record.set_generation(facts.generation);
      record.set_rank(facts.rank);
      record.set_world_size(facts.world_size);
      record.set_host(read.host);
      // The client, a process of this host, runs the calls of an attached group.
      record.set_pid(facts.attached ? session->client().pid : read.pid);
      record.set_clock(read.clock);
      record.set_calendar_ns(absl::ToInt64Nanoseconds(read.calendar));
      record.set_taken_ns(absl::ToUnixNanos(read.taken));
      for (const client::FlightCall& call : read.calls) Fill(call, record.add_entries());
    }
  }
  return Answer(context, absl::OkStatus());
}

}  // namespace cohort::worker
