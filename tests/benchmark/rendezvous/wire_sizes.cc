#include "tests/benchmark/rendezvous/wire_sizes.h"

#include <string>

#include "cohort/v1/group.pb.h"
#include "cohort/v1/messaging.pb.h"
#include "cohort/v1/store.pb.h"

namespace cohort::benchmark {
namespace {

// Takes as many bytes as most random receipts.
constexpr int64_t kReceipt = int64_t{1} << 62;

// Sets the fields that Cohort's client puts into each call of a member.
void FillScope(v1::Scope* scope) {
  scope->set_group("benchmark-0000");
  scope->set_generation(1);
  scope->set_session(std::string(16, 's'));
  scope->set_operation_id(std::string(16, 'o'));
}

void FillRound(v1::Round* round) {
  round->set_number(1000);
  round->mutable_wait()->set_seconds(30);
}

void FillResult(v1::RoundResult* result) {
  result->set_outcome(v1::ROUND_OUTCOME_RELEASED);
  result->set_number(1000);
  result->set_next_number(1001);
  result->mutable_skew()->set_nanos(1'000'000);
}

WireSizes Barrier() {
  v1::BarrierRequest request;
  FillScope(request.mutable_scope());
  FillRound(request.mutable_round());
  v1::BarrierResponse response;
  FillResult(response.mutable_result());
  return {static_cast<int64_t>(request.ByteSizeLong()),
          static_cast<int64_t>(response.ByteSizeLong())};
}

WireSizes AllGather(int members, int64_t bytes) {
  v1::AllGatherRequest request;
  FillScope(request.mutable_scope());
  FillRound(request.mutable_round());
  request.mutable_payload()->set_inline_(std::string(bytes, 'x'));
  v1::AllGatherResponse response;
  FillResult(response.mutable_result());
  response.mutable_result()->set_receipt(kReceipt);
  response.mutable_values()->set_inline_(std::string(members * bytes, 'x'));
  for (int i = 0; i < members; ++i) response.mutable_values()->add_sizes_bytes(bytes);
  return {static_cast<int64_t>(request.ByteSizeLong()),
          static_cast<int64_t>(response.ByteSizeLong())};
}

WireSizes Receive(int64_t bytes) {
  v1::ReceiveRequest request;
  FillScope(request.mutable_scope());
  request.set_source(0);
  request.mutable_wait()->set_seconds(300);
  v1::ReceiveResponse response;
  response.set_outcome(v1::RECEIVE_OUTCOME_RECEIVED);
  response.mutable_payload()->set_inline_(std::string(bytes, 'x'));
  response.set_sequence(1000);
  response.set_receipt(kReceipt);
  return {static_cast<int64_t>(request.ByteSizeLong()),
          static_cast<int64_t>(response.ByteSizeLong())};
}

WireSizes Put(int64_t bytes) {
  v1::PutRequest request;
  request.mutable_scope()->set_operation_id(std::string(16, 'o'));
  request.set_key("benchmark/caller-00");
  request.set_value(std::string(bytes, 'x'));
  v1::PutResponse response;
  response.set_written(true);
  response.set_revision(1'000'000);
  return {static_cast<int64_t>(request.ByteSizeLong()),
          static_cast<int64_t>(response.ByteSizeLong())};
}

WireSizes Join(int members) {
  v1::JoinRequest request;
  FillScope(request.mutable_scope());
  request.set_member("rank-1000");
  request.set_incarnation(INT64_MAX);
  request.set_rank(1000);
  request.set_host("a-host-name");
  v1::GroupSpec* spec = request.mutable_spec();
  spec->set_min_members(members);
  spec->set_max_members(members);
  spec->mutable_lease()->set_seconds(30);
  spec->mutable_disconnect_grace()->set_nanos(500'000'000);
  spec->mutable_data_expiration()->set_seconds(3600);
  request.mutable_wait()->set_seconds(300);
  v1::JoinResponse response;
  response.set_outcome(v1::JOIN_OUTCOME_JOINED);
  response.set_session(std::string(16, 's'));
  response.set_rank(1000);
  response.set_world_size(members);
  response.set_generation(1);
  response.set_revision(members);
  response.mutable_lease()->set_seconds(30);
  response.set_server_incarnation(INT64_MAX);
  return {static_cast<int64_t>(request.ByteSizeLong()),
          static_cast<int64_t>(response.ByteSizeLong())};
}

}  // namespace

WireSizes SizesOf(const Config& config) {
  switch (config.kind) {
    case OperationKind::kBarrier:
      return Barrier();
    case OperationKind::kAllGather:
      return AllGather(config.members, config.bytes);
    case OperationKind::kHandoff:
      return Receive(config.bytes);
    case OperationKind::kPut:
      return Put(config.bytes);
    case OperationKind::kJoin:
      return Join(config.members);
  }
  return {};
}

WireSizes SizesOfSend(int64_t bytes) {
  v1::SendRequest request;
  FillScope(request.mutable_scope());
  request.set_destination(1);
  request.mutable_payload()->set_inline_(std::string(bytes, 'x'));
  v1::SendResponse response;
  response.set_sequence(1000);
  return {static_cast<int64_t>(request.ByteSizeLong()),
          static_cast<int64_t>(response.ByteSizeLong())};
}

}  // namespace cohort::benchmark
