// Exact figures of Group::Stats on groups of every form.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/collective/group.h"
#include "client/collective/sequence.h"
#include "gmock/gmock.h"
#include "tests/parallel/testing/parallel_test_base.h"

namespace cohort::testing {
namespace {

using client::Group;
using client::PeerStats;
using ::testing::ElementsAre;

// "bytes in messages sent, bytes in messages received" by rank.
std::vector<std::string> Text(const Group& group) {
  std::vector<std::string> texts;
  for (const PeerStats& peer : group.Stats()) {
    texts.push_back(absl::StrCat(peer.bytes_sent, " in ", peer.messages_sent, ", ",
                                 peer.bytes_received, " in ", peer.messages_received));
  }
  return texts;
}

class StatsTest : public ParallelTest {
 protected:
  Tensor Of(Group& group, DataType type, const Shape& shape) {
    return Upload(group, Tensor::Zeros(type, shape));
  }
};

TEST_P(StatsTest, BroadcastAllReduceAndSend) {
  MakeGroup(3);
  for (int r = 0; r < 3; ++r) {
    EXPECT_THAT(Text(rank(r)), ElementsAre("0 in 0, 0 in 0", "0 in 0, 0 in 0", "0 in 0, 0 in 0"));
  }
  // 20 bytes from rank 1.
  ExpectOk(OnRanks([&](Group& group) {
    return group.Broadcast(Of(group, DataType::kF32, {5}), 1);
  }));
  EXPECT_THAT(Text(rank(0)), ElementsAre("0 in 0, 0 in 0", "0 in 0, 20 in 1", "0 in 0, 0 in 0"));
  EXPECT_THAT(Text(rank(1)), ElementsAre("20 in 1, 0 in 0", "0 in 0, 0 in 0", "20 in 1, 0 in 0"));
  EXPECT_THAT(Text(rank(2)), ElementsAre("0 in 0, 0 in 0", "0 in 0, 20 in 1", "0 in 0, 0 in 0"));
  // 56 bytes from each rank to each other rank.
  ExpectOk(OnRanks([&](Group& group) {
    const Tensor own = Of(group, DataType::kF64, {7});
    return group.AllReduce(own, own, {ReduceOp::kSum});
  }));
  EXPECT_THAT(Text(rank(0)),
              ElementsAre("0 in 0, 0 in 0", "56 in 1, 76 in 2", "56 in 1, 56 in 1"));
  EXPECT_THAT(Text(rank(1)),
              ElementsAre("76 in 2, 56 in 1", "0 in 0, 0 in 0", "76 in 2, 56 in 1"));
  // 12 bytes from rank 0 to rank 2.
  ExpectOk(OnRanks([&](Group& group) {
    const Tensor tensor = Of(group, DataType::kI32, {3});
    if (group.rank() == 0) return group.Send(tensor, 2);
    return group.rank() == 2 ? group.Receive(tensor, 0) : absl::OkStatus();
  }));
  EXPECT_THAT(Text(rank(0)),
              ElementsAre("0 in 0, 0 in 0", "56 in 1, 76 in 2", "68 in 2, 56 in 1"));
  EXPECT_THAT(Text(rank(2)),
              ElementsAre("56 in 1, 68 in 2", "56 in 1, 76 in 2", "0 in 0, 0 in 0"));
  // Calls that move no tensors and calls that fail are not counted.
  const std::vector<std::string> before = Text(rank(1));
  ExpectOk(OnRanks([&](Group& group) -> absl::Status {
    COHORT_RETURN_IF_ERROR(group.Barrier());
    COHORT_RETURN_IF_ERROR(group.ExchangeSizes(group.rank()).status());
    const Tensor own = Of(group, DataType::kF32, {group.rank() + 1});
    EXPECT_EQ(group.AllReduce(own, own, {ReduceOp::kSum}).code(),
              absl::StatusCode::kInvalidArgument);
    return absl::OkStatus();
  }));
  EXPECT_EQ(Text(rank(1)), before);
}

TEST_P(StatsTest, PartsAreCountedByTheRankTheyAreOf) {
  MakeGroup(2);
  // Rows of 8 bytes.
  ExpectOk(OnRanks([&](Group& group) -> absl::Status {
    const bool first = group.rank() == 0;
    COHORT_RETURN_IF_ERROR(group.AllGatherV(Of(group, DataType::kF32, {first ? 3 : 1, 2}),
                                            Of(group, DataType::kF32, {4, 2}), 0, {3, 1}));
    return group.AllToAllV(Of(group, DataType::kF32, {3, 2}),
                           first ? client::Sizes{2, 1} : client::Sizes{0, 3},
                           Of(group, DataType::kF32, {first ? 2 : 4, 2}),
                           first ? client::Sizes{2, 0} : client::Sizes{1, 3});
  }));
  EXPECT_THAT(Text(rank(0)), ElementsAre("0 in 0, 0 in 0", "32 in 2, 8 in 2"));
  EXPECT_THAT(Text(rank(1)), ElementsAre("8 in 2, 32 in 2", "0 in 0, 0 in 0"));
}

TEST_P(StatsTest, BothEndsCountTheSame) {
  MakeGroup(4);
  ExpectOk(OnRanks([&](Group& group) -> absl::Status {
    const Tensor part = Of(group, DataType::kU8, {4});
    const Tensor all = Of(group, DataType::kU8, {16});
    COHORT_RETURN_IF_ERROR(group.Reduce(part, part, {ReduceOp::kMax}, 2));
    COHORT_RETURN_IF_ERROR(group.AllGather(part, all, 0));
    COHORT_RETURN_IF_ERROR(group.ReduceScatter(all, part, 0, {ReduceOp::kMax}));
    COHORT_RETURN_IF_ERROR(group.AllToAll(all, Of(group, DataType::kU8, {16})));
    COHORT_RETURN_IF_ERROR(group.Gather(part, all, 0, 1));
    COHORT_RETURN_IF_ERROR(group.GatherV(part, all, 0, {4, 4, 4, 4}, 3));
    COHORT_RETURN_IF_ERROR(
        group.ReduceScatterV(all, part, 0, {4, 4, 4, 4}, {ReduceOp::kMax}));
    return group.Scatter(all, part, 0, 0);
  }));
  for (int from = 0; from < 4; ++from) {
    for (int to = 0; to < 4; ++to) {
      const PeerStats sent = rank(from).Stats()[static_cast<size_t>(to)];
      const PeerStats received = rank(to).Stats()[static_cast<size_t>(from)];
      EXPECT_EQ(sent.bytes_sent, received.bytes_received) << from << " to " << to;
      EXPECT_EQ(sent.messages_sent, received.messages_received) << from << " to " << to;
      EXPECT_EQ(sent.bytes_sent, 4 * sent.messages_sent) << from << " to " << to;
    }
  }
}

TEST_P(StatsTest, ANewGenerationBeginsAtZero) {
  MakeGroup(2);
  for (int generation = 0; generation < 2; ++generation) {
    ExpectOk(
        OnRanks([&](Group& group) { return group.Broadcast(Of(group, DataType::kF32, {5}), 1); }));
    EXPECT_THAT(Text(rank(0)), ElementsAre("0 in 0, 0 in 0", "0 in 0, 20 in 1"));
    EXPECT_THAT(Text(rank(1)), ElementsAre("20 in 1, 0 in 0", "0 in 0, 0 in 0"));
    rank(0).Abort(absl::AbortedError("the test says so"));
    ExpectOk(OnRanks([](Group& group) { return group.Rejoin(); }));
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, StatsTest, ::testing::ValuesIn(kForms), FormName);

}  // namespace
}  // namespace cohort::testing
