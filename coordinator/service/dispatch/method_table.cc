#include "coordinator/service/dispatch/method_table.h"

#include <array>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/rpc/field_count.h"
#include "base/status_macros.h"
#include "coordinator/core/interface/reply.h"
#include "coordinator/service/codec/decode.h"
#include "google/protobuf/arena.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace cohort::coordinator {
namespace {

constexpr char kGroups[] = "cohort.v1.GroupService";
constexpr char kMessaging[] = "cohort.v1.MessagingService";
constexpr char kStore[] = "cohort.v1.StoreService";
constexpr char kUniqueIds[] = "cohort.v1.UniqueIdService";
constexpr char kAdmin[] = "cohort.v1.AdminService";

constexpr size_t kRequestBlockBytes = 2048;

// Takes all bytes of `stream`. `joined` has them if they are in several pieces.
absl::string_view ReadAll(google::protobuf::io::ZeroCopyInputStream* stream, std::string* joined) {
  absl::string_view first;
  const void* data = nullptr;
  for (int size = 0; stream->Next(&data, &size);) {
    const absl::string_view piece(static_cast<const char*>(data), static_cast<size_t>(size));
    if (first.empty()) {
      first = piece;
      continue;
    }
    if (joined->empty()) joined->assign(first.data(), first.size());
    joined->append(piece.data(), piece.size());
  }
  return joined->empty() ? first : *joined;
}

template <typename Request>
absl::Status DecodeFrom(google::protobuf::io::ZeroCopyInputStream* stream,
                        const DecodeContext& context, Call* call) {
  // Most requests fit in here: their parts cost no allocations. The call moves out the parts that
  // it keeps.
  alignas(std::max_align_t) char block[kRequestBlockBytes];
  google::protobuf::Arena arena(block, sizeof(block));
  Request& request = *google::protobuf::Arena::CreateMessage<Request>(&arena);
  std::string joined;
  const absl::string_view bytes = ReadAll(stream, &joined);
  if (bytes.size() > kMostFields) {  // each takes a byte or more
    google::protobuf::io::ArrayInputStream fields(bytes.data(), static_cast<int>(bytes.size()));
    COHORT_RETURN_IF_ERROR(CheckFieldCount(*Request::descriptor(), &fields));
  }
  if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError("the request is not a well-formed message of this method");
  }
  return Decode(request, context, call);
}

template <typename Request, typename ReplyType>
constexpr MethodInfo Describe(Method method, const char* service, const char* name, Role role) {
  return MethodInfo{method, service, name, role, &DecodeFrom<Request>, ReplyIndex<ReplyType>()};
}

// In the order of the enumeration.
constexpr std::array<MethodInfo, kMethodCount> kMethods = {
    Describe<v1::CreateGroupRequest, CreateGroupReply>(Method::kCreateGroup, kGroups, "CreateGroup",
                                                       Role::kMember),
    Describe<v1::JoinRequest, JoinReply>(Method::kJoin, kGroups, "Join", Role::kMember),
    Describe<v1::LeaveRequest, EmptyReply>(Method::kLeave, kGroups, "Leave", Role::kMember),
    Describe<v1::KeepAliveRequest, KeepAliveReply>(Method::kKeepAlive, kGroups, "KeepAlive",
                                                   Role::kMember),
    Describe<v1::GetGroupRequest, GetGroupReply>(Method::kGetGroup, kGroups, "GetGroup",
                                                 Role::kObserver),
    Describe<v1::ListGroupsRequest, ListGroupsReply>(Method::kListGroups, kGroups, "ListGroups",
                                                     Role::kObserver),
    Describe<v1::WatchGroupRequest, WatchGroupReply>(Method::kWatchGroup, kGroups, "WatchGroup",
                                                     Role::kObserver),
    Describe<v1::ProposeViewRequest, ViewReply>(Method::kProposeView, kGroups, "ProposeView",
                                                Role::kMember),
    Describe<v1::AckViewRequest, ViewReply>(Method::kAckView, kGroups, "AckView", Role::kMember),
    Describe<v1::ReportErrorRequest, ReportErrorReply>(Method::kReportError, kGroups, "ReportError",
                                                       Role::kMember),
    Describe<v1::AgreeAliveRequest, RoundReply>(Method::kAgreeAlive, kGroups, "AgreeAlive",
                                                Role::kMember),
    Describe<v1::VoteRequest, RoundReply>(Method::kVote, kGroups, "Vote", Role::kMember),
    Describe<v1::CloseGroupRequest, EmptyReply>(Method::kCloseGroup, kGroups, "CloseGroup",
                                                Role::kMember),
    Describe<v1::SendRequest, SendReply>(Method::kSend, kMessaging, "Send", Role::kMember),
    Describe<v1::ReceiveRequest, ReceiveReply>(Method::kReceive, kMessaging, "Receive",
                                               Role::kMember),
    Describe<v1::BroadcastRequest, RoundReply>(Method::kBroadcast, kMessaging, "Broadcast",
                                               Role::kMember),
    Describe<v1::AllGatherRequest, RoundReply>(Method::kAllGather, kMessaging, "AllGather",
                                               Role::kMember),
    Describe<v1::GatherRequest, RoundReply>(Method::kGather, kMessaging, "Gather", Role::kMember),
    Describe<v1::ScatterRequest, RoundReply>(Method::kScatter, kMessaging, "Scatter",
                                             Role::kMember),
    Describe<v1::BarrierRequest, RoundReply>(Method::kBarrier, kMessaging, "Barrier",
                                             Role::kMember),
    Describe<v1::CancelBarrierRequest, CancelRoundReply>(Method::kCancelBarrier, kMessaging,
                                                         "CancelBarrier", Role::kMember),
    Describe<v1::ExpireRequest, ExpireReply>(Method::kExpire, kMessaging, "Expire", Role::kMember),
    Describe<v1::StatsRequest, StatsReply>(Method::kStats, kMessaging, "Stats", Role::kObserver),
    MethodInfo{Method::kUpload, kMessaging, "Upload", Role::kMember, nullptr,
               ReplyIndex<PutBlobReply>()},
    Describe<v1::DownloadRequest, GetBlobReply>(Method::kDownload, kMessaging, "Download",
                                                Role::kMember),
    Describe<v1::PutRequest, PutReply>(Method::kPut, kStore, "Put", Role::kMember),
    Describe<v1::GetRequest, GetReply>(Method::kGet, kStore, "Get", Role::kObserver),
    Describe<v1::RangeRequest, RangeReply>(Method::kRange, kStore, "Range", Role::kObserver),
    Describe<v1::DeleteRequest, DeleteReply>(Method::kDelete, kStore, "Delete", Role::kMember),
    Describe<v1::AddRequest, AddReply>(Method::kAdd, kStore, "Add", Role::kMember),
    Describe<v1::AppendRequest, AppendReply>(Method::kAppend, kStore, "Append", Role::kMember),
    Describe<v1::QueuePushRequest, QueuePushReply>(Method::kQueuePush, kStore, "QueuePush",
                                                   Role::kMember),
    Describe<v1::QueuePopRequest, QueuePopReply>(Method::kQueuePop, kStore, "QueuePop",
                                                 Role::kMember),
    Describe<v1::WatchRequest, WatchKeysReply>(Method::kWatch, kStore, "Watch", Role::kObserver),
    Describe<v1::PublishRequest, EmptyReply>(Method::kPublish, kUniqueIds, "Publish",
                                             Role::kMember),
    Describe<v1::FetchRequest, FetchIdsReply>(Method::kFetch, kUniqueIds, "Fetch", Role::kMember),
    Describe<v1::ReportInitRequest, EmptyReply>(Method::kReportInit, kUniqueIds, "ReportInit",
                                                Role::kMember),
    Describe<v1::WhoIsMissingRequest, WhoIsMissingReply>(Method::kWhoIsMissing, kAdmin,
                                                         "WhoIsMissing", Role::kObserver),
    Describe<v1::DumpWaitsRequest, DumpWaitsReply>(Method::kDumpWaits, kAdmin, "DumpWaits",
                                                   Role::kObserver),
    MethodInfo{Method::kLimits, kAdmin, "Limits", Role::kOperator, nullptr, 0},
    MethodInfo{Method::kDrain, kAdmin, "Drain", Role::kOperator, nullptr, 0},
    Describe<v1::EvictRequest, EvictReply>(Method::kEvict, kAdmin, "Evict", Role::kOperator),
    MethodInfo{Method::kServerStats, kAdmin, "ServerStats", Role::kObserver, nullptr, 0},
    MethodInfo{Method::kCheckAccess, kAdmin, "CheckAccess", Role::kObserver, nullptr, 0},
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
