// Tensor maps in groups that move only GPU memory, and on streams.
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/parallel/messages/messages.h"
#include "client/parallel/tensor_map/broadcast.h"
#include "client/parallel/tensor_map/send_receive.h"
#include "tests/failure/testing/members.h"
#include "tests/parallel/testing/map_test_base.h"
#include "worker/communicator/nccl/api/testing/fake_nccl_api.h"
#include "worker/group/gpu/cuda_gpu_context.h"
#include "worker/group/local_group.h"

namespace cohort::testing {
namespace {

using parallel::BroadcastTensorMap;
using parallel::Messages;
using parallel::ReceiveMapOptions;
using parallel::ReceiveTensorMap;
using parallel::SendMapOptions;
using parallel::SendTensorMap;
using parallel::TensorMap;

class DeviceMapTest : public MapTest {
 protected:
  Groups MakeGroupOfGpusAlone(int size) {
    const auto nccl = std::make_shared<worker::FakeNcclApi>();
    Groups groups(static_cast<size_t>(size));
    OnThreads(size, [&](int rank) {
      worker::LocalGroupOptions options;
      options.membership.connection.address = coordinator_.address();
      options.membership.group = "gpus";
      options.membership.rank = rank;
      options.membership.world_size = size;
      options.bootstrap.placement = Placement::kDevice;
      options.gpu_context = std::make_shared<worker::CudaGpuContext>(nccl, rank);
      auto group = worker::LocalGroup::Create(options);
      EXPECT_TRUE(group.ok()) << group.status();
      if (group.ok()) groups[static_cast<size_t>(rank)] = *std::move(group);
    });
    return groups;
  }

  // On the host and on the GPU, small and large, some empty.
  static TensorMap Everything(client::Group& group) {
    TensorMap map = {{"n", 1}, {"empty", Upload(group, Pattern(DataType::kF16, {0, 3}))}};
    for (const int64_t rows : {1, 7, 100, 5000}) {
      map.Set(absl::StrCat("gpu", rows), Upload(group, Pattern(DataType::kF16, {rows, 11})));
      map.Set(absl::StrCat("host", rows), Pattern(DataType::kF16, {rows, 11}));
    }
    return map;
  }
};

TEST_P(DeviceMapTest, GroupsOfGpusAloneHaveTensorsOfTheHostInTheirMaps) {
  const Groups groups = MakeGroupOfGpusAlone(3);
  for (const auto& group : groups) ASSERT_NE(group, nullptr);
  std::vector<std::string> texts(3);
  ExpectOk(WorkerTest::OnRanks(groups, [&](client::Group& group) {
    std::string& text = texts[static_cast<size_t>(group.rank())];
    std::mt19937 random(7);
    for (int round = 0; round < 10; ++round) {
      TensorMap map;
      if (group.rank() == 1) map = round == 0 ? Everything(group) : RandomMap(group, random);
      const auto came = BroadcastTensorMap(group, &map, {1});
      if (!came.ok()) return came.status();
      text += Text(*came);
    }
    const auto none = BroadcastTensorMap(group, nullptr, {2}).status();
    ExpectError(none, absl::StatusCode::kInvalidArgument, "the tensor map of rank 2 of group gpus");

    // Each rank sends to the next.
    Messages messages(group);
    const TensorMap map = Everything(group);
    const bool first = group.rank() % 2 == 0;
    if (first) {
      if (const auto status = SendTensorMap(messages, map); !status.ok()) return status;
    }
    const auto came = ReceiveTensorMap(messages);
    if (!came.ok()) return came.status();
    EXPECT_EQ(Text(*came), Text(map));
    return first ? absl::OkStatus() : SendTensorMap(messages, map);
  }));
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_EQ(texts[2], texts[1]);
}

TEST_P(DeviceMapTest, OnAStream) {
  MakeGroup(4);
  ExpectOk(OnRanks([&](client::Group& group) {
    client::CallOptions call;
    call.stream = nullptr;  // the default one
    const TensorMap own = Everything(group);
    const auto all = BroadcastTensorMap(group, &own, {3, call});
    if (!all.ok()) return all.status();

    Messages messages(group);
    SendMapOptions send;
    send.call = call;
    ReceiveMapOptions receive;
    receive.call = call;
    const bool first = group.rank() % 2 == 0;
    if (first) {
      if (const auto status = SendTensorMap(messages, own, send); !status.ok()) return status;
    }
    const auto came = ReceiveTensorMap(messages, receive);
    if (!came.ok()) return came.status();
    if (!first) {
      if (const auto status = SendTensorMap(messages, own, send); !status.ok()) return status;
    }
    const absl::Status done = group.AwaitStreams();
    EXPECT_EQ(Text(*all), Text(own));
    EXPECT_EQ(Text(*came), Text(own));
    return done;
  }));
}

INSTANTIATE_TEST_SUITE_P(Forms, DeviceMapTest, ::testing::Values(Form::kDevice), FormName);

}  // namespace
}  // namespace cohort::testing
