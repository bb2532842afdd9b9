// Encodes the fields of WhoIsMissingResponse on operations on tensors.
#include "coordinator/service/codec/encode_parts.h"

namespace cohort::coordinator {
namespace {

void Fill(const TensorOperation& operation, v1::TensorOperation* message) {
  message->set_generation(operation.generation);
  message->set_number(operation.number);
  message->set_collective(NameOf(operation.collective).data());
  message->set_state(operation.state);
  message->set_peer(operation.peer);
  cohort::coordinator::Fill(operation.begun, message->mutable_begun());
  if (operation.ended.has_value()) {
    cohort::coordinator::Fill(*operation.ended, message->mutable_ended());
  }
}

void Fill(const TensorReport& report, v1::TensorReport* message) {
  message->set_moves_tensors(report.moves_tensors);
  if (report.last.has_value()) Fill(*report.last, message->mutable_last());
  if (report.open.has_value()) Fill(*report.open, message->mutable_open());
  cohort::coordinator::Fill(report.waits_for, message->mutable_waits_for());
}

}  // namespace

void FillTensorWaits(const WhoIsMissingReply& reply, v1::WhoIsMissingResponse* message) {
  message->set_covers_tensors(true);
  for (const TensorWait& wait : reply.tensor_waits) {
    v1::TensorWait* out = message->add_tensor_waits();
    out->set_operation(wait.operation);
    Fill(wait.missing, out->mutable_missing());
    Fill(wait.age, out->mutable_age());
    Fill(wait.inside, out->mutable_inside());
    Fill(wait.waited_for, out->mutable_waited_for());
    out->set_mismatch(wait.mismatch);
  }
  for (const RankReport& rank : reply.ranks) {
    v1::RankReport* out = message->add_ranks();
    out->set_rank(rank.rank);
    out->set_member(rank.member);
    out->set_host(rank.host);
    if (rank.last_heard.has_value()) Fill(*rank.last_heard, out->mutable_last_heard());
    if (!rank.reported.has_value()) continue;
    Fill(*rank.reported, out->mutable_reported());
    Fill(rank.tensors, out->mutable_tensors());
  }
  Fill(reply.unanswered.ToRanges(), message->mutable_unanswered());
  Fill(reply.unknown.ToRanges(), message->mutable_unknown());
}

}  // namespace cohort::coordinator
