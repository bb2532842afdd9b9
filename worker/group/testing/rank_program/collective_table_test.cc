// The table on a group of one rank, and on memory that changes between write and read.
#include "worker/group/testing/rank_program/collective_table.h"

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/communicator/single/single_communicator.h"

namespace cohort::testing {
namespace {

using ::testing::HasSubstr;
using worker::SingleCommunicator;

constexpr uint32_t kSeed = 5;

bool IsReduction(DataType type, ReduceOp op) { return CheckReducible(type, op).ok(); }

// A backend of the host on which all bytes that are read pass through `change`.
class ChangedBackend final : public Backend {
 public:
  explicit ChangedBackend(std::function<void(std::string&)> change) : change_(std::move(change)) {}

  absl::StatusOr<Formed> Form(client::ProcessGroup& group,
                              std::unique_ptr<worker::Communicator> host,
                              absl::Duration timeout) override {
    return backend_->Form(group, std::move(host), timeout);
  }
  absl::Status RunRecorded(worker::Communicator& communicator, int calls,
                           absl::FunctionRef<absl::Status(worker::Communicator&)> body, int times,
                           Instant deadline) override {
    return backend_->RunRecorded(communicator, calls, body, times, deadline);
  }
  bool Reduces(DataType type, ReduceOp op, int ranks) const override {
    return backend_->Reduces(type, op, ranks);
  }
  absl::StatusOr<char*> Allocate(size_t bytes) override { return backend_->Allocate(bytes); }
  absl::Status Write(absl::string_view bytes, char* to, Instant deadline) override {
    return backend_->Write(bytes, to, deadline);
  }
  absl::StatusOr<std::string> Read(const char* from, size_t bytes, Instant deadline) override {
    absl::StatusOr<std::string> read = backend_->Read(from, bytes, deadline);
    if (read.ok()) change_(*read);
    return read;
  }

 private:
  const std::function<void(std::string&)> change_;
  const std::unique_ptr<Backend> backend_ = MakeHostBackend();
};

TEST(CollectiveTableTest, HasEveryCollectiveTypeReductionAndSizeOnce) {
  const std::vector<Cell> table = MakeTable(kSeed, 3, IsReduction);
  std::set<std::tuple<bool, Collective, DataType, ReduceOp, int64_t>> told;
  std::set<std::pair<Collective, int>> roots;
  std::set<std::pair<Collective, bool>> kinds_in_place;
  for (size_t i = 0; i < table.size(); ++i) {
    const Cell& cell = table[i];
    const FlatCall& operation = cell.operation;
    EXPECT_EQ(cell.number, i);
    EXPECT_TRUE(told.insert({cell.exchanges, operation.collective, operation.type,
                             operation.reduction.op, operation.count})
                    .second)
        << Describe(cell);
    roots.insert({operation.collective, operation.root});
    kinds_in_place.insert({operation.collective, cell.in_place});
  }
  EXPECT_GT(table.size(), 2000u);
  EXPECT_EQ(roots.size(), 9u * 3) << "some collective never has some root";
  EXPECT_EQ(kinds_in_place.size(), 9u * 2 - 2) << "all_to_all and exchange are never in place";
}

TEST(CollectiveTableTest, IsTheSameForAllRanks) {
  const std::vector<Cell> one = MakeTable(kSeed, 2, IsReduction);
  const std::vector<Cell> other = MakeTable(kSeed, 2, IsReduction);
  ASSERT_EQ(one.size(), other.size());
  for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(Describe(one[i]), Describe(other[i]));
  EXPECT_NE(Describe(one[0]), Describe(MakeTable(kSeed + 1, 2, IsReduction)[0]));
}

TEST(CollectiveTableTest, AGroupOfOneIsRight) {
  const std::unique_ptr<Backend> backend = MakeHostBackend();
  SingleCommunicator alone;
  TableRun run(*backend, alone, kSeed, absl::Seconds(60));
  for (const Cell& cell : MakeTable(kSeed, 1, IsReduction)) {
    ASSERT_EQ(run.Run(cell), absl::OkStatus());
  }
}

TEST(CollectiveTableTest, AByteBesideTheOutputIsSeen) {
  for (const bool in_front : {false, true}) {
    ChangedBackend backend([in_front](std::string& read) {
      char& byte = in_front ? read.front() : read.back();
      byte = static_cast<char>(byte + 1);
    });
    SingleCommunicator alone;
    TableRun run(backend, alone, kSeed, absl::Seconds(60));
    std::vector<Cell> table = MakeTable(kSeed, 1, IsReduction);
    table.resize(100);
    for (const Cell& cell : table) {
      const absl::Status status = run.Run(cell);
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << Describe(cell);
      EXPECT_THAT(std::string(status.message()), HasSubstr("that is not of the output"));
    }
  }
}

TEST(CollectiveTableTest, AWrongOutputIsSeenAndSaysWhereAndOfWhat) {
  // In a group of one rank this is the last byte of the output.
  ChangedBackend backend([](std::string& read) {
    char& byte = read[read.size() - 257];
    byte = static_cast<char>(byte ^ 0x41);
  });
  SingleCommunicator alone;
  TableRun run(backend, alone, kSeed, absl::Seconds(60));
  for (const Cell& cell : MakeTable(kSeed, 1, IsReduction)) {
    const FlatCall& operation = cell.operation;
    // Any byte but 0 is a true bool.
    if (operation.count == 0 || operation.type == DataType::kBool) continue;
    const absl::Status status = run.Run(cell);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << Describe(cell);
    EXPECT_THAT(std::string(status.message()), HasSubstr(Describe(cell)));
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("element " + std::to_string(operation.count - 1)));
  }
}

}  // namespace
}  // namespace cohort::testing
