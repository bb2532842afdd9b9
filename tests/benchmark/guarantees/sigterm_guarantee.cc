#include <grpcpp/grpcpp.h>
#include <signal.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "cohort/v1/group.grpc.pb.h"
#include "cohort/v1/store.grpc.pb.h"
#include "tests/benchmark/guarantees/guarantees.h"
#include "tests/benchmark/rendezvous/timing.h"

namespace cohort::benchmark {
namespace {

// Bare stubs, because Cohort's library would repeat an interrupted call until its timeout, and hide
// when each answer came.
template <typename Request, typename Response>
struct Call {
  grpc::ClientContext context;
  Request request;
  Response response;
  grpc::Status status;
  SteadyTime when;
};
using JoinCall = Call<v1::JoinRequest, v1::JoinResponse>;
using GetCall = Call<v1::GetRequest, v1::GetResponse>;

// The messages of gRPC's own client when the server has gone without an answer.
bool IsFromTransport(const grpc::Status& status) {
  const std::string text = status.error_message();
  return absl::StrContains(text, "ocket closed") || absl::StrContains(text, "onnection reset") ||
         absl::StrContains(text, "ailed to connect") || absl::StrContains(text, "roken pipe");
}

std::unique_ptr<JoinCall> NewJoin(int rank, int world_size) {
  auto call = std::make_unique<JoinCall>();
  call->request.mutable_scope()->set_group("never-complete");
  call->request.set_member(absl::StrCat("rank-", rank));
  call->request.set_incarnation(rank + 1);
  call->request.set_rank(rank);
  call->request.mutable_spec()->set_min_members(world_size);
  call->request.mutable_spec()->set_max_members(world_size);
  call->request.mutable_wait()->set_seconds(120);
  return call;
}

std::unique_ptr<GetCall> NewGet() {
  auto call = std::make_unique<GetCall>();
  call->request.add_keys("never-written");
  call->request.mutable_wait()->set_seconds(120);
  return call;
}

struct Tally {
  int by_server = 0;
  absl::Duration last;

  template <typename Calls>
  void Count(const Calls& calls, SteadyTime start) {
    for (const auto& call : calls) {
      if (!IsFromTransport(call->status)) ++by_server;
      last = std::max(last, absl::FromChrono(call->when - start));
    }
  }
};

}  // namespace

absl::StatusOr<Row> Sigterm(const CoordinatorOptions& options, bool) {
  constexpr int kEach = 500;
  COHORT_ASSIGN_OR_RETURN(const CoordinatorProcess coordinator, StartCoordinator(options));
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  std::vector<std::unique_ptr<v1::GroupService::Stub>> groups;
  std::vector<std::unique_ptr<v1::StoreService::Stub>> stores;
  for (int i = 0; i < kSharedConnections; ++i) {
    const auto channel = grpc::CreateCustomChannel(coordinator.address,
                                                   grpc::InsecureChannelCredentials(), arguments);
    groups.push_back(v1::GroupService::NewStub(channel));
    stores.push_back(v1::StoreService::NewStub(channel));
  }

  Completion completion(2 * kEach);
  const auto finisher = [&completion](auto* call) {
    return [call, &completion](grpc::Status status) {
      call->when = Now();
      call->status = std::move(status);
      completion.Done(absl::OkStatus());
    };
  };
  std::vector<std::unique_ptr<JoinCall>> joins;
  std::vector<std::unique_ptr<GetCall>> gets;
  for (int i = 0; i < kEach; ++i) {
    JoinCall* join = joins.emplace_back(NewJoin(i, kEach + 1)).get();
    groups[i % kSharedConnections]->async()->Join(&join->context, &join->request, &join->response,
                                                  finisher(join));
    GetCall* get = gets.emplace_back(NewGet()).get();
    stores[i % kSharedConnections]->async()->Get(&get->context, &get->request, &get->response,
                                                 finisher(get));
  }
  absl::SleepFor(absl::Seconds(2));

  const SteadyTime start = Now();
  COHORT_RETURN_IF_ERROR(coordinator.process->Signal(SIGTERM));
  absl::StatusOr<ExitStatus> exit = coordinator.process->Wait(absl::Seconds(60));
  const absl::Duration ended = absl::FromChrono(Now() - start);
  if (!exit.ok()) {
    coordinator.process->Signal(SIGKILL).IgnoreError();
    exit = ExitStatus{};
  }
  // Whatever the server did, each call ends once its connection is gone.
  COHORT_RETURN_IF_ERROR(completion.Wait().status());
  Tally tally;
  tally.Count(joins, start);
  tally.Count(gets, start);

  Row row = GuaranteeRow("sigterm", kEach, options);
  row["parked_calls"] = 2 * kEach;
  row["connections"] = "shared-8";
  row["answered_by_server"] = tally.by_server;
  row["last_answer_ms"] = Rounded(absl::ToDoubleMilliseconds(tally.last), 1);
  row["exit_code"] = exit->code;
  row["exit_ms"] = Rounded(absl::ToDoubleMilliseconds(ended), 1);
  row["example_of_answer"] = joins[0]->status.error_message();
  row["holds"] = tally.by_server == 2 * kEach && exit->code == 0;
  return row;
}

}  // namespace cohort::benchmark
