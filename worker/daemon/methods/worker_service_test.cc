#include "worker/daemon/methods/worker_service.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "cohort/v1/worker.pb.h"
#include "grpcpp/server_context.h"
#include "gtest/gtest.h"
#include "worker/daemon/access/caller.h"
#include "worker/daemon/limits/call_gate.h"
#include "worker/daemon/methods/metrics.h"
#include "worker/daemon/methods/streams/write_stream.h"
#include "worker/daemon/sessions/session_table.h"
#include "worker/daemon/sessions/testing/noted_rank.h"
#include "worker/daemon/tensors/tensor_table.h"

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

TEST(CheckRangeTest, RefusesRangesThatLeaveTheTensor) {
  TensorMemory memory;
  memory.bytes = 100;
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  for (const auto& [offset, size] : {std::pair<uint64_t, uint64_t>{0, 100}, {100, 0}, {60, 40}}) {
    EXPECT_TRUE(CheckRange(memory, offset, size).ok()) << offset << " " << size;
  }
  for (const auto& [offset, size] :
       {std::pair<uint64_t, uint64_t>{0, 101}, {101, 0}, {61, 40}, {kMost, 1}, {kMost - 9, 20}}) {
    EXPECT_TRUE(absl::IsOutOfRange(CheckRange(memory, offset, size))) << offset << " " << size;
  }
}

}  // namespace
}  // namespace cohort::worker
