// Memory that a rank lacks, and the tensors that travel together, with a rank alone.
// tests/parallel/moe_dispatch_test.cc has several ranks.
#include "client/parallel/moe/rows/exchange_rows.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/tensor/tensor.h"
#include "client/collective/testing/lone_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

using ::testing::ElementsAre;

// Its memory ends with an allocation.
class ScarceGroup : public client::LoneGroup {
 public:
  explicit ScarceGroup(int allocations) : left_(allocations) {}

  absl::StatusOr<Tensor> Allocate(DataType type, const Shape& shape, Device device) override {
    if (left_-- == 0) return absl::ResourceExhaustedError("no memory");
    return LoneGroup::Allocate(type, shape, device);
  }
  absl::Status FailCollective(const absl::Status& why, const client::CallOptions&) override {
    failures.emplace_back(why.message());
    return why;
  }
  absl::Status Run(const CollectiveCall&, const Tensor& input, const Tensor& output,
                   const client::CallOptions&) override {
    ++collectives;
    return CopyTensor(input, output);
  }

  std::vector<std::string> failures;
  int collectives = 0;

 private:
  int left_;
};

// Two small tensors, which travel together, and a large one between them.
std::vector<Tensor> Rows() {
  std::vector<Tensor> tensors = {Tensor::Zeros(DataType::kI64, {3}),
                                 Tensor::Zeros(DataType::kF32, {3, 10000}),
                                 Tensor::Zeros(DataType::kU8, {3, 5})};
  for (const Tensor& tensor : tensors) {
    auto* const bytes = static_cast<unsigned char*>(tensor.data());
    for (int64_t i = 0; i < tensor.bytes(); ++i) bytes[i] = static_cast<unsigned char>(7 * i + 1);
  }
  return tensors;
}

absl::StatusOr<std::vector<Tensor>> Exchange(client::Group& group,
                                             const std::vector<Tensor>& rows) {
  return ExchangeRows(group, rows, {3}, {3}, 3, client::CallDeadline({}));
}

TEST(ExchangeRowsTest, SmallTensorsTravelTogether) {
  ScarceGroup group(100);
  const std::vector<Tensor> rows = Rows();
  const absl::StatusOr<std::vector<Tensor>> got = Exchange(group, rows);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(group.collectives, 2);
  ASSERT_EQ(got->size(), rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ((*got)[i].type(), rows[i].type()) << i;
    ASSERT_EQ((*got)[i].shape(), rows[i].shape()) << i;
    EXPECT_EQ(std::memcmp((*got)[i].data(), rows[i].data(), static_cast<size_t>(rows[i].bytes())),
              0)
        << i;
  }
}

// Otherwise the other ranks would wait for this one until their timeout.
TEST(ExchangeRowsTest, ARankWithoutMemoryTellsTheOtherRanks) {
  // A result for each tensor, and the blocks that are sent and received.
  for (int allocations = 0; allocations < 5; ++allocations) {
    ScarceGroup group(allocations);
    const absl::Status status = Exchange(group, Rows()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << allocations << ": " << status;
    EXPECT_THAT(group.failures, ElementsAre(std::string(status.message()))) << allocations;
    EXPECT_EQ(group.collectives, 0) << allocations;
  }
}

}  // namespace
}  // namespace cohort::parallel
