#include "tests/parallel/testing/collective_rounds.h"

#include <numeric>
#include <utility>

#include "base/status_macros.h"
#include "tests/parallel/testing/placed_tensor.h"

namespace cohort::testing {
namespace {

namespace collectives = ::cohort::parallel;
using client::Sizes;
using worker::Join;
using worker::RandomModel;
using worker::Reduced;
using worker::Slice;
using worker::TensorModel;
using worker::With;
using Answer = absl::StatusOr<std::optional<Tensor>>;

constexpr Reduction kSum = {ReduceOp::kSum};

int64_t SumOf(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

// One for each of `sizes`.
std::vector<TensorModel> PartsOf(const TensorModel& whole, int dim, const Sizes& sizes) {
  std::vector<TensorModel> parts;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    parts.push_back(Slice(whole, dim, begin, size));
    begin += size;
  }
  return parts;
}

// Each rank its own.
void EachGets(CollectivePlan& plan, const std::vector<TensorModel>& parts) {
  plan.results.assign(parts.begin(), parts.end());
}

}  // namespace

DataType CollectivePlans::AnyType() { return kDataTypes[static_cast<size_t>(Below(17))]; }

DataType CollectivePlans::SummableType() {
  constexpr DataType kTypes[] = {DataType::kF32, DataType::kBF16, DataType::kI32, DataType::kF64,
                                 DataType::kU8};
  return kTypes[Below(5)];
}

Shape CollectivePlans::AnyShape(int least_dims) {
  Shape shape;
  const int dims = least_dims + Below(4);
  for (int i = 0; i < dims; ++i) shape.push_back(Below(8) == 0 ? 0 : 1 + Below(5));
  if (dims > 0 && Below(8) == 0) shape[static_cast<size_t>(Below(dims))] = 700;
  return shape;
}

Sizes CollectivePlans::AnySizes() {
  Sizes sizes(static_cast<size_t>(ranks_), 2);
  if (Below(4) == 0) return sizes;
  for (int64_t& size : sizes) size = Below(3) == 0 ? 0 : Below(6);
  return sizes;
}

CollectivePlans::Models CollectivePlans::InputsOf(DataType type, const Shape& shape) {
  Models models;
  for (int rank = 0; rank < ranks_; ++rank) models.push_back(RandomModel(type, shape, random_));
  return models;
}

CollectivePlans::Models CollectivePlans::Ragged(DataType type, const Shape& shape, int dim,
                                                const Sizes& sizes) {
  Models models;
  for (const int64_t size : sizes) {
    models.push_back(RandomModel(type, With(shape, dim, size), random_));
  }
  return models;
}

void CollectivePlans::AllGet(CollectivePlan& plan, const TensorModel& result) const {
  plan.results.assign(static_cast<size_t>(ranks_), result);
}

void CollectivePlans::RootGets(CollectivePlan& plan, int root, const TensorModel& result) const {
  plan.results.resize(static_cast<size_t>(ranks_));
  plan.results[static_cast<size_t>(root)] = result;
}

CollectivePlan CollectivePlans::Any() {
  using Make = CollectivePlan (CollectivePlans::*)();
  constexpr Make kMakes[] = {&CollectivePlans::AllReduce,  &CollectivePlans::Reduce,
                             &CollectivePlans::Broadcast,  &CollectivePlans::AllGather,
                             &CollectivePlans::Gather,     &CollectivePlans::AnyReduceScatter,
                             &CollectivePlans::Scatter,    &CollectivePlans::AllToAll,
                             &CollectivePlans::AllGatherV, &CollectivePlans::ReduceScatterV,
                             &CollectivePlans::GatherV,    &CollectivePlans::AllToAllV};
  return (this->*kMakes[Below(12)])();
}

CollectivePlan CollectivePlans::AllReduce() {
  CollectivePlan plan{"all_reduce", InputsOf(SummableType(), AnyShape(0))};
  const Reduction reduction{Perhaps() ? ReduceOp::kSum : ReduceOp::kMax};
  AllGet(plan, Reduced(plan.inputs, reduction));
  plan.call = [=](client::Group& group, const Tensor& input) {
    return collectives::AllReduce(group, input, {.reduction = reduction});
  };
  return plan;
}

CollectivePlan CollectivePlans::Reduce() {
  const int root = Below(ranks_);
  CollectivePlan plan{"reduce", InputsOf(SummableType(), AnyShape(0))};
  RootGets(plan, root, Reduced(plan.inputs, kSum));
  plan.call = [=](client::Group& group, const Tensor& input) {
    return collectives::Reduce(group, input, {.root = root});
  };
  return plan;
}

CollectivePlan CollectivePlans::Broadcast() {
  const int root = Below(ranks_);
  CollectivePlan plan{"broadcast", InputsOf(AnyType(), AnyShape(0))};
  AllGet(plan, plan.inputs[static_cast<size_t>(root)]);
  const bool by_spec = Perhaps();
  plan.call = [=](client::Group& group, const Tensor& input) -> Answer {
    const collectives::BroadcastOptions options = {.root = root};
    if (!by_spec || group.rank() == root) return collectives::Broadcast(group, input, options);
    return collectives::Broadcast(group, collectives::SpecOf(input), options);
  };
  return plan;
}

CollectivePlan CollectivePlans::AllGather() {
  const Shape shape = AnyShape(1);
  const int dims = static_cast<int>(shape.size());
  const int dim = Below(dims);
  CollectivePlan plan{"all_gather", InputsOf(AnyType(), shape)};
  AllGet(plan, Join(plan.inputs, dim));
  const int counted = Perhaps() ? dim : dim - dims;  // from the end
  plan.call = [=](client::Group& group, const Tensor& input) {
    return collectives::AllGather(group, input, {.dim = counted});
  };
  return plan;
}

CollectivePlan CollectivePlans::ReduceScatter(const Shape& shape, int dim) {
  CollectivePlan plan{"reduce_scatter", InputsOf(SummableType(), shape)};
  const int64_t extent = shape[static_cast<size_t>(dim)] / ranks_;
  const Sizes sizes(static_cast<size_t>(ranks_), extent);
  EachGets(plan, PartsOf(Reduced(plan.inputs, kSum), dim, sizes));
  const int counted = Perhaps() ? dim : dim - static_cast<int>(shape.size());
  plan.call = [=](client::Group& group, const Tensor& input) {
    return collectives::ReduceScatter(group, input, {.dim = counted});
  };
  return plan;
}

CollectivePlan CollectivePlans::AnyReduceScatter() {
  const Shape shape = AnyShape(1);
  const int dim = Below(static_cast<int>(shape.size()));
  return ReduceScatter(With(shape, dim, Below(4) * ranks_), dim);
}

CollectivePlan CollectivePlans::Gather() {
  const int root = Below(ranks_);
  const Shape shape = AnyShape(1);
  const int dim = Below(static_cast<int>(shape.size()));
  CollectivePlan plan{"gather", InputsOf(AnyType(), shape)};
  RootGets(plan, root, Join(plan.inputs, dim));
  plan.call = [=](client::Group& group, const Tensor& input) {
    return collectives::Gather(group, input, {.root = root, .dim = dim});
  };
  return plan;
}

CollectivePlan CollectivePlans::Scatter() {
  const int root = Below(ranks_);
  const Shape shape = AnyShape(1);
  const int dim = Below(static_cast<int>(shape.size()));
  const int64_t extent = Below(4);
  CollectivePlan plan{"scatter", InputsOf(AnyType(), With(shape, dim, extent * ranks_))};
  EachGets(plan, PartsOf(plan.inputs[static_cast<size_t>(root)], dim,
                         Sizes(static_cast<size_t>(ranks_), extent)));
  const bool by_parts = Perhaps();
  plan.call = [=](client::Group& group, const Tensor& input) -> Answer {
    const collectives::ScatterOptions options = {.root = root, .dim = dim};
    if (group.rank() != root) {
      collectives::TensorSpec part = collectives::SpecOf(input);
      part.shape = With(part.shape, dim, extent);
      return collectives::Scatter(group, part, options);
    }
    if (!by_parts) return collectives::Scatter(group, input, options);
    std::vector<Tensor> parts;
    for (int rank = 0; rank < group.size(); ++rank) {
      parts.push_back(input.Narrow(dim, rank * extent, extent).value());
    }
    return collectives::Scatter(group, absl::MakeConstSpan(parts), options);
  };
  return plan;
}

CollectivePlan CollectivePlans::AllToAll() {
  const int64_t extent = Below(4);
  CollectivePlan plan{"all_to_all", InputsOf(AnyType(), With(AnyShape(1), 0, extent * ranks_))};
  for (int rank = 0; rank < ranks_; ++rank) {
    Models parts;
    for (const TensorModel& input : plan.inputs) {
      parts.push_back(Slice(input, 0, rank * extent, extent));
    }
    plan.results.push_back(Join(parts, 0));
  }
  const bool ragged = Perhaps();
  plan.call = [=](client::Group& group, const Tensor& input) {
    return ragged ? collectives::AllToAllV(group, input) : collectives::AllToAll(group, input);
  };
  return plan;
}

CollectivePlan CollectivePlans::AllGatherV() {
  const Shape shape = AnyShape(1);
  const int dim = Below(static_cast<int>(shape.size()));
  const Sizes sizes = AnySizes();
  CollectivePlan plan{"all_gather_v", Ragged(AnyType(), shape, dim, sizes)};
  AllGet(plan, Join(plan.inputs, dim));
  collectives::AllGatherVOptions options = {.dim = dim};
  if (Perhaps()) options.sizes = sizes;
  const bool of_list = Perhaps();
  plan.call = [=](client::Group& group, const Tensor& input) -> Answer {
    if (!of_list) return collectives::AllGatherV(group, input, options);
    COHORT_ASSIGN_OR_RETURN(const std::vector<Tensor> results,
                            collectives::AllGatherV(group, {input, input}, options));
    EXPECT_TRUE(results[0].count() == 0 || results[0].data() != results[1].data());
    return results[1];
  };
  return plan;
}

CollectivePlan CollectivePlans::ReduceScatterV() {
  const Shape shape = AnyShape(1);
  const int dim = Below(static_cast<int>(shape.size()));
  const Sizes sizes = AnySizes();
  CollectivePlan plan{"reduce_scatter_v", InputsOf(SummableType(), With(shape, dim, SumOf(sizes)))};
  EachGets(plan, PartsOf(Reduced(plan.inputs, kSum), dim, sizes));
  plan.call = [=](client::Group& group, const Tensor& input) {
    return collectives::ReduceScatterV(group, input, {.dim = dim, .sizes = sizes});
  };
  return plan;
}

CollectivePlan CollectivePlans::GatherV() {
  const int root = Below(ranks_);
  const Shape shape = AnyShape(1);
  const int dim = Below(static_cast<int>(shape.size()));
  const Sizes sizes = AnySizes();
  CollectivePlan plan{"gather_v", Ragged(AnyType(), shape, dim, sizes)};
  RootGets(plan, root, Join(plan.inputs, dim));
  collectives::GatherVOptions options = {.root = root, .dim = dim};
  if (Perhaps()) options.sizes = sizes;
  plan.call = [=](client::Group& group, const Tensor& input) {
    return collectives::GatherV(group, input, options);
  };
  return plan;
}

CollectivePlan CollectivePlans::AllToAllV() {
  std::vector<Sizes> sent;  // by rank
  Sizes rows;
  for (int rank = 0; rank < ranks_; ++rank) {
    sent.push_back(AnySizes());
    rows.push_back(SumOf(sent.back()));
  }
  CollectivePlan plan{"all_to_all_v", Ragged(AnyType(), AnyShape(1), 0, rows)};
  std::vector<Models> received(sent.size());
  for (size_t from = 0; from < sent.size(); ++from) {
    const Models parts = PartsOf(plan.inputs[from], 0, sent[from]);
    for (size_t to = 0; to < sent.size(); ++to) received[to].push_back(parts[to]);
  }
  for (const Models& parts : received) plan.results.push_back(Join(parts, 0));
  plan.call = [=](client::Group& group, const Tensor& input) {
    const auto rank = static_cast<size_t>(group.rank());
    Sizes expected;
    for (const Sizes& sizes : sent) expected.push_back(sizes[rank]);
    return collectives::AllToAllV(group, input,
                                  {.input_sizes = sent[rank], .output_sizes = expected});
  };
  return plan;
}

void CollectivesTest::Run(const CollectivePlan& plan, uint32_t layouts) {
  ExpectOk(OnRanks([&](client::Group& group) -> absl::Status {
    const auto rank = static_cast<size_t>(group.rank());
    std::mt19937 random(layouts + static_cast<uint32_t>(rank));
    const Device device = GetParam() == Form::kDevice ? group.device() : Device::Host();
    const PlacedTensor input(group, device, plan.inputs[rank], random);
    COHORT_ASSIGN_OR_RETURN(const std::optional<Tensor> result, plan.call(group, input.tensor()));
    EXPECT_TRUE(input.Untouched()) << plan.what;
    const std::optional<TensorModel>& expected = plan.results[rank];
    EXPECT_EQ(result.has_value(), expected.has_value()) << plan.what;
    if (!result.has_value() || !expected.has_value()) return absl::OkStatus();
    EXPECT_EQ(result->shape(), expected->shape) << plan.what;
    EXPECT_EQ(result->type(), expected->type) << plan.what;
    EXPECT_EQ(result->device(), device) << plan.what;
    EXPECT_TRUE(result->contiguous()) << plan.what;
    EXPECT_TRUE(ElementsOf(Touchable(*result)) == expected->bytes) << plan.what;
    return absl::OkStatus();
  }));
}

}  // namespace cohort::testing
