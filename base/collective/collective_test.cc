#include "base/collective/collective.h"

#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/collective/collective_call.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

constexpr Collective kFlat[] = {
    Collective::kAllReduce, Collective::kReduce,        Collective::kBroadcast,
    Collective::kAllGather, Collective::kReduceScatter, Collective::kAllToAll,
    Collective::kGather,    Collective::kScatter,       Collective::kBarrier};

FlatCall Example() {
  FlatCall call;
  call.collective = Collective::kReduce;
  call.type = DataType::kBF16;
  call.root = 12345;
  call.count = int64_t{1} << 40;
  call.reduction = {ReduceOp::kPreMulSum, 0.25};
  call.tag = 0xFEDCBA98;
  return call;
}

TEST(CollectiveTest, EveryNumberWithANameIsACollective) {
  std::set<std::string> names;
  for (int value = -1; value < 40; ++value) {
    const std::string name(NameOf(static_cast<Collective>(value)));
    EXPECT_EQ(IsCollective(value), name != "unknown") << value;
    if (!IsCollective(value)) continue;
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_EQ(FindCollective(name), static_cast<Collective>(value)) << name;
  }
  EXPECT_EQ(names.size(), 20u);
  EXPECT_EQ(FindCollective("all-reduce"), Collective::kUnknown);
}

TEST(CollectiveKeyTest, GivesTheCallBack) {
  const FlatCall call = Example();
  const CollectiveKey key = KeyOf(call, /*step=*/5);
  EXPECT_EQ(key.step(), 5);
  const std::optional<FlatCall> read = CallOf(key);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->collective, call.collective);
  EXPECT_EQ(read->type, call.type);
  EXPECT_EQ(read->root, call.root);
  EXPECT_EQ(read->count, call.count);
  EXPECT_EQ(read->reduction.op, call.reduction.op);
  EXPECT_EQ(read->reduction.scale, call.reduction.scale);
  EXPECT_EQ(read->tag, call.tag);
  EXPECT_EQ(Describe(key), Describe(call));
}

TEST(CollectiveKeyTest, DiffersWhereACallDiffers) {
  const CollectiveKey key = KeyOf(Example());
  const auto changed = [](auto change) {
    FlatCall call = Example();
    change(call);
    return KeyOf(call);
  };
  EXPECT_EQ(key, KeyOf(Example()));
  EXPECT_NE(key, KeyOf(Example(), 1));
  EXPECT_NE(key, changed([](FlatCall& call) { call.collective = Collective::kBroadcast; }));
  EXPECT_NE(key, changed([](FlatCall& call) { call.type = DataType::kF16; }));
  EXPECT_NE(key, changed([](FlatCall& call) { ++call.root; }));
  EXPECT_NE(key, changed([](FlatCall& call) { ++call.count; }));
  EXPECT_NE(key, changed([](FlatCall& call) { call.reduction.op = ReduceOp::kSum; }));
  EXPECT_NE(key, changed([](FlatCall& call) { call.reduction.scale = 0.5; }));
  EXPECT_NE(key, changed([](FlatCall& call) { ++call.tag; }));
}

// A rank may leave anything in the fields that its collective does not have.
TEST(CollectiveKeyTest, LeavesOutWhatTheCollectiveDoesNotHave) {
  for (const Collective collective : kFlat) {
    FlatCall a;
    a.collective = collective;
    FlatCall b = a;
    if (!HasRoot(collective)) b.root = 7;
    if (!Reduces(collective)) b.reduction = {ReduceOp::kMax, 3};
    b.reduction.scale = 2;  // only pre_mul_sum has one
    b.eager = true;
    EXPECT_EQ(KeyOf(a), KeyOf(b)) << NameOf(collective);
  }
}

TEST(CollectiveKeyTest, DescribesAnyBytes) {
  const uint32_t seed = 20261123;
  std::mt19937_64 random(seed);
  for (int i = 0; i < 20000; ++i) {
    CollectiveKey key;
    key.what = random();
    key.count = static_cast<int64_t>(random());
    key.scale = random();
    EXPECT_FALSE(Describe(key).empty()) << "seed " << seed << ", key " << i;
  }
  CollectiveKey key;
  key.what = 9 | 31 << 5;
  key.count = 10;
  EXPECT_EQ(Describe(key), "all_gather_v of 10 elements of type 31");
  key.what = 31;
  EXPECT_EQ(Describe(key), "collective 31 of 10 elements of type 0");
}

TEST(FlatCallTest, Describes) {
  FlatCall call;
  EXPECT_EQ(Describe(call), "barrier");
  call.collective = Collective::kAllReduce;
  call.type = DataType::kBF16;
  call.count = 4096;
  EXPECT_EQ(Describe(call), "all_reduce of 4096 bf16 by sum");
  call.reduction = {ReduceOp::kPreMulSum, 0.5};
  EXPECT_EQ(Describe(call), "all_reduce of 4096 bf16 by pre_mul_sum times 0.5");
  const FlatTensor more[2];
  call.also = more;
  EXPECT_EQ(Describe(call), "all_reduce of 4096 bf16 by pre_mul_sum times 0.5, and 2 more tensors");
  call.also = {};
  call.collective = Collective::kBroadcast;
  call.root = 3;
  EXPECT_EQ(Describe(call), "broadcast of 4096 bf16, root 3");
}

TEST(CollectiveCallTest, FlatCallHasTheDigestAsTag) {
  const Tensor tensor = Tensor::Zeros(DataType::kF32, {2, 3});
  CollectiveCall call = MakeCall(Collective::kAllGatherV, tensor, Tensor());
  call.dim = 1;
  const int64_t sizes[] = {3, 0, 4};
  call.sizes = sizes;
  EXPECT_EQ(Describe(call), "all_gather_v of f32 [2, *] along dimension 1, sizes [3, 0, 4]");
  const FlatCall flat = FlatCallOf(call, Collective::kAllGather, 8);
  EXPECT_EQ(flat.tag, Digest(call));
  EXPECT_EQ(Describe(flat), "all_gather of 8 f32");
  const int64_t other_sizes[] = {3, 1, 4};
  call.sizes = other_sizes;
  EXPECT_NE(flat.tag, Digest(call));
}

// A call from a daemon has the numbers of the request in fields that the collective does not use.
TEST(CollectiveCallTest, DigestsIgnoreRootsAndDimensionsThatACollectiveDoesNotUse) {
  const Tensor tensor = Tensor::Zeros(DataType::kF32, {2, 3});
  CollectiveCall call = MakeCall(Collective::kAllReduce, tensor, tensor);
  const uint32_t digest = Digest(call);
  call.root = 1;
  call.dim = 0;
  EXPECT_EQ(Digest(call), digest);
  CollectiveCall gather = MakeCall(Collective::kGather, tensor, tensor);
  gather.root = 0;
  gather.dim = 0;
  const uint32_t first = Digest(gather);
  gather.root = 1;
  EXPECT_NE(Digest(gather), first);
  gather.root = 0;
  gather.dim = 1;
  EXPECT_NE(Digest(gather), first);
}

TEST(CollectiveCallTest, ACallOfSeveralTensorsHasAllTheirShapes) {
  const std::vector<Tensor> tensors = {Tensor::Zeros(DataType::kBF16, {2, 3}),
                                       Tensor::Zeros(DataType::kBF16, {4})};
  CollectiveCall call = MakeCall(Collective::kAllReduceCoalesced, tensors[0], tensors[0]);
  call.inputs = tensors;
  call.outputs = tensors;
  EXPECT_EQ(Describe(call), "all_reduce_coalesced of bf16 [2, 3], [4] by sum");
  EXPECT_EQ(BytesOf(call, tensors[0], tensors[0]), 20);
  const KeptCall kept(call, tensors[0], tensors[0]);
  EXPECT_EQ(Digest(kept.View()), Digest(call));
  CollectiveCall shorter = call;
  shorter.inputs = absl::MakeConstSpan(tensors).subspan(0, 1);
  EXPECT_NE(Digest(shorter), Digest(call));
  const std::vector<Tensor> others = {tensors[0], Tensor::Zeros(DataType::kBF16, {2, 2})};
  CollectiveCall other = call;
  other.inputs = others;
  EXPECT_NE(Digest(other), Digest(call));
}

TEST(KeptCallTest, KeepsWhatTheCallRefersTo) {
  KeptCall kept;
  uint32_t digest = 0;
  {
    const Tensor part = Tensor::Zeros(DataType::kF32, {2, 3});
    CollectiveCall call = MakeCall(Collective::kReduceScatterV, Tensor(), part);
    call.dim = 1;
    const std::vector<int64_t> sizes = {3, 0, 4};
    call.sizes = sizes;
    digest = Digest(call);
    kept = KeptCall(call, Tensor(), part);
  }
  EXPECT_EQ(Digest(kept.View()), digest);
  EXPECT_EQ(Describe(kept.View()),
            "reduce_scatter_v of f32 [2, *] along dimension 1 by sum, sizes [3, 0, 4]");
}

TEST(KeptCallTest, KeepsWhatARankSendsAndWhatItReceives) {
  const Tensor tensor = Tensor::Zeros(DataType::kF32, {3});
  CollectiveCall call = MakeCall(Collective::kAllToAllV, tensor, tensor);
  const std::vector<int64_t> sends = {1, 2}, receives = {3, 0};
  call.sizes = sends;
  call.output_sizes = receives;
  const KeptCall kept(call, tensor, tensor);
  EXPECT_EQ(kept.View().sizes, absl::MakeConstSpan(sends));
  EXPECT_EQ(kept.View().output_sizes, absl::MakeConstSpan(receives));
}

}  // namespace
}  // namespace cohort
