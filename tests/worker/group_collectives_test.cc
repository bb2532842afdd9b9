// Every collective, through daemons, on 2 and 3 ranks: near and far, in tensors of the daemon and
// of the client, of any layout. One place computes the expected results from all inputs.
#include <algorithm>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/testing/random_tensor.h"
#include "client/collective/async_calls.h"
#include "tests/failure/testing/members.h"
#include "tests/worker/worker_test_base.h"
#include "worker/group/testing/tensor_model.h"

namespace cohort {
namespace {

using client::Group;
using client::Sizes;
using client::TensorTransfer;
using testing::OnThreads;
using testing::Transport;
using worker::Join;
using worker::RandomModel;
using worker::Reduced;
using worker::Slice;
using worker::TensorModel;
using worker::With;

constexpr int64_t kMessageBytes = int64_t{1} << 20;

struct Setting {
  std::string name;
  std::vector<Transport> transports;  // of the ranks
  bool allocated;         // in the daemon's memory, where that is shared
  // The extent of the first dimension.
  int64_t extent;
};

class CollectivesTest : public testing::WorkerTest, public ::testing::WithParamInterface<Setting> {
 protected:
  using Function = std::function<absl::Status(Group&, const Tensor& in, const Tensor& out)>;

  void SetUp() override {
    WorkerTest::SetUp();
    for (size_t i = 0; i < GetParam().transports.size(); ++i) {
      StartWorker({"--max-message-bytes", absl::StrCat(kMessageBytes)});
    }
    std::vector<std::shared_ptr<client::WorkerSession>> sessions;
    for (size_t i = 0; i < GetParam().transports.size(); ++i) {
      sessions.push_back(Connect(static_cast<int>(i), GetParam().transports[i]));
      ASSERT_NE(sessions.back(), nullptr);
    }
    groups_ = JoinAll(sessions, "collectives", GetParam().transports);
    for (const auto& group : groups_) ASSERT_NE(group, nullptr);
  }

  int size() const { return static_cast<int>(groups_.size()); }
  Shape BaseShape() const { return {GetParam().extent, 3}; }

  RandomTensor Make(int rank, const TensorModel& model) {
    std::mt19937 random(static_cast<uint32_t>(rank) * 7919 + ++made_);
    RandomTensor tensor(model.type, model.shape, random,
                        [&](DataType type, const Shape& shape) -> Tensor {
                          if (!GetParam().allocated) return Tensor::Zeros(type, shape);
                          return groups_[static_cast<size_t>(rank)]->Allocate(type, shape).value();
                        });
    SetElements(tensor.tensor(), model.bytes);
    return tensor;
  }

  // Absent: the collective ignores this rank's tensor.
  using Models = std::vector<std::optional<TensorModel>>;
  void Run(const std::string& what, const Models& inputs, const Models& expected,
           const Function& function) {
    SCOPED_TRACE(what);
    std::vector<std::optional<RandomTensor>> in(inputs.size());
    std::vector<std::optional<RandomTensor>> out(inputs.size());
    for (size_t rank = 0; rank < inputs.size(); ++rank) {
      if (inputs[rank].has_value()) in[rank] = Make(static_cast<int>(rank), *inputs[rank]);
      if (!expected[rank].has_value()) continue;
      TensorModel blank = *expected[rank];
      blank.bytes.assign(blank.bytes.size(), '\x55');
      out[rank] = Make(static_cast<int>(rank), blank);
    }
    ExpectOk(OnRanks(groups_, [&](Group& group) {
      const auto rank = static_cast<size_t>(group.rank());
      return function(group, in[rank].has_value() ? in[rank]->tensor() : Tensor(),
                      out[rank].has_value() ? out[rank]->tensor() : Tensor());
    }));
    for (size_t rank = 0; rank < inputs.size(); ++rank) {
      if (!expected[rank].has_value()) continue;
      EXPECT_TRUE(ElementsOf(out[rank]->tensor()) == expected[rank]->bytes) << "rank " << rank;
      EXPECT_FALSE(out[rank]->Strayed()) << "rank " << rank;
    }
  }

  std::vector<TensorModel> Inputs(DataType type, const Shape& shape) {
    std::vector<TensorModel> inputs;
    for (int rank = 0; rank < size(); ++rank) inputs.push_back(RandomModel(type, shape, random_));
    return inputs;
  }
  static Models AllOf(const std::vector<TensorModel>& models) {
    return Models(models.begin(), models.end());
  }
  Models Everywhere(const TensorModel& model) const {
    return Models(static_cast<size_t>(size()), model);
  }
  Models OnlyAt(int rank, const TensorModel& model) const {
    Models models(static_cast<size_t>(size()));
    models[static_cast<size_t>(rank)] = model;
    return models;
  }

  Groups groups_;
  std::mt19937 random_{20261121};
  uint32_t made_ = 0;
};

constexpr Reduction kSum = {ReduceOp::kSum};

TEST_P(CollectivesTest, Equal) {
  const int root = size() - 1;
  for (const DataType type : {DataType::kF32, DataType::kI8}) {
    SCOPED_TRACE(NameOf(type));
    const Shape shape = BaseShape();
    const std::vector<TensorModel> inputs = Inputs(type, shape);
    const TensorModel sum = Reduced(inputs, kSum);
    Run("all_reduce", AllOf(inputs), Everywhere(sum),
        [](Group& group, const Tensor& in, const Tensor& out) {
          return group.AllReduce(in, out, kSum);
        });
    Run("reduce", AllOf(inputs), OnlyAt(root, sum),
        [&](Group& group, const Tensor& in, const Tensor& out) {
          return group.Reduce(in, out, kSum, root);
        });
    Run("all_gather", AllOf(inputs), Everywhere(Join(inputs, 1)),
        [](Group& group, const Tensor& in, const Tensor& out) {
          return group.AllGather(in, out, -1);
        });
    Run("gather", AllOf(inputs), OnlyAt(root, Join(inputs, 0)),
        [&](Group& group, const Tensor& in, const Tensor& out) {
          return group.Gather(in, out, 0, root);
        });
    const TensorModel whole = RandomModel(type, With(shape, 0, shape[0] * size()), random_);
    Models parts;
    for (int rank = 0; rank < size(); ++rank) {
      parts.push_back(Slice(whole, 0, rank * shape[0], shape[0]));
    }
    Run("scatter", OnlyAt(root, whole), parts,
        [&](Group& group, const Tensor& in, const Tensor& out) {
          return group.Scatter(in, out, 0, root);
        });
    const std::vector<TensorModel> wholes = Inputs(type, whole.shape);
    const TensorModel total = Reduced(wholes, kSum);
    Models reduced;
    Models exchanged;
    for (int rank = 0; rank < size(); ++rank) {
      reduced.push_back(Slice(total, 0, rank * shape[0], shape[0]));
      std::vector<TensorModel> from;
      for (const TensorModel& one : wholes) {
        from.push_back(Slice(one, 0, rank * shape[0], shape[0]));
      }
      exchanged.push_back(Join(from, 0));
    }
    Run("reduce_scatter", AllOf(wholes), reduced,
        [](Group& group, const Tensor& in, const Tensor& out) {
          return group.ReduceScatter(in, out, 0, kSum);
        });
    Run("all_to_all", AllOf(wholes), exchanged,
        [](Group& group, const Tensor& in, const Tensor& out) { return group.AllToAll(in, out); });
    Run(
        "exchange", AllOf(inputs),
        [&] {
          Models shifted;
          for (int rank = 0; rank < size(); ++rank) {
            shifted.push_back(inputs[static_cast<size_t>((rank + size() - 1) % size())]);
          }
          return shifted;
        }(),
        [this](Group& group, const Tensor& in, const Tensor& out) {
          const TensorTransfer transfers[] = {{true, (group.rank() + 1) % size(), in},
                                              {false, (group.rank() + size() - 1) % size(), out}};
          return group.Exchange(transfers);
        });
  }
}

TEST_P(CollectivesTest, InPlace) {
  const std::vector<TensorModel> inputs = Inputs(DataType::kBF16, BaseShape());
  const std::string sum = Reduced(inputs, kSum).bytes;
  std::vector<RandomTensor> tensors;
  for (int rank = 0; rank < size(); ++rank) {
    tensors.push_back(Make(rank, inputs[static_cast<size_t>(rank)]));
  }
  ExpectOk(OnRanks(groups_, [&](Group& group) {
    const Tensor& tensor = tensors[static_cast<size_t>(group.rank())].tensor();
    return group.AllReduce(tensor, tensor, kSum);
  }));
  for (const RandomTensor& tensor : tensors) EXPECT_TRUE(ElementsOf(tensor.tensor()) == sum);
  ExpectOk(OnRanks(groups_, [&](Group& group) {
    if (group.rank() == 0) SetElements(tensors[0].tensor(), inputs[0].bytes);
    return group.Broadcast(tensors[static_cast<size_t>(group.rank())].tensor(), 0);
  }));
  for (const RandomTensor& tensor : tensors) {
    EXPECT_TRUE(ElementsOf(tensor.tensor()) == inputs[0].bytes);
  }
}

TEST_P(CollectivesTest, Ragged) {
  const int root = 0;
  Sizes sizes;
  for (int rank = 0; rank < size(); ++rank) {
    sizes.push_back(rank == 1 ? 0 : GetParam().extent / (rank + 1));
  }
  const int64_t all = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  std::vector<TensorModel> parts;
  for (const int64_t extent : sizes) {
    parts.push_back(RandomModel(DataType::kI32, {extent, 2}, random_));
  }
  const TensorModel joined = Join(parts, 0);
  Run("all_gather_v", AllOf(parts), Everywhere(joined),
      [&](Group& group, const Tensor& in, const Tensor& out) {
        return group.AllGatherV(in, out, 0, sizes);
      });
  Run("gather_v", AllOf(parts), OnlyAt(root, joined),
      [&](Group& group, const Tensor& in, const Tensor& out) {
        return group.GatherV(in, out, 0, sizes, root);
      });
  const std::vector<TensorModel> wholes = Inputs(DataType::kI32, {all, 2});
  const TensorModel total = Reduced(wholes, kSum);
  Models reduced;
  int64_t before = 0;
  for (const int64_t extent : sizes) {
    reduced.push_back(Slice(total, 0, before, extent));
    before += extent;
  }
  Run("reduce_scatter_v", AllOf(wholes), reduced,
      [&](Group& group, const Tensor& in, const Tensor& out) {
        return group.ReduceScatterV(in, out, 0, sizes, kSum);
      });
  // Rank r sends sizes[p] elements to rank p, so p gets sizes[p] from each rank.
  Models exchanged;
  before = 0;
  for (const int64_t extent : sizes) {
    std::vector<TensorModel> from;
    for (const TensorModel& whole : wholes) from.push_back(Slice(whole, 0, before, extent));
    exchanged.push_back(Join(from, 0));
    before += extent;
  }
  Run("all_to_all_v", AllOf(wholes), exchanged,
      [&](Group& group, const Tensor& in, const Tensor& out) {
        const Sizes outputs(sizes.size(), sizes[static_cast<size_t>(group.rank())]);
        return group.AllToAllV(in, sizes, out, outputs);
      });
  ExpectOk(OnRanks(groups_, [&](Group& group) {
    const absl::StatusOr<Sizes> all_sizes =
        group.ExchangeSizes(sizes[static_cast<size_t>(group.rank())]);
    if (!all_sizes.ok()) return all_sizes.status();
    EXPECT_EQ(*all_sizes, sizes);
    return absl::OkStatus();
  }));
}

TEST_P(CollectivesTest, EmptyAndSingle) {
  for (const Shape& shape : {Shape{0}, Shape{4, 0, 2}, Shape{}}) {
    const std::vector<TensorModel> inputs = Inputs(DataType::kF64, shape);
    Run(FormatShape(shape), AllOf(inputs), Everywhere(Reduced(inputs, kSum)),
        [](Group& group, const Tensor& in, const Tensor& out) {
          return group.AllReduce(in, out, kSum);
        });
  }
}

// Several tensors at once, every second one in place; a middle one has no elements.
TEST_P(CollectivesTest, Coalesced) {
  const Shape shapes[] = {BaseShape(), {5}, {0, 2}, {3, 7}, BaseShape(), {1}};
  std::vector<std::vector<RandomTensor>> in(groups_.size());
  std::vector<std::vector<RandomTensor>> out(groups_.size());
  std::vector<std::string> sums;
  for (const Shape& shape : shapes) {
    const std::vector<TensorModel> inputs = Inputs(DataType::kF32, shape);
    sums.push_back(Reduced(inputs, kSum).bytes);
    for (int rank = 0; rank < size(); ++rank) {
      const auto at = static_cast<size_t>(rank);
      in[at].push_back(Make(rank, inputs[at]));
      if (in[at].size() % 2 == 0) {
        out[at].push_back(in[at].back());
      } else {
        out[at].push_back(Make(rank, inputs[(at + 1) % inputs.size()]));
      }
    }
  }
  const auto tensors = [](const std::vector<RandomTensor>& of_rank) {
    std::vector<Tensor> result;
    for (const RandomTensor& one : of_rank) result.push_back(one.tensor());
    return result;
  };
  ExpectOk(OnRanks(groups_, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    return group.AllReduceCoalesced(tensors(in[rank]), tensors(out[rank]), kSum);
  }));
  for (size_t rank = 0; rank < out.size(); ++rank) {
    for (size_t i = 0; i < sums.size(); ++i) {
      EXPECT_TRUE(ElementsOf(out[rank][i].tensor()) == sums[i]) << "rank " << rank << ", " << i;
      EXPECT_FALSE(out[rank][i].Strayed()) << "rank " << rank << ", " << i;
    }
  }
  // All ranks get the error of one rank's arguments, and of lists that differ.
  std::vector<absl::Status> statuses = OnRanks(groups_, [&](Group& group) {
    const std::vector<Tensor> all = tensors(in[static_cast<size_t>(group.rank())]);
    const size_t outputs = all.size() - (group.rank() == 1 ? 1 : 0);
    return group.AllReduceCoalesced(all, absl::MakeConstSpan(all).subspan(0, outputs), kSum);
  });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find("5 outputs for 6 inputs"), absl::string_view::npos) << status;
  }
  statuses = OnRanks(groups_, [&](Group& group) {
    const std::vector<Tensor> all = tensors(in[static_cast<size_t>(group.rank())]);
    const size_t count = all.size() - (group.rank() == 1 ? 1 : 0);
    const auto some = absl::MakeConstSpan(all).subspan(0, count);
    return group.AllReduceCoalesced(some, some, kSum);
  });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find("[3, 7], "), absl::string_view::npos) << status;
  }
}

// Several calls are in flight, each on the result of the one before it.
TEST_P(CollectivesTest, WithoutWaiting) {
  const auto ranks = static_cast<float>(size());
  ExpectOk(OnRanks(groups_, [ranks](Group& group) -> absl::Status {
    const Tensor tensor = Tensor::Zeros(DataType::kF32, {5});
    auto* const values = static_cast<float*>(tensor.data());
    std::fill_n(values, 5, 1.0f);
    client::AsyncCalls calls(group);
    client::PendingCall last;
    for (int i = 0; i < 3; ++i) {
      last = calls.Start([tensor](Group& g) { return g.AllReduce(tensor, tensor, kSum); });
    }
    COHORT_RETURN_IF_ERROR(last.Wait(testing::kTimeout));
    EXPECT_EQ(values[4], ranks * ranks * ranks);
    return absl::OkStatus();
  }));
}

TEST_P(CollectivesTest, Objects) {
  ExpectOk(OnRanks(groups_, [this](Group& group) -> absl::Status {
    const int next = (group.rank() + 1) % size();
    const int previous = (group.rank() + size() - 1) % size();
    const std::string mine = absl::StrCat("object ", group.rank());
    absl::Status status = group.SendObject(mine, next);
    if (!status.ok()) return status;
    const absl::StatusOr<std::string> received = group.ReceiveObject(previous);
    if (!received.ok()) return received.status();
    EXPECT_EQ(*received, absl::StrCat("object ", previous));
    const absl::StatusOr<std::string> sent = group.BroadcastObject(mine, 0);
    if (!sent.ok()) return sent.status();
    EXPECT_EQ(*sent, "object 0");
    const absl::StatusOr<std::vector<std::string>> all = group.AllGatherObjects(mine);
    if (!all.ok()) return all.status();
    EXPECT_EQ(static_cast<int>(all->size()), size());
    EXPECT_EQ(all->back(), absl::StrCat("object ", size() - 1));
    return group.Barrier();
  }));
}

// All ranks get the same error, which names the call, and the group works on.
TEST_P(CollectivesTest, AMismatchNamesTheCallOfTheGroup) {
  const std::vector<absl::Status> statuses = OnRanks(groups_, [](Group& group) {
    const Tensor tensor = Tensor::Zeros(DataType::kF32, {group.rank() == 0 ? 4 : 5});
    return group.AllReduce(tensor, tensor, kSum);
  });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find("all_reduce of f32 [4]"), absl::string_view::npos) << status;
  }
  const std::vector<TensorModel> inputs = Inputs(DataType::kF32, {9});
  Run("after", AllOf(inputs), Everywhere(Reduced(inputs, kSum)),
      [](Group& group, const Tensor& in, const Tensor& out) {
        return group.AllReduce(in, out, kSum);
      });
}

INSTANTIATE_TEST_SUITE_P(
    All, CollectivesTest,
    ::testing::Values(
        Setting{"SmallPlainUnix", {Transport::kUnix, Transport::kUnix}, false, 8},
        Setting{"SmallOwn", {Transport::kAttached, Transport::kAttached}, true, 8},
        Setting{"MiddleOwnPlain",
                {Transport::kAttached, Transport::kAttached, Transport::kAttached},
                false,
                9000},
        Setting{"LargeOwn", {Transport::kAttached, Transport::kAttached}, true, 120000},
        // Some ranks run their collectives themselves, and others in a daemon.
        Setting{
            "Mixed", {Transport::kAttached, Transport::kUnix, Transport::kRemoteTcp}, true, 9000},
        Setting{"SmallAllocated", {Transport::kUnix, Transport::kTcp, Transport::kUnix}, true, 8},
        Setting{"SmallFar",
                {Transport::kRemoteTcp, Transport::kRemoteTcp, Transport::kRemoteTcp},
                false,
                8},
        Setting{"MiddlePlain", {Transport::kTcp, Transport::kUnix, Transport::kTcp}, false, 9000},
        Setting{"MiddleAllocated", {Transport::kTcp, Transport::kUnix}, true, 9000},
        Setting{"MiddleFar", {Transport::kRemoteTcp, Transport::kUnix}, true, 9000},
        Setting{"LargePlain", {Transport::kUnix, Transport::kTcp}, false, 120000},
        Setting{"LargeAllocated", {Transport::kUnix, Transport::kTcp}, true, 120000},
        // More than the half of a message.
        Setting{"LargeFar", {Transport::kRemoteTcp, Transport::kRemoteTcp}, false, 120000}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cohort
