#include "worker/daemon/tensors/tensor_table.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

TensorMemory Bytes(int64_t bytes) {
  auto owner = std::make_shared<std::string>(static_cast<size_t>(bytes), '\0');
  return {&(*owner)[0], bytes, owner};
}

TEST(TensorTableTest, CountsItsTensors) {
  TensorTable table;
  const uint64_t first = table.Add(Bytes(100)).value();
  const uint64_t second = table.Add(Bytes(28)).value();
  EXPECT_NE(first, second);
  EXPECT_EQ(table.count(), 2);
  EXPECT_EQ(table.bytes(), 128);
  EXPECT_TRUE(table.Free(first).ok());
  EXPECT_EQ(table.count(), 1);
  EXPECT_EQ(table.bytes(), 28);
  EXPECT_EQ(table.Find(second)->bytes, 28);
}

TEST(TensorTableTest, AFreedTensorIsUnknownAndLivesWhileInUse) {
  TensorTable table;
  TensorMemory memory = Bytes(8);
  const std::weak_ptr<const void> alive = memory.owner;
  const uint64_t tensor = table.Add(std::move(memory)).value();
  std::optional<TensorMemory> used = table.Find(tensor).value();
  EXPECT_TRUE(table.Free(tensor).ok());
  EXPECT_EQ(table.Free(tensor).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(table.Find(tensor).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(alive.expired());
  used.reset();
  EXPECT_TRUE(alive.expired());
  // Numbers are never reused.
  EXPECT_NE(table.Add(Bytes(8)).value(), tensor);
}

TEST(TensorTableTest, NothingIsAddedOnceItIsClosed) {
  TensorTable table;
  ASSERT_TRUE(table.Add(Bytes(8)).ok());
  table.Close();
  EXPECT_EQ(table.count(), 0);
  EXPECT_EQ(table.bytes(), 0);
  EXPECT_EQ(table.Add(Bytes(8)).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace cohort::worker
