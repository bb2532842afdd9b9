#include "client/parallel/tensor_map/gather.h"

#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "base/testing/random_tensor.h"
#include "client/collective/testing/lone_group.h"
#include "client/parallel/pipeline/tensor_slices.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

// A group of several ranks for tests that call no other rank.
class GroupOf : public client::LoneGroup {
 public:
  explicit GroupOf(int size) : size_(size) {}
  int size() const override { return size_; }

 private:
  const int size_;
};

Tensor Count(const Shape& shape) {
  Tensor tensor = Tensor::Zeros(DataType::kI32, shape);
  for (int32_t i = 0; i < tensor.count(); ++i) static_cast<int32_t*>(tensor.data())[i] = i;
  return tensor;
}

absl::StatusOr<int> Parts(const MapGatherOptions& options, const Path& path, const Tensor& tensor) {
  return PartsFor(
      options, [&path] { return path; }, tensor);
}

void ExpectRefused(const absl::Status& status, absl::string_view why) {
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), why)) << status;
}

TEST(GatherTest, NothingGoesInPartsUnlessItIsAskedFor) {
  GroupOf four(4);
  MapGatherOptions options;
  options.group = &four;
  EXPECT_EQ(*Parts(options, {"a"}, Count({8})), 1);
  options.all = true;
  EXPECT_EQ(*Parts(options, {"a"}, Count({8})), 4);
  EXPECT_EQ(*Parts(options, {"a"}, Count({2, 2})), 4);
  EXPECT_EQ(*Parts(options, {"a"}, Count({9})), 1);
  EXPECT_EQ(*Parts(options, {"a"}, Count({0, 4})), 1);
  EXPECT_EQ(*Parts(options, {"a"}, Count({})), 1);
  options.overrides = {{{"a"}, false}, {{"b", "c"}, true}};
  EXPECT_EQ(*Parts(options, {"a"}, Count({8})), 1);
  options.all = false;
  EXPECT_EQ(*Parts(options, {"b", "c"}, Count({8})), 4);
  EXPECT_EQ(*Parts(options, {"b/c"}, Count({8})), 1);
  ExpectRefused(Parts(options, {"b", "c"}, Count({9})).status(),
                "entry 'b'/'c' cannot go in parts: i32 [9] has 9 elements, which do not divide");
}

TEST(GatherTest, WithoutOtherRanksTensorsTravelWhole) {
  MapGatherOptions options;
  options.all = true;
  EXPECT_EQ(*Parts(options, {"a"}, Count({8})), 1);
  options.overrides = {{{"a"}, true}};
  ExpectRefused(Parts(options, {"a"}, Count({8})).status(), "there is no group");
  GroupOf one(1);
  options.group = &one;
  EXPECT_EQ(*Parts(options, {"a"}, Count({8})), 1);
}

TEST(GatherTest, OverridesAreOfTensorsThatAreThere) {
  const TensorMap map = {{"t", Count({2})}, {"list", List{1, TensorMap{{"t", Count({2})}}}}};
  MapGatherOptions options;
  options.overrides = {{{"t"}, true}, {{"list", "1", "t"}, true}, {{"missing"}, false}};
  EXPECT_TRUE(CheckOverrides(options, map).ok());
  const auto expect_refused = [&](const Path& path, absl::string_view why) {
    options.overrides = {{path, true}};
    ExpectRefused(CheckOverrides(options, map), why);
  };
  expect_refused({"missing"}, "is not there");
  expect_refused({"list", "0"}, "is a whole number");
  expect_refused({"list", "2"}, "is not there");
  expect_refused({"list", "01"}, "is not there");
  expect_refused({"t", "0"}, "is not there");
  expect_refused({}, "is not there");
}

TEST(GatherTest, PartsAreOfFlatElements) {
  GroupOf three(3);
  const Tensor turned = Count({3, 4}).Permute({1, 0});
  for (const Tensor& tensor : {Count({4, 3}), turned}) {
    std::string together;
    for (int part = 0; part < 3; ++part) {
      const auto own = SliceOf(three, tensor, 3, part, {});
      ASSERT_TRUE(own.ok()) << own.status();
      EXPECT_EQ(own->shape(), (Shape{4}));
      together += ElementsOf(*own);
    }
    EXPECT_EQ(together, ElementsOf(tensor));
  }
}

}  // namespace
}  // namespace cohort::parallel
