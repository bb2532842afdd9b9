#include "coordinator/service/codec/encode.h"

#include <string>
#include <utility>
#include <variant>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/rpc/status_conversion.h"
#include "cohort/v1/admin.pb.h"
#include "cohort/v1/messaging.pb.h"
#include "cohort/v1/unique_id.pb.h"
#include "coordinator/service/codec/encode_parts.h"

namespace cohort::coordinator {
namespace {

// The details of an error stay far below the 8 KB that gRPC has for all metadata.
constexpr size_t kMaxDetailBytes = 512;

// One overload for each alternative of ReplyBody.
class Encoder {
 public:
  Encoder(const EncodeContext& context, MessageBytes* message)
      : context_(context), message_(*message) {}

  absl::Status operator()(const EmptyReply&) { return absl::OkStatus(); }

  absl::Status operator()(const CreateGroupReply& reply) {
    v1::CreateGroupResponse response;
    response.set_generation(reply.generation);
    return Put(response);
  }
  absl::Status operator()(const JoinReply& reply) { return EncodeJoin(reply, context_, &message_); }
  absl::Status operator()(const KeepAliveReply& reply) {
    v1::KeepAliveResponse response;
    Fill(reply.lease, response.mutable_lease());
    response.set_generation(reply.generation);
    response.set_state(static_cast<v1::GroupState>(reply.state));
    if (!reply.cause.empty()) Fill(reply.cause, context_.now, response.mutable_cause());
    response.set_server_incarnation(context_.server_incarnation);
    response.set_draining(context_.draining);
    if (reply.proposal.has_value()) Fill(*reply.proposal, response.mutable_proposal());
    return Put(response);
  }
  absl::Status operator()(const GetGroupReply& reply) {
    v1::GetGroupResponse response;
    Fill(reply.group, context_.now, response.mutable_group());
    if (reply.group.proposal.has_value()) {
      Fill(*reply.group.proposal, response.mutable_proposal());
    }
    return Put(response);
  }
  absl::Status operator()(const ListGroupsReply& reply) {
    v1::ListGroupsResponse response;
    for (const GroupInfo& group : reply.groups) Fill(group, context_.now, response.add_groups());
    // A full page may have another behind it, which may turn out to be empty.
    if (response.groups_size() > 0 && response.groups_size() >= context_.page_size) {
      response.set_next_page_token(reply.groups.back().name);
    }
    return Put(response);
  }
  absl::Status operator()(const WatchGroupReply& reply) {
    v1::WatchGroupResponse response;
    for (const GroupEvent& event : reply.events) {
      v1::GroupEvent* out = response.add_events();
      out->set_revision(event.revision);
      out->set_kind(static_cast<v1::GroupEventKind>(event.kind));
      out->set_generation(event.generation);
      out->set_member(event.member);
      if (event.rank.has_value()) out->set_rank(*event.rank);
      if (!event.cause.empty()) Fill(event.cause, context_.now, out->mutable_cause());
      if (event.proposal.has_value()) Fill(*event.proposal, out->mutable_proposal());
    }
    response.set_revision(reply.revision);
    response.set_report(reply.report);
    return Put(response);
  }
  // ProposeViewResponse and AckViewResponse have the same fields under the same numbers.
  absl::Status operator()(const ViewReply& reply) {
    v1::ProposeViewResponse response;
    response.set_outcome(static_cast<v1::ViewOutcome>(reply.outcome));
    response.set_generation(reply.generation);
    response.set_rank(reply.rank);
    response.set_world_size(reply.world_size);
    if (!reply.cause.empty()) Fill(reply.cause, context_.now, response.mutable_cause());
    if (reply.outcome == ViewReply::Outcome::kTimedOut) {
      Fill(reply.missing, response.mutable_missing());
    }
    response.set_revision(reply.revision);
    return Put(response);
  }
  absl::Status operator()(const ReportErrorReply& reply) {
    v1::ReportErrorResponse response;
    if (!reply.first_cause.empty()) {
      Fill(reply.first_cause, context_.now, response.mutable_first_cause());
    }
    return Put(response);
  }
  absl::Status operator()(const RoundReply& reply) {
    if (reply.end == nullptr) return absl::InternalError("a round ended without an end");
    return EncodeRound(reply, context_, &message_);
  }
  absl::Status operator()(const CancelRoundReply& reply) {
    v1::CancelBarrierResponse response;
    response.set_number(reply.number);
    return Put(response);
  }

  absl::Status operator()(const SendReply& reply) {
    v1::SendResponse response;
    response.set_sequence(reply.sequence);
    response.set_consumed(reply.consumed);
    return Put(response);
  }
  absl::Status operator()(const ReceiveReply& reply) {
    v1::ReceiveResponse response;
    response.set_outcome(reply.timed_out ? v1::RECEIVE_OUTCOME_TIMED_OUT
                                         : v1::RECEIVE_OUTCOME_RECEIVED);
    response.set_source(reply.source);
    response.set_sequence(reply.sequence);
    response.set_receipt(reply.receipt);
    if (reply.timed_out) Fill(reply.missing, response.mutable_missing());
    message_.Append(response.SerializeAsString());
    AppendPayload(v1::ReceiveResponse::kPayloadFieldNumber, reply.payload, reply.receipt, context_,
                  &message_);
    return absl::OkStatus();
  }
  absl::Status operator()(const ExpireReply& reply) {
    v1::ExpireResponse response;
    response.set_object_count(reply.object_count);
    response.set_size_bytes(reply.size_bytes);
    return Put(response);
  }
  absl::Status operator()(const StatsReply& reply) {
    v1::StatsResponse response;
    response.set_object_count(reply.object_count);
    response.set_unacknowledged_count(reply.unacknowledged_count);
    response.set_open_round_count(reply.open_round_count);
    response.set_round_name_count(reply.round_name_count);
    response.set_waiter_count(reply.waiter_count);
    response.set_bytes_held(reply.bytes_held);
    response.set_barriers_released(reply.barriers_released);
    response.set_objects_expired(reply.objects_expired);
    response.set_key_count(reply.key_count);
    return Put(response);
  }
  absl::Status operator()(const PutBlobReply& reply) {
    v1::UploadResponse response;
    response.set_blob(reply.blob);
    return Put(response);
  }
  // Downloads are cut into parts by their stream.
  absl::Status operator()(const GetBlobReply&) { return absl::InternalError("not one message"); }

  absl::Status operator()(const PutReply& reply) {
    v1::PutResponse response;
    response.set_written(reply.written);
    response.set_revision(reply.revision);
    if (reply.current.has_value()) Fill(*reply.current, response.mutable_current());
    return Put(response);
  }
  absl::Status operator()(const GetReply& reply) {
    int64_t total = 0;
    for (const KeyValue& value : reply.values) total += value.value.size();
    if (total > context_.max_message_bytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the values have ", total, " bytes together, over --max-message-bytes (",
                       context_.max_message_bytes, "): ask for fewer keys at once"));
    }
    v1::GetResponse response;
    for (const KeyValue& value : reply.values) AddValue(value, response);
    for (const std::string& key : reply.missing_keys) response.add_missing_keys(key);
    response.set_revision(reply.revision);
    for (const QueueLength& length : reply.queue_lengths) {
      v1::QueueLength* out = response.add_queue_lengths();
      out->set_queue(length.queue);
      out->set_length(length.length);
    }
    return Put(response);
  }
  absl::Status operator()(const RangeReply& reply) {
    v1::RangeResponse response;
    int64_t total = 0;
    const KeyValue* last = nullptr;
    const std::string* next = &reply.next;
    for (const KeyValue& value : reply.values) {
      total += value.value.size();
      // A page ends early rather than be too large to receive; its first value always fits.
      if (total > context_.max_inline_bytes && last != nullptr) {
        next = &last->key;
        break;
      }
      AddValue(value, response);
      last = &value;
    }
    response.set_next_page_token(*next);
    response.set_count(reply.count);
    response.set_revision(reply.revision);
    return Put(response);
  }
  absl::Status operator()(const DeleteReply& reply) {
    v1::DeleteResponse response;
    response.set_deleted_count(reply.deleted_count);
    response.set_revision(reply.revision);
    return Put(response);
  }
  absl::Status operator()(const AddReply& reply) {
    v1::AddResponse response;
    response.set_value(reply.value);
    response.set_revision(reply.revision);
    return Put(response);
  }
  absl::Status operator()(const AppendReply& reply) {
    v1::AppendResponse response;
    response.set_size_bytes(reply.size_bytes);
    response.set_revision(reply.revision);
    return Put(response);
  }
  absl::Status operator()(const QueuePushReply& reply) {
    v1::QueuePushResponse response;
    response.set_sequence(reply.sequence);
    response.set_depth(reply.depth);
    return Put(response);
  }
  absl::Status operator()(const QueuePopReply& reply) {
    v1::QueuePopResponse response;
    response.set_found(reply.found);
    response.set_sequence(reply.sequence);
    response.set_receipt(reply.receipt);
    if (!IsLarge(reply.value)) {
      response.set_value(reply.value.bytes());
      return Put(response);
    }
    message_.Append(response.SerializeAsString() +
                    FieldHeader(v1::QueuePopResponse::kValueFieldNumber,
                                static_cast<size_t>(reply.value.size())));
    AppendValue(reply.value, &message_);
    return absl::OkStatus();
  }
  absl::Status operator()(const WatchKeysReply& reply) {
    v1::WatchResponse response;
    for (const KeyEvent& event : reply.events) {
      const Payload& value = event.key_value.value;
      if (!IsLarge(value)) {
        v1::KeyEvent* out = response.add_events();
        out->set_deleted(event.deleted);
        out->set_expired(event.expired);
        Fill(event.key_value, out->mutable_key_value());
        continue;
      }
      // Any number of watchers that do not read hold this value once. It is not of a deletion,
      // so the event has no other field.
      PutSoFar(response);
      const std::string inner =
          StartOfKeyValue(v1::KeyEvent::kKeyValueFieldNumber, event.key_value);
      message_.Append(FieldHeader(v1::WatchResponse::kEventsFieldNumber,
                                  inner.size() + static_cast<size_t>(value.size())) +
                      inner);
      AppendValue(value, &message_);
    }
    response.set_revision(reply.revision);
    return Put(response);
  }

  absl::Status operator()(const FetchIdsReply& reply) {
    v1::FetchResponse response;
    response.set_found(reply.found);
    for (const std::string& id : reply.ids) response.add_ids(id);
    response.set_publisher(reply.publisher);
    response.set_receipt(reply.receipt);
    if (!reply.found) Fill(reply.missing, response.mutable_missing());
    return Put(response);
  }

  absl::Status operator()(const WhoIsMissingReply& reply) {
    v1::WhoIsMissingResponse response;
    response.set_group(reply.group);
    response.set_generation(reply.generation);
    response.set_state(static_cast<v1::GroupState>(reply.state));
    if (!reply.cause.empty()) Fill(reply.cause, context_.now, response.mutable_cause());
    response.set_world_size(reply.world_size);
    for (const OpenWait& wait : reply.waits) {
      v1::OpenWait* out = response.add_waits();
      out->set_operation(wait.operation);
      Fill(wait.missing, out->mutable_missing());
      Fill(wait.age, out->mutable_age());
      Fill(wait.remaining, out->mutable_remaining());
    }
    for (const InitStatus& init : reply.inits) {
      v1::InitStatus* out = response.add_inits();
      out->set_name(init.name);
      for (const InitRank& rank : init.ranks) {
        v1::InitRank* out_rank = out->add_ranks();
        out_rank->set_rank(rank.rank);
        out_rank->set_member(rank.member);
        out_rank->set_phase(rank.phase);
        out_rank->set_detail(rank.detail);
        Fill(rank.age, out_rank->mutable_age());
      }
    }
    FillTensorWaits(reply, &response);
    return Put(response);
  }
  absl::Status operator()(const DumpWaitsReply& reply) {
    v1::DumpWaitsResponse response;
    for (const ParkedCall& call : reply.calls) {
      v1::ParkedCall* out = response.add_calls();
      out->set_group(call.group);
      out->set_member(call.member);
      out->set_rank(call.rank);
      out->set_operation(call.operation);
      Fill(call.age, out->mutable_age());
      Fill(call.remaining, out->mutable_remaining());
      Fill(call.waits_on, out->mutable_waits_on());
    }
    response.set_total_count(reply.total_count);
    return Put(response);
  }
  absl::Status operator()(const EvictReply& reply) {
    v1::EvictResponse response;
    response.set_rank(reply.rank);
    return Put(response);
  }

 private:
  template <typename Message>
  absl::Status Put(const Message& response) {
    message_.Append(response.SerializeAsString());
    return absl::OkStatus();
  }

  template <typename Message>
  void AddValue(const KeyValue& value, Message& response) {
    if (!IsLarge(value.value)) return Fill(value, response.add_values());
    PutSoFar(response);
    message_.Append(StartOfKeyValue(Message::kValuesFieldNumber, value));
    AppendValue(value.value, &message_);
  }

  // Appends the fields that precede a shared piece.
  template <typename Message>
  void PutSoFar(Message& response) {
    message_.Append(response.SerializeAsString());
    response.Clear();
  }

  const EncodeContext& context_;
  MessageBytes& message_;
};

}  // namespace

absl::Status Encode(const Reply& reply, const EncodeContext& context, MessageBytes* message) {
  return std::visit(Encoder(context, message), reply.body);
}

absl::Status EncodeStatus(const Reply& reply, Instant now) {
  if (reply.status.ok() || reply.context == nullptr) return reply.status;
  v1::ErrorDetails details;
  details.set_group(reply.context->group);
  details.set_current_generation(reply.context->current_generation);
  details.set_operation(CutText(reply.context->operation, kMaxDetailBytes));
  if (!reply.context->cause.empty()) {
    Fill(reply.context->cause, now, details.mutable_cause());
    details.mutable_cause()->set_detail(CutText(reply.context->cause.detail, kMaxDetailBytes));
  }
  absl::Status status = reply.status;
  status.SetPayload(kErrorDetailsUrl, absl::Cord(details.SerializeAsString()));
  return status;
}

}  // namespace cohort::coordinator
