// Collectives that reduce.
#include "absl/strings/str_cat.h"
#include "worker/communicator/testing/conformance.h"

namespace cohort::worker {
namespace {

constexpr double kScale = 0.75;

}  // namespace

TEST_P(ConformanceTest, AllReduce) {
  ForEachWorld([](World& world) {
    const auto check = [&](DataType type, const Reduction& reduction, int64_t count) {
      const std::string what =
          absl::StrCat("all_reduce of ", count, " ", NameOf(type), " by ", NameOf(reduction.op));
      const std::vector<Bytes> inputs = Inputs(world.size(), count, type);
      const Bytes expected = Reduced(inputs, 0, count, type, reduction);
      std::vector<Bytes> apart(inputs.size(), Bytes(expected.size()));
      std::vector<Bytes> in_place = inputs;
      ExpectOk(world.Run([&](Communicator& group) {
        const size_t rank = static_cast<size_t>(group.rank());
        absl::Status status = group.AllReduce(inputs[rank].data(), apart[rank].data(), count, type,
                                              reduction, Soon());
        if (!status.ok()) return status;
        return group.AllReduce(in_place[rank].data(), in_place[rank].data(), count, type, reduction,
                               Soon());
      }),
               what);
      for (size_t rank = 0; rank < inputs.size(); ++rank) {
        ASSERT_TRUE(Matches(apart[rank], expected, type)) << what << ", rank " << rank;
        ASSERT_TRUE(Matches(in_place[rank], expected, type)) << what << ", in place, rank " << rank;
      }
    };
    for (const DataType type : kDataTypes) {
      for (const ReduceOp op : kReduceOps) {
        if (!Has(type, op, world.size())) continue;
        for (const int64_t count : SmallCounts()) check(type, Reduction{op, kScale}, count);
      }
    }
    for (const DataType type : {DataType::kF32, DataType::kBF16, DataType::kU8}) {
      for (const int64_t count : Counts(type)) check(type, Reduction{ReduceOp::kSum}, count);
    }
    if (Has(DataType::kF32, ReduceOp::kPreMulSum, world.size())) {
      check(DataType::kF32, {ReduceOp::kPreMulSum, kScale}, Counts(DataType::kF32).back());
    }
  });
}

TEST_P(ConformanceTest, Reduce) {
  ForEachWorld([](World& world) {
    for (const DataType type : {DataType::kF32, DataType::kBF16, DataType::kI64, DataType::kBool}) {
      if (!Has(type, ReduceOp::kMax, world.size())) continue;
      for (const int64_t count : Counts(type)) {
        const int root = static_cast<int>(count % world.size());
        const std::string what = absl::StrCat("reduce of ", count, " ", NameOf(type));
        const std::vector<Bytes> inputs = Inputs(world.size(), count, type);
        const Bytes expected = Reduced(inputs, 0, count, type, {ReduceOp::kMax});
        Bytes apart(expected.size());
        std::vector<Bytes> in_place = inputs;
        ExpectOk(world.Run([&](Communicator& group) {
          const size_t rank = static_cast<size_t>(group.rank());
          const bool is_root = group.rank() == root;
          absl::Status status = group.Reduce(inputs[rank].data(), is_root ? apart.data() : nullptr,
                                             count, type, {ReduceOp::kMax}, root, Soon());
          if (!status.ok()) return status;
          return group.Reduce(in_place[rank].data(), in_place[rank].data(), count, type,
                              {ReduceOp::kMax}, root, Soon());
        }),
                 what);
        ASSERT_TRUE(Matches(apart, expected, type)) << what;
        ASSERT_TRUE(Matches(in_place[static_cast<size_t>(root)], expected, type))
            << what << ", in place";
      }
    }
  });
}

TEST_P(ConformanceTest, ReduceScatter) {
  ForEachWorld([](World& world) {
    const auto check = [&](DataType type, const Reduction& reduction, int64_t count) {
      const std::string what = absl::StrCat("reduce_scatter of ", count, " ", NameOf(type), " by ",
                                            NameOf(reduction.op));
      const std::vector<Bytes> inputs = Inputs(world.size(), count * world.size(), type);
      std::vector<Bytes> apart(inputs.size(), Bytes(static_cast<size_t>(count * SizeOf(type))));
      std::vector<Bytes> in_place = inputs;
      ExpectOk(world.Run([&](Communicator& group) {
        const size_t rank = static_cast<size_t>(group.rank());
        absl::Status status = group.ReduceScatter(inputs[rank].data(), apart[rank].data(), count,
                                                  type, reduction, Soon());
        if (!status.ok()) return status;
        char* const own = in_place[rank].data() + group.rank() * count * SizeOf(type);
        return group.ReduceScatter(in_place[rank].data(), own, count, type, reduction, Soon());
      }),
               what);
      for (int rank = 0; rank < world.size(); ++rank) {
        const size_t index = static_cast<size_t>(rank);
        const Bytes expected = Reduced(inputs, rank * count, count, type, reduction);
        ASSERT_TRUE(Matches(apart[index], expected, type)) << what << ", rank " << rank;
        ASSERT_TRUE(Matches(Part(in_place[index], rank * count, count, type), expected, type))
            << what << ", in place, rank " << rank;
      }
    };
    for (const DataType type : kDataTypes) {
      for (const ReduceOp op : kReduceOps) {
        if (!Has(type, op, world.size())) continue;
        for (const int64_t count : SmallCounts()) check(type, Reduction{op, kScale}, count);
      }
    }
    for (const DataType type : {DataType::kF32, DataType::kBF16}) {
      for (const int64_t count : Counts(type)) check(type, Reduction{ReduceOp::kSum}, count);
    }
    if (Has(DataType::kF32, ReduceOp::kPreMulSum, world.size())) {
      check(DataType::kF32, {ReduceOp::kPreMulSum, kScale}, Counts(DataType::kF32).back());
    }
  });
}

}  // namespace cohort::worker
