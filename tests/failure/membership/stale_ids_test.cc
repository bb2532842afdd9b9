// All members are restarted quickly, twice: no member ever sees the unique ids of an earlier life.
#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/child_process.h"
#include "tests/failure/testing/members.h"
#include "tests/testing/coordinator_process.h"

namespace cohort {
namespace {

using testing::ChildProcess;
using testing::CoordinatorProcess;
using testing::kTimeout;
using ::testing::StartsWith;

constexpr int kWorldSize = 3;

class StaleIdsTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(coordinator_.Start().ok()); }

  using Life = std::vector<std::unique_ptr<ChildProcess>>;

  Life StartLife() {
    Life life;
    for (int rank = 0; rank < kWorldSize; ++rank) {
      life.push_back(std::make_unique<ChildProcess>(
          std::vector<std::string>{"tests/failure/testing/member_main", coordinator_.address(),
                                   "group", absl::StrCat(rank), absl::StrCat(kWorldSize)}));
    }
    return life;
  }

  // Returns the generation that all members joined, or 0 if one of them does not answer.
  int64_t AwaitJoined(Life& life) {
    int64_t generation = 0;
    for (int rank = 0; rank < kWorldSize; ++rank) {
      const absl::StatusOr<std::string> line = life[rank]->ReadLine(kTimeout);
      EXPECT_TRUE(line.ok()) << line.status();
      if (!line.ok()) return 0;
      EXPECT_THAT(*line, StartsWith(absl::StrCat("joined ", rank)));
      const std::vector<std::string> words = absl::StrSplit(*line, ' ');
      const int64_t own = words.size() == 4 ? std::stoll(words[3]) : 0;
      EXPECT_TRUE(generation == 0 || generation == own) << generation << " and " << own;
      generation = own;
    }
    return generation;
  }

  // The other ranks fetch before rank 0 publishes: an id that they found at once would be an old
  // one.
  void ExpectOwnIds(Life& life, const std::string& id) {
    for (int rank = 1; rank < kWorldSize; ++rank) life[rank]->WriteLine("fetch weights");
    ASSERT_TRUE(testing::AwaitParked(coordinator_.address(), "group", kWorldSize - 1))
        << "a fetch did not wait";
    life[0]->WriteLine("publish weights " + id);
    EXPECT_EQ(life[0]->ReadLine(kTimeout).value_or("nothing"), "OK ");
    for (int rank = 1; rank < kWorldSize; ++rank) {
      EXPECT_EQ(life[rank]->ReadLine(kTimeout).value_or("nothing"), "OK " + id);
    }
  }

  CoordinatorProcess coordinator_{{}};
};

TEST_F(StaleIdsTest, RestartedTwiceEachLifeSeesItsOwn) {
  int64_t generation = 0;
  for (const char* const id : {"first", "second", "third"}) {
    SCOPED_TRACE(id);
    Life life = StartLife();
    const int64_t own = AwaitJoined(life);
    EXPECT_GT(own, generation);
    generation = own;
    ASSERT_NO_FATAL_FAILURE(ExpectOwnIds(life, id));
    // All are killed, and the next life starts at once, before the coordinator notices a loss.
    for (const auto& member : life) member->Signal(SIGKILL);
  }
}

TEST_F(StaleIdsTest, AnOldPublisherThatWakesUpIsFenced) {
  Life old = StartLife();
  AwaitJoined(old);
  for (const auto& member : old) member->Signal(SIGSTOP);

  Life life = StartLife();
  AwaitJoined(life);
  for (int rank = 1; rank < kWorldSize; ++rank) life[rank]->WriteLine("fetch weights");
  old[0]->WriteLine("publish weights old");
  old[0]->Signal(SIGCONT);
  const absl::StatusOr<std::string> line = old[0]->ReadLine(kTimeout);
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_THAT(*line, StartsWith("ABORTED"));
  life[0]->WriteLine("publish weights new");
  EXPECT_EQ(life[0]->ReadLine(kTimeout).value_or("nothing"), "OK ");
  for (int rank = 1; rank < kWorldSize; ++rank) {
    EXPECT_EQ(life[rank]->ReadLine(kTimeout).value_or("nothing"), "OK new");
  }
}

}  // namespace
}  // namespace cohort
