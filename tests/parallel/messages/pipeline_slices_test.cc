// Stages whose tensors travel in slices, one for each member of a tensor group, on groups of every
// form. Only the slices of one micro-batch are gathered together.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/testing/random_tensor.h"
#include "client/collective/group_factory.h"
#include "client/collective/testing/lone_group.h"
#include "client/parallel/pipeline/pipeline.h"
#include "cuda_runtime_api.h"
#include "gmock/gmock.h"
#include "tests/parallel/testing/parallel_test_base.h"

namespace cohort::testing {
namespace {

using client::Group;
using parallel::Messages;
using parallel::Pipeline;
using parallel::PipelineCall;
using parallel::PipelineOptions;
using parallel::PipelineReceive;
using parallel::Tensors;
using ::testing::HasSubstr;

// Four ranks, of two stages of two members each: ranks 0 and 1 send to 2 and 3.
class ScatterGatherTest : public ParallelTest {
 protected:
  // `members`: of each tensor group of the second stage; the first stage has one of 2.
  absl::Status OnStages(const std::function<absl::Status(Group&, Pipeline&)>& body,
                        int members = 2) {
    return OnStagesWithMessages(
        [&](Group& group, Pipeline& pipeline, Messages&) { return body(group, pipeline); },
        members);
  }
  absl::Status OnStagesWithMessages(
      const std::function<absl::Status(Group&, Pipeline&, Messages&)>& body, int members = 2) {
    MakeGroup(4);
    const std::vector<absl::Status> statuses = OnRanks([&](Group& group) -> absl::Status {
      const int own = group.rank();
      const bool sends = own < 2;
      // The tensor groups of the second stage may have another size.
      const int size = sends ? 2 : members;
      client::PlannedRank place;
      place.name = absl::StrCat("tensor-", made_, "-", sends ? 0 : size == 2 ? 1 : own);
      place.rank = size == 2 ? own % 2 : 0;
      place.world_size = size;
      COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Group> tensor_group,
                              FactoryOf(own, absl::Seconds(60))(place));
      Messages messages(group);
      PipelineOptions options;
      options.tensor_group = tensor_group.get();
      if (sends) options.next_rank = own + 2;
      if (!sends) options.prev_rank = own - 2;
      Pipeline pipeline(messages, options);
      const absl::Status status = body(group, pipeline, messages);
      // Both groups work on.
      COHORT_RETURN_IF_ERROR(tensor_group->Barrier());
      COHORT_RETURN_IF_ERROR(group.Barrier());
      return status;
    });
    ++made_;
    statuses_ = statuses;
    for (const absl::Status& status : statuses) {
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  std::vector<absl::Status> statuses_;

 private:
  int made_ = 0;
};

TEST_P(ScatterGatherTest, SlicesAreGathered) {
  PipelineCall call;
  call.scatter_gather_tensors = true;
  const Tensor whole = Tensor::Zeros(DataType::kI32, {6, 4});
  for (int i = 0; i < 24; ++i) static_cast<int32_t*>(whole.data())[i] = i * i;
  const Tensor empty = Tensor::Zeros(DataType::kF32, {0, 5});
  const absl::Status status = OnStages([&](Group& group, Pipeline& stage) -> absl::Status {
    const Tensor strided = Upload(group, whole).Permute({1, 0});
    if (group.rank() < 2) {
      COHORT_RETURN_IF_ERROR(
          stage.SendForward({Upload(group, whole), strided, Upload(group, empty)}, call));
      // One of two.
      PipelineCall one = call;
      one.scattered = {false, true};
      return stage.SendForward(
          {Upload(group, Tensor::Zeros(DataType::kU8, {7})), Upload(group, whole)}, one);
    }
    COHORT_ASSIGN_OR_RETURN(const auto got, stage.RecvForward({}, call));
    EXPECT_EQ(got->size(), 3u);
    EXPECT_EQ(ElementsOf(Download(group, (*got)[0])), ElementsOf(whole));
    EXPECT_EQ((*got)[1].shape(), (Shape{4, 6}));
    EXPECT_EQ(ElementsOf(Download(group, (*got)[1])), ElementsOf(whole.Permute({1, 0})));
    EXPECT_EQ((*got)[2].shape(), (Shape{0, 5}));
    COHORT_ASSIGN_OR_RETURN(const auto mixed, stage.RecvForward({}, call));
    EXPECT_EQ((*mixed)[0].shape(), (Shape{7}));
    EXPECT_EQ(ElementsOf(Download(group, (*mixed)[1])), ElementsOf(whole));
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(ScatterGatherTest, SlicesAreGatheredOnAStream) {
  if (GetParam() != Form::kDevice) GTEST_SKIP() << "the others have no GPUs";
  PipelineCall call;
  call.scatter_gather_tensors = true;
  call.options.stream = nullptr;  // the default one
  const Tensor whole = Tensor::Zeros(DataType::kI32, {6, 4});
  for (int i = 0; i < 24; ++i) static_cast<int32_t*>(whole.data())[i] = i * i;
  const absl::Status status = OnStages([&](Group& group, Pipeline& stage) -> absl::Status {
    // The default stream is that of the thread's device.
    EXPECT_EQ(cudaSetDevice(group.device().index()), cudaSuccess);
    // The call sends copies of it, which are freed when it returns.
    const Tensor strided = Upload(group, whole).Permute({1, 0});
    for (int step = 0; step < 3; ++step) {
      if (group.rank() < 2) {
        COHORT_RETURN_IF_ERROR(stage.SendForward({strided}, call));
        continue;
      }
      COHORT_ASSIGN_OR_RETURN(const auto got, stage.RecvForward({}, call));
      EXPECT_EQ(ElementsOf(Download(group, (*got)[0])), ElementsOf(whole.Permute({1, 0})));
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(ScatterGatherTest, IndivisibleTensorsTravelWhole) {
  PipelineCall call;
  call.scatter_gather_tensors = true;
  const auto numbers = [](int64_t count) {
    Tensor tensor = Tensor::Zeros(DataType::kI32, {count});
    for (int i = 0; i < count; ++i) static_cast<int32_t*>(tensor.data())[i] = 100 + i;
    return tensor;
  };
  const Tensor seven = numbers(7);
  const Tensor eight = numbers(8);
  const absl::Status status = OnStages([&](Group& group, Pipeline& stage) -> absl::Status {
    for (const Tensors& tensors : {Tensors{seven}, Tensors{seven, eight}, Tensors{eight, seven}}) {
      if (group.rank() < 2) {
        Tensors sent;
        for (const Tensor& tensor : tensors) sent.push_back(Upload(group, tensor));
        COHORT_RETURN_IF_ERROR(stage.SendForward(sent, call));
        continue;
      }
      PipelineReceive input;
      for (const Tensor& tensor : tensors) input.expected.push_back({DataType::kI32, tensor.shape()});
      COHORT_ASSIGN_OR_RETURN(const auto got, stage.RecvForward(input, call));
      if (got->size() != tensors.size()) return absl::InternalError("another number of tensors");
      for (size_t i = 0; i < tensors.size(); ++i) {
        EXPECT_EQ((*got)[i].shape(), tensors[i].shape());
        EXPECT_EQ(ElementsOf(Download(group, (*got)[i])), ElementsOf(tensors[i]));
      }
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(ScatterGatherTest, ATensorThatIsNamedAndDoesNotDivideIsRefusedOnBothSides) {
  PipelineCall call;
  call.scatter_gather_tensors = true;
  call.scattered = {true};
  OnStages([&](Group& group, Pipeline& stage) -> absl::Status {
    const Tensor seven = Upload(group, Tensor::Zeros(DataType::kF32, {7}));
    if (group.rank() < 2) return stage.SendForward({seven}, call);
    return stage.RecvForward({}, call).status();
  }).IgnoreError();
  for (const absl::Status& status : statuses_) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("does not divide by 2"));
  }
}

TEST_P(ScatterGatherTest, TensorGroupsOfOtherSizesAreRefusedOnBothSides) {
  PipelineCall call;
  call.scatter_gather_tensors = true;
  OnStages(
      [&](Group& group, Pipeline& stage) -> absl::Status {
        const Tensor eight = Upload(group, Tensor::Zeros(DataType::kF32, {8}));
        if (group.rank() < 2) return stage.SendForward({eight}, call);
        return stage.RecvForward({}, call).status();
      },
      1)
      .IgnoreError();
  for (const absl::Status& status : statuses_) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("has 1 member"));
  }
}

TEST_P(ScatterGatherTest, OneMembersErrorIsAll) {
  PipelineCall call;
  call.scatter_gather_tensors = true;
  OnStages([&](Group& group, Pipeline& stage) -> absl::Status {
    // Rank 1 sends another type than rank 3 expects.
    const DataType type = group.rank() == 1 ? DataType::kI32 : DataType::kF32;
    if (group.rank() < 2) return stage.SendForward({Upload(group, Tensor::Zeros(type, {8}))}, call);
    PipelineReceive input;
    input.expected = {{DataType::kF32, std::nullopt}};
    return stage.RecvForward(input, call).status();
  }).IgnoreError();
  EXPECT_TRUE(statuses_[0].ok()) << statuses_[0];
  for (const int r : {1, 2, 3}) {
    const absl::Status& status = statuses_[static_cast<size_t>(r)];
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("expects f32"));
  }
}

// Each of the two stages is the other's next and previous one, so that one call has both
// directions.
TEST_P(ScatterGatherTest, OneDirectionsErrorDropsWhatCameInTheOther) {
  PipelineCall call;
  call.scatter_gather_tensors = true;
  const auto filled = [](DataType type, int32_t value) {
    const Tensor tensor = Tensor::Zeros(type, {8});
    for (int i = 0; i < 8; ++i) static_cast<int32_t*>(tensor.data())[i] = value + i;
    return tensor;
  };
  const absl::Status status = OnStages([&](Group& group, Pipeline& stage) -> absl::Status {
    const int other = group.rank() ^ 2;
    const int from = 100 * (other / 2);
    PipelineCall mine = call;
    mine.next_rank = mine.prev_rank = other;
    for (int step = 0; step < 3; ++step) {
      const int own = 100 * (group.rank() / 2) + 10 * step;
      Pipeline::Both both;
      // In step 1 rank 3 gets an input that it does not expect; its gradient is as expected.
      const bool wrong = step == 1 && group.rank() == 1;
      both.output = Tensors{Upload(group, filled(wrong ? DataType::kF32 : DataType::kI32, own))};
      both.input_gradient = Tensors{Upload(group, filled(DataType::kI32, own + 1000))};
      both.input.expected = both.output_gradient.expected = {{DataType::kI32, std::nullopt}};
      const auto got = stage.SendForwardBackwardRecvForwardBackward(both, mine);
      if (step == 1) {
        EXPECT_EQ(got.status().code(), absl::StatusCode::kInvalidArgument) << got.status();
        EXPECT_THAT(std::string(got.status().message()), HasSubstr("expects i32"));
        continue;
      }
      COHORT_RETURN_IF_ERROR(got.status());
      const auto is = [&](const Tensors& tensors, int32_t first) {
        EXPECT_EQ(ElementsOf(Download(group, tensors[0])),
                  ElementsOf(filled(DataType::kI32, first)))
            << "rank " << group.rank() << ", step " << step;
      };
      is(*got->input, from + 10 * step);
      is(*got->output_gradient, from + 10 * step + 1000);
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(ScatterGatherTest, OneMembersErrorReachesRanksThatGatherNothing) {
  PipelineCall call;
  call.scatter_gather_tensors = true;
  call.scattered = {false};
  OnStages([&](Group& group, Pipeline& stage) -> absl::Status {
    const DataType type = group.rank() == 1 ? DataType::kI32 : DataType::kF32;
    if (group.rank() < 2) return stage.SendForward({Upload(group, Tensor::Zeros(type, {8}))}, call);
    PipelineReceive input;
    input.expected = {{DataType::kF32, std::nullopt}};
    return stage.RecvForward(input, call).status();
  }).IgnoreError();
  for (const int r : {2, 3}) {
    const absl::Status& status = statuses_[static_cast<size_t>(r)];
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("expects f32"));
  }
}

TEST_P(ScatterGatherTest, SlicesOfTwoMicroBatchesAreNotGathered) {
  PipelineCall call;
  call.scatter_gather_tensors = true;
  OnStagesWithMessages([&](Group& group, Pipeline& stage, Messages& messages) -> absl::Status {
    const Tensor eight = Upload(group, Tensor::Zeros(DataType::kF32, {8}));
    if (group.rank() == 0) {
      for (int i = 0; i < 2; ++i) COHORT_RETURN_IF_ERROR(stage.SendForward({eight}, call));
      return absl::OkStatus();
    }
    if (group.rank() == 1) return stage.SendForward({eight}, call);
    // This rank loses its first slice.
    if (group.rank() == 2) {
      COHORT_RETURN_IF_ERROR(messages.Receive(0, parallel::kPipelineChannel).status());
    }
    return stage.RecvForward({}, call).status();
  }).IgnoreError();
  for (const int r : {2, 3}) {
    const absl::Status& status = statuses_[static_cast<size_t>(r)];
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0 has number 2"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 has number 1"));
  }
}

// Rank 1 has counted a send that failed; in the next generation both senders count from one.
TEST_P(ScatterGatherTest, SlicesAreCountedAnewInEachGeneration) {
  PipelineCall call;
  call.scatter_gather_tensors = true;
  const absl::Status status = OnStages([&](Group& group, Pipeline& stage) -> absl::Status {
    const Tensor eight = Upload(group, Tensor::Zeros(DataType::kF32, {8}));
    const auto pass_on = [&]() -> absl::Status {
      if (group.rank() < 2) return stage.SendForward({eight}, call);
      return stage.RecvForward({}, call).status();
    };
    COHORT_RETURN_IF_ERROR(pass_on());
    if (group.rank() == 1) {
      PipelineCall wrong = call;
      wrong.scattered = {true, true};
      EXPECT_EQ(stage.SendForward({eight}, wrong).code(), absl::StatusCode::kInvalidArgument);
    }
    COHORT_RETURN_IF_ERROR(group.Barrier());
    COHORT_RETURN_IF_ERROR(group.Rejoin(absl::Seconds(60)));
    return pass_on();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(ScatterGatherTest, SlicesWithoutAGatheringGroupAreRejected) {
  PipelineCall call;
  call.scatter_gather_tensors = true;
  OnStages([&](Group& group, Pipeline& stage) -> absl::Status {
    const Tensor eight = Upload(group, Tensor::Zeros(DataType::kF32, {8}));
    if (group.rank() < 2) return stage.SendForward({eight}, call);
    return stage.RecvForward().status();
  }).IgnoreError();
  for (const absl::Status& status : statuses_) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("does not gather"));
  }
}

// A tensor group of two members with the same slices; it records the time that each call may take.
class TimedTensorGroup : public client::LoneGroup {
 public:
  std::vector<absl::Duration> given;

  int size() const override { return 2; }
  absl::Status Run(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                   const client::CallOptions& options) override {
    given.push_back(options.timeout.value_or(absl::InfiniteDuration()));
    if (call.collective == Collective::kExchangeSizes) {
      const auto own = *static_cast<const int64_t*>(input.data());
      std::fill_n(static_cast<int64_t*>(output.data()), output.count(), own);
    }
    return absl::OkStatus();
  }
};

TEST_P(ScatterGatherTest, ACallHasOneTimeout) {
  MakeGroup(2);
  ExpectOk(OnRanks([&](Group& group) -> absl::Status {
    TimedTensorGroup tensor_group;
    Messages messages(group);
    PipelineOptions options;
    options.tensor_group = &tensor_group;
    Pipeline stage(messages, options);
    PipelineCall call;
    call.scatter_gather_tensors = true;
    call.options.timeout = absl::Seconds(60);
    if (group.rank() == 0) {
      return stage.SendForward({Tensor::Zeros(DataType::kF32, {8})}, call);
    }
    COHORT_RETURN_IF_ERROR(stage.RecvForward({}, call).status());
    // The message, the numbers, the slices: each has the time that the earlier ones left.
    EXPECT_EQ(tensor_group.given.size(), 2u);
    absl::Duration left = *call.options.timeout;
    for (const absl::Duration given : tensor_group.given) {
      EXPECT_LT(given, left);
      left = given;
    }
    return absl::OkStatus();
  }));
}

INSTANTIATE_TEST_SUITE_P(Forms, ScatterGatherTest, ::testing::ValuesIn(kForms), FormName);

}  // namespace
}  // namespace cohort::testing
