// Errors of pipeline stages, on groups of every form: what each stage gets, and what stays for the
// next call.
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/parallel/pipeline/pipeline.h"
#include "gmock/gmock.h"
#include "tests/parallel/testing/pipeline_test_base.h"

namespace cohort::testing {
namespace {

using client::Group;
using parallel::Pipeline;
using parallel::PipelineCall;
using parallel::PipelineReceive;
using parallel::Tensors;
using ::testing::HasSubstr;

class PipelineErrorsTest : public PipelineFixture {};

TEST_P(PipelineErrorsTest, NothingIsDroppedAtTheEnds) {
  MakeStages(3);
  ExpectOk(OnRanks([&](Group& group) -> absl::Status {
    Pipeline& stage = of(group);
    const Tensors some = Make(group, 1, false);
    const auto refused = [&](const absl::Status& status, const char* why) {
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(why));
    };
    Pipeline::Both both;
    both.recv_prev = both.recv_next = false;
    if (group.rank() == 0) {
      Pipeline::BackwardForward backward;
      EXPECT_EQ(*stage.SendBackwardRecvForward(backward), std::nullopt);
      backward.input_gradient = some;
      refused(stage.SendBackwardRecvForward(backward).status(), "stage 0 of 3");
      refused(stage.SendForwardRecvForward({}).status(), "no previous stage to receive from");
      both.input_gradient = some;
      refused(stage.SendForwardBackwardRecvForwardBackward(both).status(), "has no previous stage");
      refused(stage.RecvTensorMeta().status(), "has no previous stage");
    }
    if (group.rank() == 2) {
      Pipeline::ForwardBackward forward;
      EXPECT_EQ(*stage.SendForwardRecvBackward(forward), std::nullopt);
      forward.output = some;
      refused(stage.SendForwardRecvBackward(forward).status(), "stage 2 of 3");
      refused(stage.SendBackwardRecvBackward({}).status(), "no next stage to receive from");
      both.output = some;
      refused(stage.SendForwardBackwardRecvForwardBackward(both).status(), "has no next stage");
      refused(stage.SendTensorMeta(some).status(), "has no next stage");
    }
    // Between the ends, and without wrap, a call with two directions works.
    Pipeline::ForwardForward middle;
    if (group.rank() < 2) middle.output = some;
    middle.recv_prev = group.rank() > 0;
    COHORT_ASSIGN_OR_RETURN(const auto input, stage.SendForwardRecvForward(middle));
    return group.rank() == 0 ? absl::OkStatus() : Is(group, input, 1, false);
  }));
}

TEST_P(PipelineErrorsTest, ExpectedTensorsAreChecked) {
  for (const int size : {2, 4}) {
    MakeStages(size);
    for (const int64_t count : {int64_t{4}, kLarge}) {
      const std::vector<absl::Status> statuses = OnRanks([&](Group& group) -> absl::Status {
        if (group.rank() == 0) {
          return of(group).SendForward({Upload(group, Tensor::Zeros(DataType::kF64, {count}))});
        }
        if (group.rank() > 1) return absl::OkStatus();
        PipelineReceive input;
        input.expected = {{DataType::kF32, Shape{count}}};
        return of(group).RecvForward(input).status();
      });
      const std::string both =
          absl::StrCat("rank 1 expects f32 [", count, "], and rank 0 sent f64 [", count, "]");
      EXPECT_EQ(statuses[1].code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(statuses[1].message()), HasSubstr(both));
      if (count == kLarge || GetParam() == Form::kDevice) {
        EXPECT_EQ(statuses[0].code(), absl::StatusCode::kInvalidArgument);
        EXPECT_THAT(std::string(statuses[0].message()), HasSubstr(both));
      }
    }
    // The stages go on, with tensors whose type, shape or both are expected.
    ExpectOk(OnRanks([&](Group& group) -> absl::Status {
      const Tensor two = Tensor::Zeros(DataType::kI8, {2, 2});
      if (group.rank() == 0) {
        for (int i = 0; i < 3; ++i) {
          COHORT_RETURN_IF_ERROR(of(group).SendForward({Upload(group, two)}));
        }
      }
      if (group.rank() != 1) return absl::OkStatus();
      for (const parallel::Expected& expected : {parallel::Expected{DataType::kI8, std::nullopt},
                                                 parallel::Expected{std::nullopt, Shape{2, 2}},
                                                 parallel::Expected{DataType::kI8, Shape{2, 2}}}) {
        PipelineReceive input;
        input.expected = {expected};
        COHORT_ASSIGN_OR_RETURN(const auto got, of(group).RecvForward(input));
        COHORT_RETURN_IF_ERROR(Same(group, got, {two}));
      }
      return absl::OkStatus();
    }));
  }
}

// Tensors that have arrived beside an error are kept.
TEST_P(PipelineErrorsTest, AnErrorOfOneSideLosesNothingOfTheOther) {
  MakeStages(3);
  ExpectOk(OnRanks([&](Group& group) -> absl::Status {
    Pipeline& stage = of(group);
    if (group.rank() == 0) return stage.SendForward(Make(group, 5, true));
    if (group.rank() == 2) {
      EXPECT_EQ(stage.SendBackward({Tensor(nullptr, DataType::kF32, {4})}).code(),
                absl::StatusCode::kInvalidArgument);
      return stage.SendBackward(Make(group, 6, true));
    }
    Pipeline::Both both;
    const absl::Status status = stage.SendForwardBackwardRecvForwardBackward(both).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 2"));
    COHORT_ASSIGN_OR_RETURN(const auto input, stage.RecvForward());
    COHORT_RETURN_IF_ERROR(Is(group, input, 5, true));
    COHORT_ASSIGN_OR_RETURN(const auto gradient, stage.RecvBackward());
    return Is(group, gradient, 6, true);
  }));
}

TEST_P(PipelineErrorsTest, TheEndOfAStageIsThatOfThePipeline) {
  MakeStages(4);
  const std::vector<absl::Status> statuses = OnRanks([&](Group& group) -> absl::Status {
    if (group.rank() == 3) {
      group.Abort(absl::InternalError("it has had enough"));
      return absl::OkStatus();
    }
    // No stage sends a gradient back.
    return of(group).RecvBackward().status();
  });
  for (int r = 0; r < 3; ++r) {
    const absl::Status& status = statuses[static_cast<size_t>(r)];
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 3"));
  }
}

TEST_P(PipelineErrorsTest, ReceiversGetTheFailureOfACall) {
  MakeStages(2);
  const std::vector<absl::Status> statuses = OnRanks([&](Group& group) -> absl::Status {
    if (group.rank() == 1) return of(group).RecvForward().status();
    PipelineCall call;
    call.failure = absl::InvalidArgumentError("no file");
    Pipeline::ForwardBackward what;
    what.output.emplace();
    what.recv_next = false;
    return of(group).SendForwardRecvBackward(what, call).status();
  });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("no file"));
  }
  ExpectOk(OnRanks([&](Group& group) -> absl::Status {
    if (group.rank() == 0) return of(group).SendForward(Make(group, 5, true));
    COHORT_ASSIGN_OR_RETURN(const auto input, of(group).RecvForward());
    return Is(group, input, 5, true);
  }));
}

INSTANTIATE_TEST_SUITE_P(Forms, PipelineErrorsTest, ::testing::ValuesIn(kForms), FormName);

}  // namespace
}  // namespace cohort::testing
