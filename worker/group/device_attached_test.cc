// Ranks with GPUs whose memberships a daemon keeps. The daemon connects to the other ranks and
// relays NCCL's ids; the client computes. One more rank keeps its own membership.
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/tensor/tensor.h"
#include "client/collective/remote/worker_session_impl.h"
#include "client/rendezvous/admin_client.h"
#include "client/rendezvous/call/connection.h"
#include "cohort/v1/worker.grpc.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/coordinator_process.h"
#include "worker/cuda/streams/stream.h"
#include "worker/group/attached_group.h"
#include "worker/group/bootstrap/worker_relayed_unique_ids.h"
#include "worker/group/testing/device_groups.h"

namespace cohort::worker {
namespace {

using client::Group;
using client::RemoteGroup;
using client::RemoteGroupOptions;
using client::WorkerSession;
using client::WorkerSessionImpl;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(60);

class DeviceAttachedTest : public DeviceGroups {
 protected:
  static constexpr int kAttached = 2;

  void SetUp() override {
    DeviceGroups::SetUp();
    cohort::testing::CoordinatorProcess::Options options;
    options.binary = "worker/daemon/cohort-worker";
    options.flags = {"--coordinator", coordinator_.address()};
    worker_ = std::make_unique<cohort::testing::CoordinatorProcess>(options);
    const absl::Status started = worker_->Start();
    ASSERT_TRUE(started.ok()) << started;
  }
  void TearDown() override { groups_.clear(); }

  std::shared_ptr<WorkerSession> Connect() {
    client::WorkerSessionOptions options;
    options.address = worker_->address();
    options.client_name = "test";
    absl::StatusOr<std::shared_ptr<WorkerSession>> session = WorkerSession::Connect(options);
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *std::move(session) : nullptr;
  }
  RemoteGroupOptions OptionsOf(int rank, Placement placement) {
    RemoteGroupOptions options;
    options.session = Connect();
    options.group = "devices";
    options.rank = rank;
    options.world_size = size_;
    options.join_timeout = kLong;
    options.placement = placement;
    return options;
  }
  MadeGroup Make(int rank, Placement placement) override {
    if (rank >= kAttached) return DeviceGroups::Make(rank, placement);
    return AttachedGroup::Create(OptionsOf(rank, placement), GpuOf(rank));
  }

  std::unique_ptr<cohort::testing::CoordinatorProcess> worker_;
};

TEST_F(DeviceAttachedTest, ComputesAloneAndBesideRanksWithTheirOwnMembership) {
  for (const int ranks : {1, 2, 3}) {
    for (const Placement placement : {Placement::kBoth, Placement::kDevice}) {
      groups_.clear();
      Form(placement, ranks);
      EXPECT_EQ(groups_[0]->placement(), placement);
      EXPECT_EQ(groups_[0]->device(), Device::Cuda(0));
      ExpectSums(true);
      if (placement == Placement::kBoth) ExpectSums(false);
      for (const absl::Status& again : Run([](Group& group) { return group.Rejoin(); })) {
        ASSERT_TRUE(again.ok()) << again;
      }
      ExpectSums(true);
    }
  }
}

// The connections include the operation log.
TEST_F(DeviceAttachedTest, ADifferenceOnStreamsIsFoundWithoutAnotherCall) {
  Form(Placement::kBoth);
  for (const absl::Status& status : Run([](Group& group) -> absl::Status {
         const auto stream = cuda::Stream::Create(group.rank());
         const auto tensor = group.Allocate(DataType::kF32, {5}, group.device());
         if (!stream.ok() || !tensor.ok()) return absl::UnknownError("no stream or tensor");
         client::CallOptions options;
         options.stream = stream->get();
         const Tensor part = *tensor->Narrow(0, 0, group.rank() == 1 ? 5 : 4);
         absl::Status status = group.AllReduce(part, part, kSum, options);
         if (status.ok()) status = group.AwaitStreams({});
         EXPECT_TRUE(cuda::Synchronize(stream->get(), Clock::Steady().Now() + kLong).ok());
         return status;
       })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("4 f32"), HasSubstr("5 f32")));
  }
}

TEST_F(DeviceAttachedTest, ARankThatIsStuckInInitIsKnownMeanwhile) {
  nccl_->HoldInit(true);
  std::thread forms([&] { Form(Placement::kBoth, kAttached); });
  client::ConnectionOptions options;
  options.address = coordinator_.address();
  const auto admin = client::AdminClient::Create(*client::Connection::Create(options));
  const Instant deadline = Clock::Steady().Now() + kLong;
  size_t calling = 0;
  while (calling < kAttached && Clock::Steady().Now() < deadline) {
    calling = 0;
    const auto report = admin->WhoIsMissing("devices");
    if (!report.ok()) continue;
    for (const auto& init : report->inits) {
      for (const auto& rank : init.ranks) calling += rank.phase == "calling_init" ? 1 : 0;
    }
  }
  EXPECT_EQ(calling, size_t{kAttached});
  nccl_->HoldInit(false);
  forms.join();
  ExpectSums(true);
}

TEST_F(DeviceAttachedTest, ARankThatCannotFormEndsItForAll) {
  nccl_->FailNext("ncclCommInitRankConfig", ncclUnhandledCudaError, 1);
  const std::vector<MadeGroup> made = Create(std::vector<Placement>(kMostRanks, Placement::kBoth));
  EXPECT_EQ(made[1].status().code(), absl::StatusCode::kInternal) << made[1].status();
  for (const size_t rank : {0, 2}) {
    EXPECT_EQ(made[rank].status().code(), absl::StatusCode::kAborted) << made[rank].status();
    EXPECT_THAT(std::string(made[rank].status().message()), HasSubstr("rank 1"));
  }
}

TEST_F(DeviceAttachedTest, DifferentPlacementsFailOnAllRanksAndDevicePlacementsNeedAGpu) {
  const std::vector<MadeGroup> made =
      Create({Placement::kBoth, Placement::kHost, Placement::kBoth});
  for (const MadeGroup& rank : made) {
    EXPECT_EQ(rank.status().code(), absl::StatusCode::kInvalidArgument) << rank.status();
    EXPECT_THAT(std::string(rank.status().message()),
                HasSubstr("want different placements: rank 0 both, rank 1 host"));
  }
  EXPECT_EQ(AttachedGroup::Create(OptionsOf(0, Placement::kDevice)).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(
      AttachedGroup::Create(OptionsOf(0, static_cast<Placement>(9)), GpuOf(0)).status().code(),
      absl::StatusCode::kInvalidArgument);
}

// Ids are a secret of the generation: the worker returns them only to the session that owns the
// rank.
TEST_F(DeviceAttachedTest, IdsAreRelayedForTheOwnersOfARankInItsGeneration) {
  size_ = 1;
  RemoteGroupOptions options = OptionsOf(0, Placement::kHost);
  options.attached = true;
  const auto joined = RemoteGroup::Create(options);
  ASSERT_TRUE(joined.ok()) << joined.status();
  WorkerRelayedUniqueIds ids(joined->get());
  EXPECT_EQ(ids.group(), "devices");
  EXPECT_EQ(ids.size(), 1);
  const std::vector<std::string> some = {std::string("\0id\xff", 4)};
  ASSERT_TRUE(ids.Publish("mine", some).ok());
  EXPECT_EQ(*ids.Fetch("mine", kLong), some);
  EXPECT_EQ(ids.Fetch("nobodys", absl::Milliseconds(50)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(ids.Report("mine", UniqueIdExchange::Phase::kDone, "").ok());

  using Stub = v1::WorkerService::Stub;
  v1::FetchUniqueIdsRequest request;
  request.set_group((*joined)->number());
  request.set_generation((*joined)->generation());
  request.set_name("mine");
  v1::FetchUniqueIdsResponse response;
  const std::shared_ptr<WorkerSession> other_session = Connect();
  EXPECT_EQ(WorkerSessionImpl::Of(*other_session)
                .Call(&Stub::FetchUniqueIds, request, kLong, &response)
                .code(),
            absl::StatusCode::kNotFound);
  v1::ReportGroupInitRequest report;
  report.set_group((*joined)->number());
  report.set_generation((*joined)->generation());
  v1::ReportGroupInitResponse reported;
  EXPECT_EQ(WorkerSessionImpl::Of((*joined)->session())
                .Call(&Stub::ReportGroupInit, report, kLong, &reported)
                .code(),
            absl::StatusCode::kInvalidArgument)
      << "no phase";

  ASSERT_TRUE((*joined)->Rejoin().ok());
  const absl::Status late = ids.Fetch("mine", kLong).status();
  EXPECT_EQ(late.code(), absl::StatusCode::kAborted) << late;
  EXPECT_THAT(std::string(late.message()), HasSubstr("generation"));

  RemoteGroupOptions others = OptionsOf(0, Placement::kHost);
  others.group = "run-by-the-worker";
  const auto run = RemoteGroup::Create(others);
  ASSERT_TRUE(run.ok()) << run.status();
  WorkerRelayedUniqueIds refused(run->get());
  EXPECT_EQ(refused.Publish("mine", some).code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace cohort::worker
