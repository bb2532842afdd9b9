#include "client/parallel/tensor_map/entries/packing.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

TensorEntry Host(int64_t bytes) { return {DataType::kU8, false, 1, {bytes}}; }
TensorEntry Gpu(int64_t bytes) { return {DataType::kU8, true, 1, {bytes}}; }

TEST(PackingTest, SmallOnesLieInTheFrontAndLargeOnesAlone) {
  const std::vector<TensorEntry> tensors = {Host(3), Host(0), Host(kSmallOnHost),
                                            Host(kSmallOnHost + 1), Host(1)};
  const Packing packing = Packing::Of(100, tensors);
  EXPECT_TRUE(packing.has_more());
  EXPECT_EQ(packing.gpu_bytes(), 0);
  // A head of 16 bytes and 100 of entries; then at 128, 192 and behind that.
  EXPECT_EQ(packing.front_bytes(), 192 + kSmallOnHost + 1);
  const std::vector<bool> packed = {true, false, true, false, true};
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(packing.is_packed(i), packed[i]) << i;
    EXPECT_EQ(packing.is_alone(i), i == 3) << i;
  }
  const Tensor front = Tensor::Zeros(DataType::kU8, {packing.front_bytes()});
  const Tensor view = packing.ViewOf(2, tensors[2], front);
  EXPECT_EQ(static_cast<char*>(view.data()) - static_cast<char*>(front.data()), 192);
  EXPECT_EQ(view.owner(), front.owner());
}

TEST(PackingTest, TwoSmallOnesOnAGpuGoTogether) {
  EXPECT_EQ(Packing::Of(1, {Gpu(5), Gpu(0), Gpu(kSmallOnGpu + 1)}).gpu_bytes(), 0);
  const Packing packing = Packing::Of(1, {Gpu(5), Gpu(kSmallOnGpu + 1), Gpu(kSmallOnGpu)});
  EXPECT_EQ(packing.gpu_bytes(), 256 + kSmallOnGpu);
  EXPECT_EQ(packing.front_bytes(), 17);
  EXPECT_TRUE(packing.is_packed(0));
  EXPECT_TRUE(packing.is_alone(1));
}

TEST(PackingTest, SmallTensorsNeedNoSecondTransfer) {
  EXPECT_FALSE(Packing::Of(7, {}).has_more());
  EXPECT_FALSE(Packing::Of(7, {Host(8), Host(0), Gpu(0)}).has_more());
  EXPECT_TRUE(Packing::Of(7, {Gpu(8)}).has_more());
}

TEST(PackingTest, AFrontHasEntriesOrAnError) {
  const Tensor front = Tensor::Zeros(DataType::kU8, {100});
  WriteEntries("entries", front);
  EXPECT_EQ(*EntriesIn(front), "entries");

  std::string error = EncodeError(absl::ResourceExhaustedError("it is too large"));
  const Tensor told(error.data(), DataType::kU8, {static_cast<int64_t>(error.size())});
  EXPECT_EQ(EntriesIn(told).status(), absl::ResourceExhaustedError("it is too large"));
}

TEST(PackingTest, AnInvalidFrontIsRejected) {
  for (const int64_t size : {0, 1, 8, 15}) {
    EXPECT_FALSE(EntriesIn(Tensor::Zeros(DataType::kU8, {size})).ok()) << size;
  }
  const Tensor front = Tensor::Zeros(DataType::kU8, {100});
  WriteEntries("entries", front);
  // More bytes than the front has.
  static_cast<char*>(front.data())[15] = '\xFF';
  const absl::Status status = EntriesIn(front).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
}

}  // namespace
}  // namespace cohort::parallel
