// One file, though long: each collective's call stands beside the model's answer.
#include "worker/group/testing/random_collective.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/random_tensor.h"
#include "gtest/gtest.h"
#include "worker/group/testing/tensor_model.h"
#include "worker/group/testing/typed_collectives.h"

namespace cohort::worker {
namespace {

using Random = std::mt19937;

int64_t Below(Random& random, int64_t bound) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
}

// --- Random choices.

// The largest size of a rank's part.
int64_t Largest(const Shape& shape) { return ElementCount(shape) >= 8000 ? 100 : 6; }

std::vector<int64_t> RandomSizes(int ranks, int64_t bound, Random& random) {
  std::vector<int64_t> sizes(static_cast<size_t>(ranks));
  const bool equal = random() % 4 == 0;
  for (int64_t& size : sizes) {
    size = random() % 4 == 0 ? 0 : Below(random, bound + 1);
    if (equal) size = sizes[0];
  }
  return sizes;
}

// --- A round: the inputs, the expected outputs, and the call.

class Round {
 public:
  Round(CollectiveWorld& world, Random& random) : world_(world), random_(random) {}

  void Go() {
    const DataType any = kDataTypes[random_() % kDataTypes.size()];
    const DataType real = AnyReducible();
    switch (random_() % 13) {
      case 0:
        return AllReduce(real);
      case 1:
        return Reduce(real);
      case 2:
        return Broadcast(any);
      case 3:
        return Gather(any, false, false);
      case 4:
        return Gather(any, true, false);
      case 5:
        return ReduceScatter(real, false);
      case 6:
        return Scatter(any);
      case 7:
        return AllToAll(any, true);
      case 8:
        return Gather(any, false, true);
      case 9:
        return Gather(any, true, true);
      case 10:
        return ReduceScatter(real, true);
      case 11:
        return AllToAll(any, false);
      case 12:
        return AllReduceCoalesced(real);
    }
  }

 private:
  int size() const { return world_.size(); }
  int AnyRank() { return static_cast<int>(Below(random_, size())); }
  DataType AnyReducible() {
    while (true) {
      const DataType type = kDataTypes[random_() % kDataTypes.size()];
      for (const ReduceOp op : kReduceOps) {
        if (world_.Reduces(type, op)) return type;
      }
    }
  }
  Reduction RandomReduction(DataType type) {
    while (true) {
      const Reduction reduction = {kReduceOps[random_() % kReduceOps.size()], 0.5};
      if (world_.Reduces(type, reduction.op)) return reduction;
    }
  }
  bool InPlace() { return random_() % 4 == 0; }
  // Returns `dim`, counted from either end.
  int Written(int dim, const Shape& shape) {
    return random_() % 2 == 0 ? dim : dim - static_cast<int>(shape.size());
  }
  RandomTensor Make(DataType type, const Shape& shape) {
    return RandomTensor(type, shape, random_,
                        [&](DataType t, const Shape& s) { return world_.Allocate(t, s); });
  }
  RandomTensor Make(const TensorModel& model) {
    RandomTensor tensor = Make(model.type, model.shape);
    SetElements(tensor.tensor(), model.bytes);
    return tensor;
  }

  struct Sizes {
    bool ragged = false;
    std::vector<int64_t> by_rank;
    int64_t sum() const { return std::accumulate(by_rank.begin(), by_rank.end(), int64_t{0}); }
    int64_t before(int rank) const {
      return std::accumulate(by_rank.begin(), by_rank.begin() + rank, int64_t{0});
    }
    int64_t of(int rank) const { return by_rank[static_cast<size_t>(rank)]; }
  };
  Sizes MakeSizes(const Shape& shape, bool ragged) {
    if (ragged) return {true, RandomSizes(size(), Largest(shape), random_)};
    return {false, std::vector<int64_t>(static_cast<size_t>(size()), Below(random_, 6))};
  }

  using Function =
      std::function<absl::Status(TensorCollectives&, const Tensor& in, const Tensor& out)>;
  // By rank: the inputs, and the expected outputs, if a rank has one.
  void Run(const std::string& what, const std::vector<std::optional<TensorModel>>& inputs,
           const std::vector<std::optional<TensorModel>>& expected, const Function& function) {
    std::vector<std::optional<RandomTensor>> in;
    std::vector<std::optional<RandomTensor>> out;
    for (size_t rank = 0; rank < inputs.size(); ++rank) {
      in.emplace_back();
      out.emplace_back();
      if (inputs[rank].has_value()) in[rank] = Make(*inputs[rank]);
      if (expected[rank].has_value()) out[rank] = Make(expected[rank]->type, expected[rank]->shape);
    }
    const std::vector<absl::Status> statuses = world_.Run([&](TensorCollectives& collectives) {
      const auto rank = static_cast<size_t>(collectives.rank());
      const auto seen = [&](const std::optional<RandomTensor>& tensor) {
        return world_.Seen(collectives.rank(), tensor.has_value() ? tensor->tensor() : Tensor());
      };
      return function(collectives, seen(in[rank]), seen(out[rank]));
    });
    ExpectOk(statuses, what);
    for (size_t rank = 0; rank < inputs.size(); ++rank) {
      const std::string where = absl::StrCat(what, ", rank ", rank);
      if (in[rank].has_value()) {
        ASSERT_TRUE(ElementsOf(in[rank]->tensor()) == inputs[rank]->bytes)
            << where << ": the input";
        ASSERT_FALSE(in[rank]->Strayed()) << where << ": beside the input";
      }
      if (!out[rank].has_value()) continue;
      ASSERT_TRUE(ElementsOf(out[rank]->tensor()) == expected[rank]->bytes)
          << where << ", as " << out[rank]->tensor().ToString() << " with strides "
          << FormatShape(out[rank]->tensor().strides());
      ASSERT_FALSE(out[rank]->Strayed()) << where << ": beside the output";
    }
  }
  // The same for calls in place: each rank has one tensor. `function` passes a view of it as input
  // or output.
  void RunInPlace(const std::string& what, const std::vector<TensorModel>& before,
                  const std::vector<TensorModel>& after,
                  const std::function<absl::Status(TensorCollectives&, const Tensor&)>& function) {
    std::vector<RandomTensor> tensors;
    for (const TensorModel& model : before) tensors.push_back(Make(model));
    ExpectOk(world_.Run([&](TensorCollectives& collectives) {
      const Tensor& tensor = tensors[static_cast<size_t>(collectives.rank())].tensor();
      return function(collectives, world_.Seen(collectives.rank(), tensor));
    }),
             what);
    for (size_t rank = 0; rank < tensors.size(); ++rank) {
      ASSERT_TRUE(ElementsOf(tensors[rank].tensor()) == after[rank].bytes)
          << what << " in place, rank " << rank;
      ASSERT_FALSE(tensors[rank].Strayed()) << what << " in place, rank " << rank;
    }
  }

  std::vector<TensorModel> Models(DataType type, const Shape& shape) {
    std::vector<TensorModel> models;
    for (int rank = 0; rank < size(); ++rank) models.push_back(RandomModel(type, shape, random_));
    return models;
  }
  static std::vector<std::optional<TensorModel>> All(const std::vector<TensorModel>& models) {
    return {models.begin(), models.end()};
  }
  std::vector<std::optional<TensorModel>> AllHave(const TensorModel& model) {
    return std::vector<std::optional<TensorModel>>(static_cast<size_t>(size()), model);
  }
  std::vector<std::optional<TensorModel>> OnlyAt(int root, const TensorModel& model) {
    std::vector<std::optional<TensorModel>> models(static_cast<size_t>(size()));
    models[static_cast<size_t>(root)] = model;
    return models;
  }

  void AllReduce(DataType type) {
    const std::vector<TensorModel> inputs = Models(type, RandomShape(random_, 0));
    const Reduction reduction = RandomReduction(type);
    const TensorModel result = Reduced(inputs, reduction);
    const std::string what = absl::StrCat("all_reduce by ", NameOf(reduction.op));
    if (InPlace()) {
      return RunInPlace(what, inputs, std::vector<TensorModel>(inputs.size(), result),
                        [&](TensorCollectives& collectives, const Tensor& tensor) {
                          return worker::AllReduce(collectives, tensor, tensor, reduction, Soon());
                        });
    }
    Run(what, All(inputs), AllHave(result),
        [&](TensorCollectives& collectives, const Tensor& in, const Tensor& out) {
          return worker::AllReduce(collectives, in, out, reduction, Soon());
        });
  }

  // Each output has the bits of an all_reduce of its tensor alone.
  void AllReduceCoalesced(DataType type) {
    struct Item {
      std::vector<RandomTensor> in;  // by rank
      std::vector<RandomTensor> out;
      bool in_place = false;
      std::string sum;
    };
    const Reduction reduction = RandomReduction(type);
    std::vector<Item> items(static_cast<size_t>(1 + Below(random_, 9)));
    for (Item& item : items) {
      item.in_place = InPlace();
      const std::vector<TensorModel> inputs = Models(type, RandomShape(random_, 0));
      item.sum = Reduced(inputs, reduction).bytes;
      for (const TensorModel& input : inputs) {
        item.in.push_back(Make(input));
        item.out.push_back(Make(type, input.shape));
      }
    }
    const std::string what = absl::StrCat("all_reduce_coalesced by ", NameOf(reduction.op));
    ExpectOk(world_.Run([&](TensorCollectives& collectives) {
      const auto rank = static_cast<size_t>(collectives.rank());
      std::vector<Tensor> inputs;
      std::vector<Tensor> outputs;
      for (const Item& item : items) {
        inputs.push_back(world_.Seen(collectives.rank(), item.in[rank].tensor()));
        const RandomTensor& to = item.in_place ? item.in[rank] : item.out[rank];
        outputs.push_back(world_.Seen(collectives.rank(), to.tensor()));
      }
      return worker::AllReduceCoalesced(collectives, inputs, outputs, reduction, Soon());
    }),
             what);
    for (size_t i = 0; i < items.size(); ++i) {
      for (size_t rank = 0; rank < items[i].in.size(); ++rank) {
        const RandomTensor& to = items[i].in_place ? items[i].in[rank] : items[i].out[rank];
        ASSERT_TRUE(ElementsOf(to.tensor()) == items[i].sum)
            << what << ", rank " << rank << ", tensor " << i << " of " << items.size() << ", "
            << to.tensor().ToString();
        ASSERT_FALSE(items[i].in[rank].Strayed()) << what << ", rank " << rank;
        ASSERT_FALSE(items[i].out[rank].Strayed()) << what << ", rank " << rank;
      }
    }
  }

  void Reduce(DataType type) {
    const std::vector<TensorModel> inputs = Models(type, RandomShape(random_, 0));
    const Reduction reduction = RandomReduction(type);
    const int root = AnyRank();
    Run(absl::StrCat("reduce by ", NameOf(reduction.op)), All(inputs),
        OnlyAt(root, Reduced(inputs, reduction)),
        [&](TensorCollectives& collectives, const Tensor& in, const Tensor& out) {
          return worker::Reduce(collectives, in, out, reduction, root, Soon());
        });
  }

  void Broadcast(DataType type) {
    const std::vector<TensorModel> before = Models(type, RandomShape(random_, 0));
    const int root = AnyRank();
    const std::vector<TensorModel> after(before.size(), before[static_cast<size_t>(root)]);
    RunInPlace("broadcast", before, after,
               [&](TensorCollectives& collectives, const Tensor& tensor) {
                 return worker::Broadcast(collectives, tensor, root, Soon());
               });
  }

  // all_gather, gather, and their ragged forms.
  void Gather(DataType type, bool to_root, bool ragged) {
    const Shape shape = RandomShape(random_, 1);
    const Sizes sizes = MakeSizes(shape, ragged);
    const int axis = static_cast<int>(Below(random_, static_cast<int64_t>(shape.size())));
    const int dim = Written(axis, shape);
    const int root = AnyRank();
    std::vector<TensorModel> parts;
    for (int rank = 0; rank < size(); ++rank) {
      parts.push_back(RandomModel(type, With(shape, axis, sizes.of(rank)), random_));
    }
    const TensorModel whole = Join(parts, axis);
    const auto call = [&](TensorCollectives& collectives, const Tensor& in, const Tensor& out) {
      if (to_root) {
        return sizes.ragged
                   ? worker::GatherV(collectives, in, out, dim, sizes.by_rank, root, Soon())
                   : worker::Gather(collectives, in, out, dim, root, Soon());
      }
      return sizes.ragged ? worker::AllGatherV(collectives, in, out, dim, sizes.by_rank, Soon())
                          : worker::AllGather(collectives, in, out, dim, Soon());
    };
    const std::string what = absl::StrCat(
        to_root ? "gather" : "all_gather", " of ", FormatShape(whole.shape), " along ", dim,
        ", sizes ", FormatShape(Shape(sizes.by_rank.begin(), sizes.by_rank.end())));
    if (!InPlace()) {
      return Run(what, All(parts), to_root ? OnlyAt(root, whole) : AllHave(whole), call);
    }
    // Each rank's tensor has the whole shape; only its own part has the right numbers.
    std::vector<TensorModel> before;
    std::vector<TensorModel> after;
    for (int rank = 0; rank < size(); ++rank) {
      std::vector<TensorModel> pieces;
      for (int other = 0; other < size(); ++other) {
        const TensorModel& part = parts[static_cast<size_t>(other)];
        pieces.push_back(other == rank ? part : RandomModel(type, part.shape, random_));
      }
      before.push_back(Join(pieces, axis));
      after.push_back(!to_root || rank == root ? whole : before.back());
    }
    RunInPlace(what, before, after, [&](TensorCollectives& collectives, const Tensor& tensor) {
      const int rank = collectives.rank();
      return call(collectives, *tensor.Narrow(axis, sizes.before(rank), sizes.of(rank)), tensor);
    });
  }

  void ReduceScatter(DataType type, bool ragged) {
    const Shape shape = RandomShape(random_, 1);
    const Sizes sizes = MakeSizes(shape, ragged);
    const int axis = static_cast<int>(Below(random_, static_cast<int64_t>(shape.size())));
    const int dim = Written(axis, shape);
    const std::vector<TensorModel> inputs = Models(type, With(shape, axis, sizes.sum()));
    const Reduction reduction = RandomReduction(type);
    const TensorModel sum = Reduced(inputs, reduction);
    std::vector<TensorModel> results;
    for (int rank = 0; rank < size(); ++rank) {
      results.push_back(Slice(sum, axis, sizes.before(rank), sizes.of(rank)));
    }
    const auto call = [&](TensorCollectives& collectives, const Tensor& in, const Tensor& out) {
      return sizes.ragged ? worker::ReduceScatterV(collectives, in, out, dim, sizes.by_rank,
                                                   reduction, Soon())
                          : worker::ReduceScatter(collectives, in, out, dim, reduction, Soon());
    };
    const std::string what =
        absl::StrCat("reduce_scatter of ", FormatShape(sum.shape), " along ", dim, ", sizes ",
                     FormatShape(Shape(sizes.by_rank.begin(), sizes.by_rank.end())));
    if (!InPlace()) return Run(what, All(inputs), All(results), call);
    std::vector<TensorModel> after;
    for (int rank = 0; rank < size(); ++rank) {
      const auto at = static_cast<size_t>(rank);
      const int64_t end = sizes.before(rank) + sizes.of(rank);
      after.push_back(Join({Slice(inputs[at], axis, 0, sizes.before(rank)), results[at],
                            Slice(inputs[at], axis, end, sizes.sum() - end)},
                           axis));
    }
    RunInPlace(what, inputs, after, [&](TensorCollectives& collectives, const Tensor& tensor) {
      const int rank = collectives.rank();
      return call(collectives, tensor, *tensor.Narrow(axis, sizes.before(rank), sizes.of(rank)));
    });
  }

  void Scatter(DataType type) {
    const Shape shape = RandomShape(random_, 1);
    const int axis = static_cast<int>(Below(random_, static_cast<int64_t>(shape.size())));
    const int64_t part = Below(random_, 5);
    const int root = AnyRank();
    const TensorModel whole = RandomModel(type, With(shape, axis, part * size()), random_);
    std::vector<TensorModel> results;
    for (int rank = 0; rank < size(); ++rank) {
      results.push_back(Slice(whole, axis, rank * part, part));
    }
    const int dim = Written(axis, shape);
    Run(absl::StrCat("scatter of ", FormatShape(whole.shape), " along ", dim), OnlyAt(root, whole),
        All(results), [&](TensorCollectives& collectives, const Tensor& in, const Tensor& out) {
          return worker::Scatter(collectives, in, out, dim, root, Soon());
        });
  }

  void AllToAll(DataType type, bool equal) {
    const Shape shape = RandomShape(random_, 1);
    const int64_t bound = Largest(shape);
    // By sender and receiver.
    std::vector<std::vector<int64_t>> sizes;
    const int64_t all = Below(random_, 6);
    const bool secretly_equal = random_() % 4 == 0;
    for (int rank = 0; rank < size(); ++rank) {
      sizes.push_back(RandomSizes(size(), bound, random_));
      if (equal || secretly_equal) std::fill(sizes.back().begin(), sizes.back().end(), all);
    }
    std::vector<std::vector<TensorModel>> parts(sizes.size());
    std::vector<TensorModel> inputs;
    for (size_t from = 0; from < sizes.size(); ++from) {
      for (const int64_t size : sizes[from]) {
        parts[from].push_back(RandomModel(type, With(shape, 0, size), random_));
      }
      inputs.push_back(Join(parts[from], 0));
    }
    std::vector<TensorModel> results;
    std::vector<std::vector<int64_t>> arriving(sizes.size());
    for (size_t to = 0; to < sizes.size(); ++to) {
      std::vector<TensorModel> received;
      for (size_t from = 0; from < sizes.size(); ++from) {
        received.push_back(parts[from][to]);
        arriving[to].push_back(sizes[from][to]);
      }
      results.push_back(Join(received, 0));
    }
    Run("all_to_all", All(inputs), All(results),
        [&](TensorCollectives& collectives, const Tensor& in, const Tensor& out) {
          const auto rank = static_cast<size_t>(collectives.rank());
          return equal
                     ? worker::AllToAll(collectives, in, out, Soon())
                     : worker::AllToAllV(collectives, in, sizes[rank], out, arriving[rank], Soon());
        });
  }

  CollectiveWorld& world_;
  Random& random_;
};

}  // namespace

void RunRandomCollective(CollectiveWorld& world, std::mt19937& random) {
  Round(world, random).Go();
}

Shape RandomShape(Random& random, int least_dims) {
  if (random() % 12 == 0) return {Below(random, 80) + 40, Below(random, 400) + 200};
  Shape shape;
  for (int64_t dims = least_dims + Below(random, 5 - least_dims); dims > 0; --dims) {
    const bool empty = random() % 12 == 0;
    shape.push_back(empty ? 0 : 1 + Below(random, 7));
  }
  return shape;
}

}  // namespace cohort::worker
