// Which of several failed ranks is named. Tests of the comparison: tests/parallel/layout_test.cc.
#include "client/parallel/layout/groups/parameter_agreement.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/collective/testing/lone_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

using ::testing::HasSubstr;

// Rank 0 of a group with as many ranks as texts.
class ScriptedGroup : public client::LoneGroup {
 public:
  std::vector<std::string> answers;

  absl::StatusOr<std::vector<std::string>> AllGatherObjects(absl::string_view,
                                                            const client::CallOptions&) override {
    return answers;
  }
};

std::string Answer(absl::StatusCode code, const std::string& text) {
  return absl::StrCat(R"({"code":)", static_cast<int>(code), R"(,"text":")", text, R"("})");
}

TEST(AgreementTest, ARankThatWaitedForAnotherIsNotTheCulprit) {
  ScriptedGroup world;
  world.answers = {Answer(absl::StatusCode::kDeadlineExceeded, "rank 2 did not come"),
                   Answer(absl::StatusCode::kAborted, "rank 2 is gone"),
                   Answer(absl::StatusCode::kResourceExhausted, "no GPU"),
                   Answer(absl::StatusCode::kOk, "")};
  const absl::Status status =
      AgreeOnOutcome(world, "groups", absl::DeadlineExceededError("rank 2 did not come"),
                     absl::Seconds(1));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 2 of group alone could not make"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("no GPU; nor could ranks 0-1"));
}

TEST(AgreementTest, NamesTheFirstOfTheRanksThatOnlyWaited) {
  ScriptedGroup world;
  world.answers = {Answer(absl::StatusCode::kOk, ""),
                   Answer(absl::StatusCode::kDeadlineExceeded, "rank 0 did not come"),
                   Answer(absl::StatusCode::kAborted, "rank 0 is gone")};
  const absl::Status status =
      AgreeOnOutcome(world, "groups", absl::OkStatus(), absl::Seconds(1));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 of group alone could not make"));
}

}  // namespace
}  // namespace cohort::parallel
