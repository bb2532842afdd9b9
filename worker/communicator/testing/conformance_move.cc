// Collectives that move elements as they are.
#include "absl/strings/str_cat.h"
#include "worker/communicator/testing/conformance.h"

namespace cohort::worker {
namespace {

// Every type with a few elements; one with many.
void ForEachType(const std::function<void(DataType, int64_t)>& body,
                 const std::vector<int64_t>& few, const std::vector<int64_t>& many) {
  for (const DataType type : kDataTypes) {
    for (const int64_t count : few) body(type, count);
  }
  for (const int64_t count : many) body(DataType::kU16, count);
}

Bytes Concatenated(const std::vector<Bytes>& parts) {
  Bytes all;
  for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace

TEST_P(ConformanceTest, Broadcast) {
  ForEachWorld([](World& world) {
    ForEachType(
        [&](DataType type, int64_t count) {
          const int root = static_cast<int>(count % world.size());
          const std::string what = absl::StrCat("broadcast of ", count, " ", NameOf(type));
          const Bytes expected = Input(root, count, type);
          std::vector<Bytes> apart(static_cast<size_t>(world.size()), Bytes(expected.size()));
          std::vector<Bytes> in_place = Inputs(world.size(), count, type);
          ExpectOk(world.Run([&](Communicator& group) {
            const size_t rank = static_cast<size_t>(group.rank());
            absl::Status status = group.Broadcast(group.rank() == root ? expected.data() : nullptr,
                                                  apart[rank].data(), count, type, root, Soon());
            if (!status.ok()) return status;
            return group.Broadcast(in_place[rank].data(), in_place[rank].data(), count, type, root,
                                   Soon());
          }),
                   what);
          for (size_t rank = 0; rank < apart.size(); ++rank) {
            ASSERT_TRUE(apart[rank] == expected) << what << ", rank " << rank;
            ASSERT_TRUE(in_place[rank] == expected) << what << ", in place, rank " << rank;
          }
        },
        SmallCounts(), Counts(DataType::kU16));
  });
}

TEST_P(ConformanceTest, AllGather) {
  ForEachWorld([](World& world) {
    ForEachType(
        [&](DataType type, int64_t count) {
          const std::string what = absl::StrCat("all_gather of ", count, " ", NameOf(type));
          const std::vector<Bytes> inputs = Inputs(world.size(), count, type);
          const Bytes expected = Concatenated(inputs);
          std::vector<Bytes> apart(inputs.size(), Bytes(expected.size()));
          std::vector<Bytes> in_place(inputs.size(), Bytes(expected.size()));
          ExpectOk(world.Run([&](Communicator& group) {
            const size_t rank = static_cast<size_t>(group.rank());
            absl::Status status =
                group.AllGather(inputs[rank].data(), apart[rank].data(), count, type, Soon());
            if (!status.ok()) return status;
            char* const own = in_place[rank].data() + group.rank() * count * SizeOf(type);
            std::copy(inputs[rank].begin(), inputs[rank].end(), own);
            return group.AllGather(own, in_place[rank].data(), count, type, Soon());
          }),
                   what);
          for (size_t rank = 0; rank < inputs.size(); ++rank) {
            ASSERT_TRUE(apart[rank] == expected) << what << ", rank " << rank;
            ASSERT_TRUE(in_place[rank] == expected) << what << ", in place, rank " << rank;
          }
        },
        SmallCounts(), Counts(DataType::kU16));
  });
}

TEST_P(ConformanceTest, AllToAll) {
  ForEachWorld([](World& world) {
    ForEachType(
        [&](DataType type, int64_t count) {
          const std::string what = absl::StrCat("all_to_all of ", count, " ", NameOf(type));
          const std::vector<Bytes> inputs = Inputs(world.size(), count * world.size(), type);
          std::vector<Bytes> outputs(inputs.size(), Bytes(inputs[0].size()));
          ExpectOk(world.Run([&](Communicator& group) {
            const size_t rank = static_cast<size_t>(group.rank());
            return group.AllToAll(inputs[rank].data(), outputs[rank].data(), count, type, Soon());
          }),
                   what);
          for (int rank = 0; rank < world.size(); ++rank) {
            std::vector<Bytes> parts;
            for (const Bytes& input : inputs) {
              parts.push_back(Part(input, rank * count, count, type));
            }
            ASSERT_TRUE(outputs[static_cast<size_t>(rank)] == Concatenated(parts))
                << what << ", rank " << rank;
          }
        },
        SmallCounts(), Counts(DataType::kU16));
  });
}

TEST_P(ConformanceTest, Gather) {
  ForEachWorld([](World& world) {
    ForEachType(
        [&](DataType type, int64_t count) {
          const int root = static_cast<int>((count + 1) % world.size());
          const std::string what = absl::StrCat("gather of ", count, " ", NameOf(type));
          const std::vector<Bytes> inputs = Inputs(world.size(), count, type);
          const Bytes expected = Concatenated(inputs);
          Bytes apart(expected.size());
          Bytes in_place(expected.size());
          ExpectOk(world.Run([&](Communicator& group) {
            const size_t rank = static_cast<size_t>(group.rank());
            const bool is_root = group.rank() == root;
            absl::Status status = group.Gather(
                inputs[rank].data(), is_root ? apart.data() : nullptr, count, type, root, Soon());
            if (!status.ok()) return status;
            if (!is_root) {
              return group.Gather(inputs[rank].data(), nullptr, count, type, root, Soon());
            }
            char* const own = in_place.data() + root * count * SizeOf(type);
            std::copy(inputs[rank].begin(), inputs[rank].end(), own);
            return group.Gather(own, in_place.data(), count, type, root, Soon());
          }),
                   what);
          ASSERT_TRUE(apart == expected) << what;
          ASSERT_TRUE(in_place == expected) << what << ", in place";
        },
        SmallCounts(), Counts(DataType::kU16));
  });
}

TEST_P(ConformanceTest, Scatter) {
  ForEachWorld([](World& world) {
    ForEachType(
        [&](DataType type, int64_t count) {
          const int root = static_cast<int>((count + 1) % world.size());
          const std::string what = absl::StrCat("scatter of ", count, " ", NameOf(type));
          Bytes input = Input(root, count * world.size(), type);
          const Bytes before = input;
          std::vector<Bytes> apart(static_cast<size_t>(world.size()),
                                   Bytes(static_cast<size_t>(count * SizeOf(type))));
          std::vector<Bytes> again = apart;
          ExpectOk(world.Run([&](Communicator& group) {
            const size_t rank = static_cast<size_t>(group.rank());
            const bool is_root = group.rank() == root;
            absl::Status status = group.Scatter(is_root ? input.data() : nullptr,
                                                apart[rank].data(), count, type, root, Soon());
            if (!status.ok()) return status;
            char* const own = input.data() + root * count * SizeOf(type);
            return group.Scatter(is_root ? input.data() : nullptr,
                                 is_root ? own : again[rank].data(), count, type, root, Soon());
          }),
                   what);
          EXPECT_TRUE(input == before) << what;
          for (int rank = 0; rank < world.size(); ++rank) {
            const Bytes expected = Part(before, rank * count, count, type);
            ASSERT_TRUE(apart[static_cast<size_t>(rank)] == expected) << what << ", rank " << rank;
            if (rank == root) continue;
            ASSERT_TRUE(again[static_cast<size_t>(rank)] == expected) << what << ", rank " << rank;
          }
        },
        SmallCounts(), Counts(DataType::kU16));
  });
}

}  // namespace cohort::worker
