#include "client/rendezvous/session/round_numbers.h"

#include "gtest/gtest.h"

namespace cohort::client {
namespace {

TEST(RoundNumbers, CountsEachNameFromOne) {
  RoundNumbers numbers;
  EXPECT_EQ(numbers.Take("a"), 1);
  EXPECT_EQ(numbers.Take("a"), 2);
  EXPECT_EQ(numbers.Take("b"), 1);
}

TEST(RoundNumbers, GivesReturnedNumbersAgainLowestFirst) {
  RoundNumbers numbers;
  for (int i = 0; i < 4; ++i) numbers.Take("a");
  numbers.GiveBack("a", 3);
  numbers.GiveBack("a", 1);
  EXPECT_EQ(numbers.Take("a"), 1);
  EXPECT_EQ(numbers.Take("a"), 3);
  EXPECT_EQ(numbers.Take("a"), 5);
}

TEST(RoundNumbers, ForgetsReturnedNumbersThatEndedMeanwhile) {
  RoundNumbers numbers;
  for (int i = 0; i < 3; ++i) numbers.Take("a");
  numbers.GiveBack("a", 1);
  numbers.Continue("a", 2, 3);
  EXPECT_EQ(numbers.Take("a"), 4);
}

TEST(RoundNumbers, StaysWhereTheCoordinatorSaysSo) {
  RoundNumbers numbers;
  numbers.Continue("a", numbers.Take("a"), 1);
  EXPECT_EQ(numbers.Take("a"), 1);
}

TEST(RoundNumbers, JumpsToWhereTheOthersAre) {
  RoundNumbers numbers;
  numbers.Continue("a", numbers.Take("a"), 8);
  EXPECT_EQ(numbers.Take("a"), 8);
}

TEST(RoundNumbers, BeginsAnewAfterClear) {
  RoundNumbers numbers;
  numbers.Take("a");
  numbers.Clear();
  EXPECT_EQ(numbers.Take("a"), 1);
}

}  // namespace
}  // namespace cohort::client
