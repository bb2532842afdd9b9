#include "worker/daemon/server/framed_collective_handler.h"

#include <memory>

#include "base/memory/no_memory.h"
#include "base/rpc/field_count.h"
#include "base/status_macros.h"
#include "client/rendezvous/report/report_codec.h"
#include "cohort/v1/worker.pb.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "worker/daemon/access/caller.h"
#include "worker/daemon/limits/quota.h"
#include "worker/daemon/methods/collective_request.h"
#include "worker/daemon/methods/request_texts.h"

namespace cohort::worker {

absl::Status FramedCollectiveHandler::Run(uint16_t /*method*/, absl::string_view request,
                                          PeerAccess* access, std::string* answer,
                                          std::shared_ptr<const void>* kept) {
  const Caller caller = service_.FramedCaller(access);
  // A client without rights must not have its request parsed.
  COHORT_RETURN_IF_ERROR(caller.Require(RoleOfMethod("RunCollective"), ""));
  if (request.size() > CollectiveRequest::kMostFields) {  // each takes a byte or more
    google::protobuf::io::ArrayInputStream fields(request.data(), static_cast<int>(request.size()));
    COHORT_RETURN_IF_ERROR(CheckFieldCount(*v1::RunCollectiveRequest::descriptor(), &fields,
                                           CollectiveRequest::kMostFields));
  }
  v1::RunCollectiveRequest collective;
  if (!collective.ParseFromArray(request.data(), static_cast<int>(request.size()))) {
    return absl::InvalidArgumentError("the request is no message of this method");
  }
  COHORT_RETURN_IF_ERROR(CheckTexts(collective));
  v1::RunCollectiveResponse response;
  auto memory = std::make_shared<HeldQuota>();
  *kept = memory;
  const absl::Status ran = service_.RunCollective(
      caller, collective, static_cast<int64_t>(request.size()), &response, memory.get());
  if (!ran.ok()) return client::WithRanksInDetails(ran);
  return WithMemory(kMethod, "an answer", static_cast<int64_t>(response.ByteSizeLong()), [&] {
    response.AppendToString(answer);
    return absl::OkStatus();
  });
}

}  // namespace cohort::worker
