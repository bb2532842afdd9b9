#include "worker/daemon/server/framed_collective_handler.h"

#include "base/memory/no_memory.h"
#include "client/rendezvous/report/report_codec.h"
#include "cohort/v1/worker.pb.h"

namespace cohort::worker {

absl::Status FramedCollectiveHandler::Run(uint16_t /*method*/, absl::string_view request,
                                          PeerAccess* access, std::string* answer) {
  v1::RunCollectiveRequest collective;
  if (!collective.ParseFromArray(request.data(), static_cast<int>(request.size()))) {
    return absl::InvalidArgumentError("the request is no message of this method");
  }
  v1::RunCollectiveResponse response;
  const absl::Status ran =
      service_.RunCollective(service_.FramedCaller(access), collective, &response);
  if (!ran.ok()) return client::WithRanksInDetails(ran);
  return WithMemory(kMethod, "an answer", static_cast<int64_t>(response.ByteSizeLong()), [&] {
    response.AppendToString(answer);
    return absl::OkStatus();
  });
}

}  // namespace cohort::worker
