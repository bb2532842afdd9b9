// Decodes the messages of proto/cohort/v1 to calls of the state machine. Only here are fields
// checked for form and bounds. The state machine checks the well-formed calls against its state.
//
// Every function fills `call` (caller, wait, body) and moves large values out of `request`. Errors:
// INVALID_ARGUMENT (names the field), RESOURCE_EXHAUSTED (names the limit and its value).
#ifndef COHORT_COORDINATOR_SERVICE_CODEC_DECODE_H_
#define COHORT_COORDINATOR_SERVICE_CODEC_DECODE_H_

#include "absl/status/status.h"
#include "cohort/v1/admin.pb.h"
#include "cohort/v1/group.pb.h"
#include "cohort/v1/messaging.pb.h"
#include "cohort/v1/store.pb.h"
#include "cohort/v1/unique_id.pb.h"
#include "coordinator/core/interface/call.h"
#include "coordinator/service/codec/decode_context.h"

namespace cohort::coordinator {

// --- groups
absl::Status Decode(v1::CreateGroupRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::JoinRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::LeaveRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::KeepAliveRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::GetGroupRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::ListGroupsRequest& request, const DecodeContext& context, Call* call);
// `wait` is the time to the next bookmark.
absl::Status Decode(v1::WatchGroupRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::ProposeViewRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::AckViewRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::ReportErrorRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::AgreeAliveRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::VoteRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::CloseGroupRequest& request, const DecodeContext& context, Call* call);

// --- messaging
absl::Status Decode(v1::SendRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::ReceiveRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::BroadcastRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::AllGatherRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::GatherRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::ScatterRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::BarrierRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::CancelBarrierRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::ExpireRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::StatsRequest& request, const DecodeContext& context, Call* call);
// The first part of an upload: scope and sizes (the body becomes an empty PutBlobCall).
absl::Status Decode(v1::UploadRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::DownloadRequest& request, const DecodeContext& context, Call* call);

// --- store
absl::Status Decode(v1::PutRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::GetRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::RangeRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::DeleteRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::AddRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::AppendRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::QueuePushRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::QueuePopRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::WatchRequest& request, const DecodeContext& context, Call* call);

// --- unique ids
absl::Status Decode(v1::PublishRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::FetchRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::ReportInitRequest& request, const DecodeContext& context, Call* call);

// --- people
absl::Status Decode(v1::WhoIsMissingRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::DumpWaitsRequest& request, const DecodeContext& context, Call* call);
absl::Status Decode(v1::EvictRequest& request, const DecodeContext& context, Call* call);

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_CODEC_DECODE_H_
