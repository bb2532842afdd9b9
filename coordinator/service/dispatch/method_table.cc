#include "coordinator/service/dispatch/method_table.h"

#include <array>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "coordinator/core/interface/reply.h"
#include "coordinator/service/codec/decode.h"
#include "google/protobuf/arena.h"

namespace cohort::coordinator {
namespace {

constexpr char kGroups[] = "cohort.v1.GroupService";
constexpr char kMessaging[] = "cohort.v1.MessagingService";
constexpr char kStore[] = "cohort.v1.StoreService";
constexpr char kUniqueIds[] = "cohort.v1.UniqueIdService";
constexpr char kAdmin[] = "cohort.v1.AdminService";

constexpr size_t kRequestBlockBytes = 2048;

template <typename Request>
absl::Status DecodeFrom(google::protobuf::io::ZeroCopyInputStream* stream,
                        const DecodeContext& context, Call* call) {
  // Most requests fit in here: their parts cost no allocations. The call moves out the parts that
  // it keeps.
  alignas(std::max_align_t) char block[kRequestBlockBytes];
  google::protobuf::Arena arena(block, sizeof(block));
  Request& request = *google::protobuf::Arena::CreateMessage<Request>(&arena);
  if (!request.ParseFromZeroCopyStream(stream)) {
    return absl::InvalidArgumentError("the request is not a well-formed message of this method");
  }
  return Decode(request, context, call);
}

template <typename Request, typename ReplyType>
constexpr MethodInfo Describe(Method method, const char* service, const char* name) {
  return MethodInfo{method, service, name, &DecodeFrom<Request>, ReplyIndex<ReplyType>()};
}

// In the order of the enumeration.
constexpr std::array<MethodInfo, kMethodCount> kMethods = {
    Describe<v1::CreateGroupRequest, CreateGroupReply>(Method::kCreateGroup, kGroups,
                                                       "CreateGroup"),
    Describe<v1::JoinRequest, JoinReply>(Method::kJoin, kGroups, "Join"),
    Describe<v1::LeaveRequest, EmptyReply>(Method::kLeave, kGroups, "Leave"),
    Describe<v1::KeepAliveRequest, KeepAliveReply>(Method::kKeepAlive, kGroups, "KeepAlive"),
    Describe<v1::GetGroupRequest, GetGroupReply>(Method::kGetGroup, kGroups, "GetGroup"),
    Describe<v1::ListGroupsRequest, ListGroupsReply>(Method::kListGroups, kGroups, "ListGroups"),
    Describe<v1::WatchGroupRequest, WatchGroupReply>(Method::kWatchGroup, kGroups, "WatchGroup"),
    Describe<v1::ProposeViewRequest, ViewReply>(Method::kProposeView, kGroups, "ProposeView"),
    Describe<v1::AckViewRequest, ViewReply>(Method::kAckView, kGroups, "AckView"),
    Describe<v1::ReportErrorRequest, ReportErrorReply>(Method::kReportError, kGroups,
                                                       "ReportError"),
    Describe<v1::AgreeAliveRequest, RoundReply>(Method::kAgreeAlive, kGroups, "AgreeAlive"),
    Describe<v1::VoteRequest, RoundReply>(Method::kVote, kGroups, "Vote"),
    Describe<v1::CloseGroupRequest, EmptyReply>(Method::kCloseGroup, kGroups, "CloseGroup"),
    Describe<v1::SendRequest, SendReply>(Method::kSend, kMessaging, "Send"),
    Describe<v1::ReceiveRequest, ReceiveReply>(Method::kReceive, kMessaging, "Receive"),
    Describe<v1::BroadcastRequest, RoundReply>(Method::kBroadcast, kMessaging, "Broadcast"),
    Describe<v1::AllGatherRequest, RoundReply>(Method::kAllGather, kMessaging, "AllGather"),
    Describe<v1::GatherRequest, RoundReply>(Method::kGather, kMessaging, "Gather"),
    Describe<v1::ScatterRequest, RoundReply>(Method::kScatter, kMessaging, "Scatter"),
    Describe<v1::BarrierRequest, RoundReply>(Method::kBarrier, kMessaging, "Barrier"),
    Describe<v1::CancelBarrierRequest, CancelRoundReply>(Method::kCancelBarrier, kMessaging,
                                                         "CancelBarrier"),
    Describe<v1::ExpireRequest, ExpireReply>(Method::kExpire, kMessaging, "Expire"),
    Describe<v1::StatsRequest, StatsReply>(Method::kStats, kMessaging, "Stats"),
    MethodInfo{Method::kUpload, kMessaging, "Upload", nullptr, ReplyIndex<PutBlobReply>()},
    Describe<v1::DownloadRequest, GetBlobReply>(Method::kDownload, kMessaging, "Download"),
    Describe<v1::PutRequest, PutReply>(Method::kPut, kStore, "Put"),
    Describe<v1::GetRequest, GetReply>(Method::kGet, kStore, "Get"),
    Describe<v1::RangeRequest, RangeReply>(Method::kRange, kStore, "Range"),
    Describe<v1::DeleteRequest, DeleteReply>(Method::kDelete, kStore, "Delete"),
    Describe<v1::AddRequest, AddReply>(Method::kAdd, kStore, "Add"),
    Describe<v1::AppendRequest, AppendReply>(Method::kAppend, kStore, "Append"),
    Describe<v1::QueuePushRequest, QueuePushReply>(Method::kQueuePush, kStore, "QueuePush"),
    Describe<v1::QueuePopRequest, QueuePopReply>(Method::kQueuePop, kStore, "QueuePop"),
    Describe<v1::WatchRequest, WatchKeysReply>(Method::kWatch, kStore, "Watch"),
    Describe<v1::PublishRequest, EmptyReply>(Method::kPublish, kUniqueIds, "Publish"),
    Describe<v1::FetchRequest, FetchIdsReply>(Method::kFetch, kUniqueIds, "Fetch"),
    Describe<v1::ReportInitRequest, EmptyReply>(Method::kReportInit, kUniqueIds, "ReportInit"),
    Describe<v1::WhoIsMissingRequest, WhoIsMissingReply>(Method::kWhoIsMissing, kAdmin,
                                                         "WhoIsMissing"),
    Describe<v1::DumpWaitsRequest, DumpWaitsReply>(Method::kDumpWaits, kAdmin, "DumpWaits"),
    MethodInfo{Method::kLimits, kAdmin, "Limits", nullptr, 0},
    MethodInfo{Method::kDrain, kAdmin, "Drain", nullptr, 0},
    Describe<v1::EvictRequest, EvictReply>(Method::kEvict, kAdmin, "Evict"),
    MethodInfo{Method::kServerStats, kAdmin, "ServerStats", nullptr, 0},
};

constexpr bool InOrder() {
  for (size_t i = 0; i < kMethodCount; ++i) {
    if (static_cast<size_t>(kMethods[i].method) != i) return false;
  }
  return true;
}
static_assert(InOrder(), "kMethods must be in the order of Method");

}  // namespace

const MethodInfo& GetMethod(Method method) { return kMethods[static_cast<size_t>(method)]; }

std::optional<Method> FindMethod(absl::string_view path) {
  for (const MethodInfo& info : kMethods) {
    if (path == absl::StrCat(info.service, "/", info.name)) return info.method;
  }
  return std::nullopt;
}

}  // namespace cohort::coordinator
