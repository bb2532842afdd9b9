// Replies that up to a thousand members get. Their common part is serialised once per batch.
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "cohort/v1/messaging.pb.h"
#include "coordinator/core/interface/memory_account.h"
#include "coordinator/service/codec/encode_parts.h"

namespace cohort::coordinator {
namespace {

// The field numbers that the round responses have in common.
constexpr int kResultField = 1;
constexpr int kValueField = 2;

static_assert(v1::BarrierResponse::kResultFieldNumber == kResultField);
static_assert(v1::AllGatherResponse::kResultFieldNumber == kResultField);
static_assert(v1::GatherResponse::kResultFieldNumber == kResultField);
static_assert(v1::BroadcastResponse::kResultFieldNumber == kResultField);
static_assert(v1::ScatterResponse::kResultFieldNumber == kResultField);
static_assert(v1::VoteResponse::kResultFieldNumber == kResultField);
static_assert(v1::AgreeAliveResponse::kResultFieldNumber == kResultField);
static_assert(v1::AllGatherResponse::kValuesFieldNumber == kValueField);
static_assert(v1::GatherResponse::kValuesFieldNumber == kValueField);
static_assert(v1::BroadcastResponse::kPayloadFieldNumber == kValueField);
static_assert(v1::ScatterResponse::kPayloadFieldNumber == kValueField);

// Serialises the fields that all members of the round get: the result, and the decision of votes
// and agreements.
std::string SerializeResult(const RoundEnd& end) {
  // The vote's response has the same result field as all others, and is the largest of those
  // without values.
  v1::VoteResponse response;
  v1::RoundResult* result = response.mutable_result();
  result->set_outcome(static_cast<v1::RoundOutcome>(end.outcome));
  result->set_number(end.number);
  result->set_next_number(end.next_number);
  if (end.outcome != RoundOutcome::kReleased) Fill(end.missing, result->mutable_missing());
  result->set_reason(end.reason);
  Fill(end.skew, result->mutable_skew());
  result->set_receipt(end.receipt);
  result->set_late(end.late);
  if (end.kind == RoundKind::kVote) {
    response.set_value(end.vote);
    Fill(end.dissenting.ToRanges(), response.mutable_dissenting());
  }
  std::string bytes = response.SerializeAsString();
  if (end.kind == RoundKind::kAgreeAlive) {
    v1::AgreeAliveResponse alive;
    Fill(end.alive.ToRanges(), alive.mutable_alive());
    alive.AppendToString(&bytes);
  }
  return bytes;
}

// The `values` field, inline or as a blob that every reader of the round shares.
std::string SerializeValues(const RoundEnd& end, const EncodeContext& context) {
  const int readers = end.kind == RoundKind::kAllGather ? static_cast<int>(end.values.size()) : 1;
  int64_t total = 0;
  for (const Payload& value : end.values) total += value.size();
  v1::Values values;
  if (total > context.max_inline_bytes) {
    const OutgoingBlobs::Issued issued = context.blobs->Issue(
        context.now, *context.key, Id128{}, readers, end.values, end.receipt, context.max_blob_bytes);
    values.mutable_blob()->set_blob(issued.id);
    values.mutable_blob()->set_size_bytes(issued.content->size_bytes);
    values.mutable_blob()->set_crc32(issued.content->crc32);
    for (const Payload& value : end.values) values.add_sizes_bytes(value.size());
    const std::string bytes = values.SerializeAsString();
    return FieldHeader(kValueField, bytes.size()) + bytes;
  }
  for (const Payload& value : end.values) values.add_sizes_bytes(value.size());
  const std::string sizes = values.SerializeAsString();
  // Written by hand: no second copy of the values in a message.
  const std::string header =
      FieldHeader(v1::Values::kInlineFieldNumber, static_cast<size_t>(total));
  const size_t inner = header.size() + static_cast<size_t>(total) + sizes.size();
  std::string bytes = FieldHeader(kValueField, inner);
  bytes.reserve(bytes.size() + inner);
  bytes += header;
  for (const Payload& value : end.values) bytes += value.bytes();
  bytes += sizes;
  return bytes;
}

// Bytes with their charge, until the last message that has them is gone.
struct ChargedBytes {
  ChargedBytes(std::shared_ptr<MemoryAccount> in, std::string text)
      : account(std::move(in)),
        bytes(std::move(text)),
        charge(*account, MemoryKind::kOutput, CostOf(bytes)) {}
  const std::shared_ptr<MemoryAccount> account;
  const std::string bytes;
  const SharedCharge charge;
};

// To be shared by the answers of a batch. RESOURCE_EXHAUSTED names the limit.
absl::Status ShareBytes(std::string bytes, const EncodeContext& context,
                        std::shared_ptr<const std::string>* shared) {
  // Less than this is no danger, and most rounds share less.
  constexpr size_t kUncharged = 1024;
  if (context.tenants == nullptr || bytes.size() <= kUncharged) {
    *shared = std::make_shared<const std::string>(std::move(bytes));
    return absl::OkStatus();
  }
  std::shared_ptr<MemoryAccount> account = context.tenants->Of(context.key->tenant);
  COHORT_RETURN_IF_ERROR(CheckRoom(*account, MemoryKind::kOutput, CostOf(bytes), *context.limits,
                                   Share::kGoingOn));
  auto charged = std::make_shared<const ChargedBytes>(std::move(account), std::move(bytes));
  *shared = std::shared_ptr<const std::string>(charged, &charged->bytes);
  return absl::OkStatus();
}

}  // namespace

absl::Status EncodeRound(const RoundReply& reply, const EncodeContext& context,
                         MessageBytes* message) {
  const RoundEnd& end = *reply.end;
  EncodeCache& cache = *context.cache;
  if (cache.source.get() != reply.end.get()) {
    cache = EncodeCache{};
    cache.source = reply.end;
  }
  if (cache.first == nullptr) {
    COHORT_RETURN_IF_ERROR(ShareBytes(SerializeResult(end), context, &cache.first));
  }
  message->AppendShared(cache.first);
  if (reply.with_values) {
    if (cache.second == nullptr) {
      COHORT_RETURN_IF_ERROR(ShareBytes(SerializeValues(end, context), context, &cache.second));
    }
    message->AppendShared(cache.second);
  }
  AppendPayload(kValueField, reply.own, end.receipt, context, message);
  return absl::OkStatus();
}

absl::Status EncodeJoin(const JoinReply& reply, const EncodeContext& context,
                        MessageBytes* message) {
  v1::JoinResponse response;
  response.set_outcome(reply.timed_out ? v1::JOIN_OUTCOME_TIMED_OUT : v1::JOIN_OUTCOME_JOINED);
  if (!reply.session.empty()) response.set_session(reply.session.ToBytes());
  response.set_rank(reply.rank);
  response.set_world_size(reply.world_size);
  response.set_generation(reply.generation);
  response.set_revision(reply.revision);
  Fill(reply.lease, response.mutable_lease());
  if (reply.timed_out) Fill(reply.missing, response.mutable_missing());
  response.set_server_incarnation(context.server_incarnation);
  response.set_max_inline_bytes(context.max_inline_bytes);
  message->Append(response.SerializeAsString());
  if (reply.members == nullptr) return absl::OkStatus();
  EncodeCache& cache = *context.cache;
  if (cache.source.get() != reply.members.get()) {
    cache = EncodeCache{};
    v1::JoinResponse members;
    for (const MemberInfo& member : *reply.members) Fill(member, members.add_members());
    COHORT_RETURN_IF_ERROR(ShareBytes(members.SerializeAsString(), context, &cache.first));
    cache.source = reply.members;
  }
  message->AppendShared(cache.first);
  return absl::OkStatus();
}

}  // namespace cohort::coordinator
