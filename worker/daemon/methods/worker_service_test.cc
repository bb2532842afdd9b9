#include "worker/daemon/methods/worker_service.h"

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "cohort/v1/worker.pb.h"
#include "grpcpp/server_context.h"
#include "gtest/gtest.h"
#include "worker/daemon/access/caller.h"
#include "worker/daemon/limits/call_gate.h"
#include "worker/daemon/methods/metrics.h"
#include "worker/daemon/sessions/session_table.h"
#include "worker/daemon/sessions/testing/noted_rank.h"

namespace cohort::worker {
namespace {

class WorkerServiceTest : public ::testing::Test {
 protected:
  SessionTable sessions_;
  CallGate gate_{8, 8};
  Metrics metrics_;
  WorkerService service_{WorkerServiceOptions(), sessions_, gate_, metrics_};
  const std::shared_ptr<Session> session_ =
      sessions_.Open({"trainer", 1, "host-a", ""}, Caller()).value();
};

TEST_F(WorkerServiceTest, AGroupKeepsTheBeginOfTheCauseOfItsEnd) {
  const auto rank = std::make_shared<NotedRank>();
  const uint64_t group = session_->NextGroup();
  ASSERT_TRUE(session_->AddGroup(group, rank).ok());
  v1::AbortGroupRequest request;
  request.set_session(session_->id().ToBytes());
  request.set_group(group);
  request.set_cause("the disk is full" + std::string(1 << 20, 'x'));
  grpc::ServerContext context;
  v1::AbortGroupResponse response;
  ASSERT_TRUE(service_.AbortGroup(&context, &request, &response).ok());
  EXPECT_EQ(rank->aborted().substr(0, 16), "the disk is full");
  EXPECT_EQ(rank->aborted().size(), 1024u);
}

}  // namespace
}  // namespace cohort::worker
