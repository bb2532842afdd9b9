#include "client/collective/remote/worker_client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/rpc/client_tls.h"
#include "base/rpc/grpc_deadline.h"
#include "base/rpc/status_conversion.h"
#include "base/status_macros.h"
#include "base/threads/hooked_call.h"
#include "cohort/v1/worker.grpc.pb.h"
#include "grpcpp/create_channel.h"

namespace cohort::client {
namespace {

using Stub = v1::WorkerService::Stub;

WorkerRank Read(const v1::WorkerRank& from) {
  WorkerRank rank;
  rank.client = from.client();
  rank.client_pid = from.client_pid();
  rank.tenant = from.tenant();
  rank.group = from.group();
  rank.generation = from.generation();
  rank.rank = from.rank();
  rank.world_size = from.world_size();
  rank.attached = from.attached();
  rank.paths.assign(from.paths().begin(), from.paths().end());
  rank.ended = from.ended();
  for (const v1::RankWait& wait : from.waits()) {
    rank.waits.push_back({wait.rank(), absl::Seconds(wait.seconds())});
  }
  return rank;
}

FlightCall Read(const v1::FlightEntry& from) {
  FlightCall call;
  call.sequence = from.sequence();
  call.generation = from.generation();
  call.number = from.number();
  call.collective = FindCollective(from.collective());
  if (IsDataType(from.data_type())) call.type = static_cast<DataType>(from.data_type());
  call.bytes = from.bytes();
  call.root = from.root();
  call.on_stream = from.on_stream();
  call.started = absl::FromUnixNanos(from.started_ns());
  if (from.finished_ns() != 0) call.finished = absl::FromUnixNanos(from.finished_ns());
  call.state = from.state();
  if (from.device_started_ns() != 0) {
    call.device_started = absl::FromUnixNanos(from.device_started_ns());
  }
  if (from.device_finished_ns() != 0) {
    call.device_finished = absl::FromUnixNanos(from.device_finished_ns());
  }
  return call;
}

class WorkerClientImpl final : public WorkerClient {
 public:
  WorkerClientImpl(const std::string& address, absl::Duration timeout)
      : address_(address), timeout_(timeout), tls_(ClientTlsOfEnvironment(address)) {
    if (!tls_.ok()) return;  // each call returns the error
    stub_ = v1::WorkerService::NewStub(grpc::CreateChannel(address, tls_->grpc));
  }

  absl::StatusOr<WorkerInfo> Describe() override {
    v1::GetWorkerRequest request;
    v1::GetWorkerResponse response;
    COHORT_RETURN_IF_ERROR(Call(&Stub::GetWorker, request, &response));
    WorkerInfo info;
    info.version = response.version();
    info.pid = response.pid();
    info.host = response.host();
    info.uptime = absl::Seconds(response.uptime().seconds());
    info.coordinator = response.coordinator();
    info.session_count = response.session_count();
    info.tensor_count = response.tensor_count();
    info.tensor_bytes = response.tensor_bytes();
    info.draining = response.draining();
    for (const v1::WorkerRank& rank : response.ranks()) info.ranks.push_back(Read(rank));
    return info;
  }

  absl::StatusOr<std::vector<FlightRecord>> ReadFlightRecords(const std::string& group) override {
    v1::GetFlightRecordRequest request;
    request.set_group(group);
    v1::GetFlightRecordResponse response;
    COHORT_RETURN_IF_ERROR(Call(&Stub::GetFlightRecord, request, &response));
    std::vector<FlightRecord> records;
    for (const v1::FlightRecord& from : response.records()) {
      FlightRecord record;
      record.tenant = from.tenant();
      record.group = from.group();
      record.generation = from.generation();
      record.rank = from.rank();
      record.world_size = from.world_size();
      record.host = from.host();
      record.pid = from.pid();
      record.clock = from.clock();
      record.calendar = absl::Nanoseconds(from.calendar_ns());
      record.taken = absl::FromUnixNanos(from.taken_ns());
      for (const v1::FlightEntry& entry : from.entries()) record.calls.push_back(Read(entry));
      records.push_back(std::move(record));
    }
    return records;
  }

 private:
  template <typename Method, typename Request, typename Response>
  absl::Status Call(Method method, const Request& request, Response* response) {
    if (!tls_.ok()) return tls_.status();
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(timeout_));
    grpc::Status answer;
    RunHooked([&] { answer = ((*stub_).*method)(&context, request, response); });
    const absl::Status status = FromGrpcStatus(answer);
    if (status.ok()) return status;
    return absl::Status(status.code(),
                        absl::StrCat("the worker at ", address_, ": ", status.message()));
  }

  const std::string address_;
  const absl::Duration timeout_;
  const absl::StatusOr<ClientTls> tls_;
  std::unique_ptr<Stub> stub_;  // null: without `tls_`
};

}  // namespace

std::unique_ptr<WorkerClient> WorkerClient::Create(const std::string& address,
                                                   absl::Duration timeout) {
  return std::make_unique<WorkerClientImpl>(address, timeout);
}

}  // namespace cohort::client
