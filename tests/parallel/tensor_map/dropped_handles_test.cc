// Calls whose caller drops their handles, tensors and maps before they are over.
#include <algorithm>
#include <vector>

#include "base/status_macros.h"
#include "base/testing/random_tensor.h"
#include "client/collective/async_calls.h"
#include "client/parallel/tensor_map/send_receive.h"
#include "tests/failure/testing/members.h"
#include "tests/parallel/testing/map_test_base.h"

namespace cohort::testing {
namespace {

using client::AsyncCalls;
using client::Group;
using client::PendingCall;
using parallel::Messages;
using parallel::TensorMap;

constexpr Reduction kSum = {ReduceOp::kSum};

class DroppedHandlesTest : public MapTest {
 protected:
  static constexpr int kMaps = 8;

  static Tensor Ones(Group& group, int64_t count) {
    const Tensor tensor = Tensor::Zeros(DataType::kF32, {count});
    std::fill_n(static_cast<float*>(tensor.data()), count, 1.0f);
    return Upload(group, tensor);
  }
  // Few bytes or many, by the number of the map.
  static Tensor Content(int map) {
    return Pattern(DataType::kU8, {map % 4 < 2 ? 100 : 300000}, map);
  }
};

TEST_P(DroppedHandlesTest, CallsGoOnWithTheirTensors) {
  MakeGroup(3);
  ExpectOk(OnRanks([](Group& group) -> absl::Status {
    AsyncCalls calls(group);
    const Tensor kept = Ones(group, 5000);
    for (const int64_t count : {1, 70000, 10, 500000}) {
      const Tensor gone = Ones(group, count);
      calls.Start([gone](Group& g) { return g.AllReduce(gone, gone, kSum); });
    }
    calls.Start([kept](Group& g) { return g.AllReduce(kept, kept, kSum); });
    const PendingCall last = calls.Start([](Group& g) { return g.Barrier(); });
    COHORT_RETURN_IF_ERROR(last.Wait(kTimeout));
    EXPECT_EQ(static_cast<float*>(Download(group, kept).data())[4999], 3.0f);
    return absl::OkStatus();
  }));
}

TEST_P(DroppedHandlesTest, MapsArriveWhole) {
  MakeGroup(2);
  ExpectOk(OnRanks([](Group& group) -> absl::Status {
    Messages messages(group);
    AsyncCalls calls(group);
    if (group.rank() == 0) {
      PendingCall last;
      for (int i = 0; i < kMaps; ++i) {
        last = StartSendTensorMap(calls, messages,
                                  {{"number", i}, {"tensor", Upload(group, Content(i))}});
      }
      return last.Wait(kTimeout);
    }
    for (int i = 0; i < kMaps; ++i) {
      const auto pending = StartReceiveTensorMap(calls, messages);
      // The handle of every second map is dropped before its answer comes.
      if (i % 2 == 0) continue;
      const absl::StatusOr<TensorMap> map = pending.Wait(kTimeout);
      COHORT_RETURN_IF_ERROR(map.status());
      EXPECT_EQ(*map->Get<int64_t>("number"), i);
      EXPECT_EQ(ElementsOf(Download(group, *map->Get<Tensor>("tensor"))), ElementsOf(Content(i)));
    }
    return absl::OkStatus();
  }));
}

TEST_P(DroppedHandlesTest, AHandleOutlivesItsCalls) {
  MakeGroup(2);
  std::vector<PendingCall> kept(2);
  ExpectOk(OnRanks([&](Group& group) -> absl::Status {
    AsyncCalls calls(group);
    kept[static_cast<size_t>(group.rank())] = calls.Start([](Group& g) { return g.Barrier(); });
    return calls.Start([](Group& g) { return g.Barrier(); }).Wait(kTimeout);
  }));
  MakeGroup(1);  // the other group is gone
  for (const PendingCall& call : kept) {
    EXPECT_EQ(call.Test(), absl::OkStatus());
    call.Cancel();
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, DroppedHandlesTest, ::testing::ValuesIn(kForms), FormName);

}  // namespace
}  // namespace cohort::testing
