// Every method of the coordinator: its name, the role that may call it, its decode function, and
// the type of its answer.
#ifndef COHORT_COORDINATOR_SERVICE_DISPATCH_METHOD_TABLE_H_
#define COHORT_COORDINATOR_SERVICE_DISPATCH_METHOD_TABLE_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/access/role.h"
#include "coordinator/core/interface/call.h"
#include "coordinator/service/codec/decode_context.h"
#include "google/protobuf/io/zero_copy_stream.h"

namespace cohort::coordinator {

enum class Method {
  kCreateGroup,
  kJoin,
  kLeave,
  kKeepAlive,
  kGetGroup,
  kListGroups,
  kWatchGroup,
  kProposeView,
  kAckView,
  kReportError,
  kAgreeAlive,
  kVote,
  kCloseGroup,
  kSend,
  kReceive,
  kBroadcast,
  kAllGather,
  kGather,
  kScatter,
  kBarrier,
  kCancelBarrier,
  kExpire,
  kStats,
  kUpload,
  kDownload,
  kPut,
  kGet,
  kRange,
  kDelete,
  kAdd,
  kAppend,
  kQueuePush,
  kQueuePop,
  kWatch,
  kPublish,
  kFetch,
  kReportInit,
  kWhoIsMissing,
  kDumpWaits,
  kLimits,
  kDrain,
  kEvict,
  kServerStats,
  kCheckAccess,
};
inline constexpr size_t kMethodCount = static_cast<size_t>(Method::kCheckAccess) + 1;

using DecodeFunction = absl::Status (*)(google::protobuf::io::ZeroCopyInputStream* request,
                                        const DecodeContext& context, Call* call);

struct MethodInfo {
  Method method;
  const char* service;  // such as cohort.v1.GroupService
  const char* name;     // such as Join
  // The least role that may call it: in the tenant of the request or, for methods without a call of
  // the state machine, in all tenants. (Upload has the tenant in its first part. CheckAccess needs
  // it in any tenant, and another one for other clients than the caller.)
  Role role;
  // Null for Upload, whose request is a stream, and for methods without a call of the state machine
  // (Limits, Drain, ServerStats, CheckAccess). Errors besides those of the fields: INVALID_ARGUMENT
  // (not such a message).
  DecodeFunction decode;
  // The alternative of ReplyBody that answers the method. Another alternative is the kept answer to
  // another method, called with the same operation_id.
  size_t reply_index;

  std::string path() const { return std::string(service) + "/" + name; }
};

const MethodInfo& GetMethod(Method method);
// Finds a method by a name such as "cohort.v1.GroupService/Join".
std::optional<Method> FindMethod(absl::string_view path);

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_DISPATCH_METHOD_TABLE_H_
