// Sends of one member to one destination under one tag arrive in the order of the calls, whatever
// happens to each on its way.
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/threads/mutex.h"
#include "client/rendezvous/testing/process_group_test_base.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::client {
namespace {

using SendOrderTest = ProcessGroupTestBase;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// The results of sends, in the order in which they ended. Outlives the group.
class Ends {
 public:
  std::function<void(absl::Status)> Slot() {
    return [this](const absl::Status& status) {
      MutexLock lock(&mutex_);
      statuses_.push_back(status);
    };
  }
  std::vector<absl::Status> Await(size_t count) {
    const auto enough = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return statuses_.size() >= count;
    };
    MutexLock lock(&mutex_);
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&enough), kLong));
    return statuses_;
  }

 private:
  Mutex mutex_;
  std::vector<absl::Status> statuses_ ABSL_GUARDED_BY(mutex_);
};

std::vector<std::string> Objects(const std::vector<SeenCall>& calls) {
  std::vector<std::string> objects;
  for (const SeenCall& call : calls) objects.push_back(call.object);
  return objects;
}

TEST_F(SendOrderTest, ARepeatIsNotOvertaken) {
  Ends ends;
  const auto group = Join();
  fake_.FailNext("Send", {Away(), Away()});
  for (const char* object : {"a", "b", "c"}) group->async().Send(object, 1, "t", {}, ends.Slot());
  EXPECT_TRUE(group->Send("d", 1, "t").ok());
  EXPECT_THAT(ends.Await(3), Each(absl::OkStatus()));
  EXPECT_THAT(Objects(fake_.Seen("Send")), ElementsAre("a", "a", "a", "b", "c", "d"));
}

TEST_F(SendOrderTest, OtherTagsAndDestinationsDoNotWait) {
  Ends ends;
  const auto group = Join();
  fake_.Hold("Send", true);
  group->async().Send("a", 1, "t", {}, ends.Slot());
  group->async().Send("b", 2, "t", {}, ends.Slot());
  group->async().Send("c", 1, "u", {}, ends.Slot());
  EXPECT_TRUE(fake_.AwaitSeen("Send", 3));
  fake_.Hold("Send", false);
  EXPECT_THAT(ends.Await(3), Each(absl::OkStatus()));
}

TEST_F(SendOrderTest, GoesOnAfterAnError) {
  Ends ends;
  const auto group = Join();
  fake_.FailNext("Send", {Wrong()});
  for (const char* object : {"a", "b"}) group->async().Send(object, 1, "t", {}, ends.Slot());
  const std::vector<absl::Status> statuses = ends.Await(2);
  ASSERT_THAT(statuses, SizeIs(2));
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(statuses[1].ok());
  EXPECT_THAT(Objects(fake_.Seen("Send")), ElementsAre("a", "b"));
}

TEST_F(SendOrderTest, ABlockingSendWaitsForItsTurnNoLongerThanItsTimeout) {
  Ends ends;
  const auto group = Join();
  fake_.Hold("Send", true);
  group->async().Send("a", 1, "t", {}, ends.Slot());
  ASSERT_TRUE(fake_.AwaitSeen("Send", 1));
  const absl::Status late = group->Send("b", 1, "t", absl::Milliseconds(50));
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(late.message()), HasSubstr("send \"t\" to 1"));
  fake_.Hold("Send", false);
  EXPECT_TRUE(group->Send("c", 1, "t").ok());
  EXPECT_THAT(ends.Await(1), Each(absl::OkStatus()));
  EXPECT_THAT(Objects(fake_.Seen("Send")), ElementsAre("a", "c"));
}

TEST_F(SendOrderTest, AllEndSoonAfterTheirTimeoutWhenNoAnswerComes) {
  ProcessGroupOptions options = Options();
  options.timeout = absl::Milliseconds(300);
  Ends ends;
  const auto group = Join(options);
  fake_.Hold("Send", true);
  for (int i = 0; i < 100; ++i) group->async().Send("x", 1, "", {}, ends.Slot());
  const std::vector<absl::Status> statuses = ends.Await(100);
  EXPECT_THAT(statuses, SizeIs(100));
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kUnavailable) << statuses[0];
  for (size_t i = 1; i < statuses.size(); ++i) {
    EXPECT_EQ(statuses[i].code(), absl::StatusCode::kDeadlineExceeded) << statuses[i];
  }
  // Sends whose timeout had passed before they could start were not sent.
  EXPECT_THAT(fake_.Seen("Send"), SizeIs(1));
}

TEST_F(SendOrderTest, ThoseThatWaitEndWithTheirGroup) {
  Ends ends;
  auto group = Join();
  fake_.Hold("Send", true);
  for (int i = 0; i < 10; ++i) group->async().Send("x", 1, "", {}, ends.Slot());
  ASSERT_TRUE(fake_.AwaitSeen("Send", 1));
  group.reset();
  for (const absl::Status& status : ends.Await(10)) EXPECT_FALSE(status.ok());
  EXPECT_THAT(fake_.Seen("Send"), SizeIs(1));
}

TEST_F(SendOrderTest, ObjectsOfAnOldGenerationStayInIt) {
  Ends ends;
  const auto group = Join();
  fake_.Hold("Send", true);
  for (const char* object : {"a", "b"}) group->async().Send(object, 1, "", {}, ends.Slot());
  ASSERT_TRUE(fake_.AwaitSeen("Send", 1));
  fake_.set_generation(2);
  ASSERT_TRUE(group->Rejoin().ok());
  ASSERT_EQ(group->generation(), 2);
  fake_.Hold("Send", false);
  ends.Await(2);
  const std::vector<SeenCall> seen = fake_.Seen("Send");
  ASSERT_THAT(seen, SizeIs(2));
  EXPECT_EQ(seen[1].scope.generation(), 1);
}

}  // namespace
}  // namespace cohort::client
