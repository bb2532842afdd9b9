// Pieces that several responses share. Used by the encode_*.cc files only.
#ifndef COHORT_COORDINATOR_SERVICE_CODEC_ENCODE_PARTS_H_
#define COHORT_COORDINATOR_SERVICE_CODEC_ENCODE_PARTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/rank_set.h"
#include "cohort/v1/admin.pb.h"
#include "cohort/v1/common.pb.h"
#include "cohort/v1/group.pb.h"
#include "cohort/v1/store.pb.h"
#include "coordinator/core/interface/reply.h"
#include "coordinator/core/interface/types.h"
#include "coordinator/service/codec/encode.h"
#include "coordinator/service/codec/message_bytes.h"

namespace cohort::coordinator {

using RangesMessage = google::protobuf::RepeatedPtrField<v1::RankRange>;

// Infinite and too long durations become the longest that fits.
void Fill(absl::Duration duration, google::protobuf::Duration* message);
void Fill(const std::vector<RankRange>& ranges, RangesMessage* message);
void Fill(const Cause& cause, Instant now, v1::Cause* message);
void Fill(const MissingReport& report, v1::MissingReport* message);
void Fill(const ViewProposal& proposal, v1::ViewProposal* message);
void Fill(const MemberInfo& member, v1::Member* message);
void Fill(const GroupSpec& spec, v1::GroupSpec* message);
void Fill(const GroupInfo& group, Instant now, v1::Group* message);
void Fill(const KeyValue& key_value, v1::KeyValue* message);
// A large value is not copied into its message: all messages that carry it share its bytes. Then
// StartOfKeyValue, a field of type cohort.v1.KeyValue up to the value, is followed by AppendValue.
bool IsLarge(const Payload& value);
std::string StartOfKeyValue(int field, const KeyValue& key_value);
void AppendValue(const Payload& value, MessageBytes* message);
// Encodes the fields on operations on tensors.
void FillTensorWaits(const WhoIsMissingReply& reply, v1::WhoIsMissingResponse* message);

// A length-delimited field around bytes that are already serialised: its tag and length.
std::string FieldHeader(int field, size_t size);

// Field `field` of type cohort.v1.Payload; nothing when there is no value. `receipt`, when not 0,
// frees the blob that a large value becomes.
void AppendPayload(int field, const Payload& payload, int64_t receipt, const EncodeContext& context,
                   MessageBytes* message);

// The replies whose values are shared among members.
absl::Status EncodeRound(const RoundReply& reply, const EncodeContext& context,
                         MessageBytes* message);
absl::Status EncodeJoin(const JoinReply& reply, const EncodeContext& context,
                        MessageBytes* message);

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_CODEC_ENCODE_PARTS_H_
