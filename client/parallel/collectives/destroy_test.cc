#include "client/parallel/collectives/destroy.h"

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "client/collective/testing/lone_group.h"
#include "client/parallel/layout/groups/create_groups.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

struct Gate {
  absl::Notification opened;
  absl::Notification passed;
};

// A group whose destructor waits until the gate is opened.
class SlowGroup : public client::LoneGroup {
 public:
  explicit SlowGroup(std::shared_ptr<Gate> gate) : gate_(std::move(gate)) {}
  ~SlowGroup() override {
    gate_->opened.WaitForNotification();
    gate_->passed.Notify();
  }

 private:
  const std::shared_ptr<Gate> gate_;
};

TEST(DestroyTest, FreesTheGroup) {
  const auto gate = std::make_shared<Gate>();
  gate->opened.Notify();
  EXPECT_TRUE(Destroy(std::make_unique<SlowGroup>(gate), absl::Seconds(60)).ok());
  EXPECT_TRUE(gate->passed.HasBeenNotified());
  EXPECT_TRUE(Destroy(nullptr).ok());
}

TEST(DestroyTest, TheLastOwnerFreesTheGroup) {
  const auto gate = std::make_shared<Gate>();
  gate->opened.Notify();
  Subgroup first = {std::make_shared<SlowGroup>(gate), {0}, Role::kTensor};
  Subgroup second = first;

  const absl::Status status = Destroy(std::move(first.group), absl::Seconds(60));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              ::testing::AllOf(::testing::HasSubstr("rank 0 of group alone"),
                               ::testing::HasSubstr("other owners: 1")));
  EXPECT_FALSE(gate->passed.HasBeenNotified());
  EXPECT_TRUE(Destroy(std::move(second.group), absl::Seconds(60)).ok());
  EXPECT_TRUE(gate->passed.HasBeenNotified());
}

TEST(DestroyTest, WaitsNoLongerThanItsTimeout) {
  const auto gate = std::make_shared<Gate>();
  const absl::Status status = Destroy(std::make_unique<SlowGroup>(gate), absl::Milliseconds(1));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("rank 0 of group alone"));
  gate->opened.Notify();
  gate->passed.WaitForNotification();
}

}  // namespace
}  // namespace cohort::parallel
