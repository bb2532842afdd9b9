// Transfers of pipeline stages, on groups of every form. One file, though long: the nine transfers
// are one table of senders and receivers.
#include "client/parallel/pipeline/pipeline.h"

#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/testing/random_tensor.h"
#include "client/collective/async_calls.h"
#include "client/parallel/collectives/send_receive.h"
#include "client/parallel/pipeline/ring_shift.h"
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
using parallel::ReceiveCache;
using parallel::TensorMeta;
using parallel::Tensors;
using ::testing::HasSubstr;

// Large enough that the sender asks the receiver first.
constexpr int64_t kLarge = 30000;

class PipelineTest : public ParallelTest {
 protected:
  void MakeStages(int size, const PipelineOptions& options = {}) {
    pipelines_.clear();
    messages_.clear();
    MakeGroup(size);
    for (int r = 0; r < size; ++r) {
      messages_.push_back(std::make_unique<Messages>(rank(r)));
      pipelines_.push_back(std::make_unique<Pipeline>(*messages_.back(), options));
    }
  }
  void TearDown() override {
    pipelines_.clear();
    messages_.clear();
    ParallelTest::TearDown();
  }
  Pipeline& of(Group& group) { return *pipelines_[static_cast<size_t>(group.rank())]; }
  Messages& messages(Group& group) { return *messages_[static_cast<size_t>(group.rank())]; }

  // Types, shapes and elements depend on the seed; the first `large` tensor is so large that the
  // sender asks first.
  static Tensors Expected(uint32_t seed, bool large) {
    std::mt19937 random(seed * 7919 + (large ? 1 : 0));
    Tensors tensors;
    for (size_t count = 1 + random() % 3; count > 0; --count) {
      Shape shape;
      for (size_t dims = random() % 3; dims > 0; --dims) shape.push_back(random() % 4);
      if (large && tensors.empty()) shape = {3, kLarge};
      const DataType type = kDataTypes[random() % kDataTypes.size()];
      tensors.push_back(Tensor::Zeros(type, shape));
      auto* const bytes = static_cast<unsigned char*>(tensors.back().data());
      for (int64_t i = 0; i < tensors.back().bytes(); ++i) {
        bytes[i] = static_cast<unsigned char>(random());
      }
    }
    return tensors;
  }
  static Tensors Make(Group& group, uint32_t seed, bool large) {
    Tensors tensors = Expected(seed, large);
    for (Tensor& tensor : tensors) tensor = Upload(group, tensor);
    return tensors;
  }
  static absl::Status Same(Group& group, const std::optional<Tensors>& got, const Tensors& want) {
    if (!got.has_value()) return absl::InternalError("none was received");
    if (got->size() != want.size()) return absl::InternalError("another number of tensors");
    for (size_t i = 0; i < want.size(); ++i) {
      const Tensor& tensor = (*got)[i];
      if (tensor.type() != want[i].type() || tensor.shape() != want[i].shape()) {
        return absl::InternalError(absl::StrCat(tensor.ToString(), " for ", want[i].ToString()));
      }
      if (!tensor.contiguous()) return absl::InternalError("a strided result");
      if (ElementsOf(Download(group, tensor)) != ElementsOf(want[i])) {
        return absl::InternalError(absl::StrCat("rank ", group.rank(), ": other elements of ", i));
      }
    }
    return absl::OkStatus();
  }
  static absl::Status Is(Group& group, const std::optional<Tensors>& got, uint32_t seed,
                         bool large) {
    return Same(group, got, Expected(seed, large));
  }

  // A shift by one returns the tensor that the previous rank passes to it.
  void ExpectShift() {
    ExpectOk(OnRanks([&](Group& group) -> absl::Status {
      const auto tensor = [](int rank) {
        return Expected(static_cast<uint32_t>(rank) + 1, true)[0];
      };
      COHORT_ASSIGN_OR_RETURN(const Tensor got,
                              RingShift(messages(group), Upload(group, tensor(group.rank()))));
      return Same(group, Tensors{got}, {tensor((group.rank() + size() - 1) % size())});
    }));
  }

  std::vector<std::unique_ptr<Messages>> messages_;
  std::vector<std::unique_ptr<Pipeline>> pipelines_;
};

// The seed of forward (0) or backward (1) transfer `step` from `rank`.
uint32_t Seed(int rank, int direction, int step = 0) {
  return static_cast<uint32_t>((step * 16 + rank) * 2 + direction + 1);
}

TEST_P(PipelineTest, DefaultChannelsAreNotThoseOfSendAndReceive) {
  MakeStages(2);
  const Tensors first = Expected(1, false);
  ExpectOk(OnRanks([&](Group& group) -> absl::Status {
    if (group.rank() == 0) {
      COHORT_RETURN_IF_ERROR(parallel::Send(messages(group), Upload(group, first[0])));
      COHORT_RETURN_IF_ERROR(of(group).SendForward(Make(group, 2, false)));
      COHORT_ASSIGN_OR_RETURN(const Tensor back, parallel::Receive(messages(group)));
      COHORT_RETURN_IF_ERROR(Same(group, Tensors{back}, {first[0]}));
      COHORT_ASSIGN_OR_RETURN(const auto gradient, of(group).RecvBackward());
      return Is(group, gradient, 3, false);
    }
    COHORT_ASSIGN_OR_RETURN(const auto input, of(group).RecvForward());
    COHORT_RETURN_IF_ERROR(Is(group, input, 2, false));
    COHORT_ASSIGN_OR_RETURN(const Tensor sent, parallel::Receive(messages(group)));
    COHORT_RETURN_IF_ERROR(of(group).SendBackward(Make(group, 3, false)));
    return parallel::Send(messages(group), sent);
  }));
}

TEST_P(PipelineTest, ForwardAndBackward) {
  for (const int size : {1, 2, 3, 4, 8}) {
    MakeStages(size);
    for (const bool large : {false, true}) {
      SCOPED_TRACE(absl::StrCat(size, " stages, ", large ? "large" : "small"));
      ExpectOk(OnRanks([&](Group& group) -> absl::Status {
        Pipeline& stage = of(group);
        const int own = group.rank();
        COHORT_ASSIGN_OR_RETURN(const auto input, stage.RecvForward());
        EXPECT_EQ(input.has_value(), own > 0);
        if (own > 0) COHORT_RETURN_IF_ERROR(Is(group, input, Seed(own - 1, 0), large));
        // The last stage has no next one, and sends nothing.
        COHORT_RETURN_IF_ERROR(stage.SendForward(Make(group, Seed(own, 0), large)));
        COHORT_ASSIGN_OR_RETURN(const auto gradient, stage.RecvBackward());
        EXPECT_EQ(gradient.has_value(), own < size - 1);
        if (own < size - 1) COHORT_RETURN_IF_ERROR(Is(group, gradient, Seed(own + 1, 1), large));
        return stage.SendBackward(Make(group, Seed(own, 1), large));
      }));
    }
  }
}

// One forward, one backward: the schedule that the combined calls are for.
TEST_P(PipelineTest, OneForwardOneBackward) {
  for (const int size : {1, 2, 3, 4, 8}) {
    MakeStages(size);
    constexpr int kSteps = 10;
    ExpectOk(OnRanks([&](Group& group) -> absl::Status {
      Pipeline& stage = of(group);
      const int own = group.rank();
      const bool first = own == 0;
      const bool last = own == size - 1;
      const bool large = size < 8;
      int inputs = 0;
      int gradients = 0;
      int outputs = 0;
      int results = 0;
      const auto check_input = [&](const std::optional<Tensors>& input) {
        return first ? absl::OkStatus() : Is(group, input, Seed(own - 1, 0, inputs++), large);
      };
      const auto check_gradient = [&](const std::optional<Tensors>& gradient) {
        return last ? absl::OkStatus() : Is(group, gradient, Seed(own + 1, 1, gradients++), large);
      };
      const auto output = [&] { return Make(group, Seed(own, 0, outputs++), large); };
      const auto result = [&] { return Make(group, Seed(own, 1, results++), large); };

      const int warmup = std::min(size - own - 1, kSteps);
      for (int i = 0; i < warmup; ++i) {
        COHORT_ASSIGN_OR_RETURN(const auto input, stage.RecvForward());
        COHORT_RETURN_IF_ERROR(check_input(input));
        COHORT_RETURN_IF_ERROR(stage.SendForward(output()));
      }
      COHORT_ASSIGN_OR_RETURN(auto input, stage.RecvForward());
      for (int i = warmup; i < kSteps; ++i) {
        COHORT_RETURN_IF_ERROR(check_input(input));
        Pipeline::ForwardBackward forward;
        if (!last) forward.output = output();
        COHORT_ASSIGN_OR_RETURN(const auto gradient, stage.SendForwardRecvBackward(forward));
        COHORT_RETURN_IF_ERROR(check_gradient(gradient));
        Pipeline::BackwardForward backward;
        if (!first) backward.input_gradient = result();
        backward.recv_prev = i + 1 < kSteps;
        COHORT_ASSIGN_OR_RETURN(input, stage.SendBackwardRecvForward(backward));
      }
      for (int i = 0; i < warmup; ++i) {
        COHORT_ASSIGN_OR_RETURN(const auto gradient, stage.RecvBackward());
        COHORT_RETURN_IF_ERROR(check_gradient(gradient));
        COHORT_RETURN_IF_ERROR(stage.SendBackward(result()));
      }
      return absl::OkStatus();
    }));
  }
}

TEST_P(PipelineTest, Rings) {
  PipelineOptions options;
  options.wrap = true;
  for (const int size : {2, 3, 4, 8}) {
    MakeStages(size, options);
    for (const bool large : {false, true}) {
      SCOPED_TRACE(absl::StrCat(size, " stages, ", large ? "large" : "small"));
      ExpectOk(OnRanks([&](Group& group) -> absl::Status {
        Pipeline& stage = of(group);
        const int own = group.rank();
        const int next = (own + 1) % size;
        const int previous = (own + size - 1) % size;
        Pipeline::ForwardForward forward;
        forward.output = Make(group, Seed(own, 0), large);
        COHORT_ASSIGN_OR_RETURN(const auto input, stage.SendForwardRecvForward(forward));
        COHORT_RETURN_IF_ERROR(Is(group, input, Seed(previous, 0), large));
        Pipeline::BackwardBackward backward;
        backward.input_gradient = Make(group, Seed(own, 1), large);
        COHORT_ASSIGN_OR_RETURN(const auto gradient, stage.SendBackwardRecvBackward(backward));
        COHORT_RETURN_IF_ERROR(Is(group, gradient, Seed(next, 1), large));
        Pipeline::Both both;
        both.output = Make(group, Seed(own, 0, 1), large);
        both.input_gradient = Make(group, Seed(own, 1, 1), large);
        COHORT_ASSIGN_OR_RETURN(const Pipeline::Received received,
                                stage.SendForwardBackwardRecvForwardBackward(both));
        COHORT_RETURN_IF_ERROR(Is(group, received.input, Seed(previous, 0, 1), large));
        return Is(group, received.output_gradient, Seed(next, 1, 1), large);
      }));
    }
    // The first stage waits for a tensor from the last one, which waits for the first one's tensor.
    ExpectOk(OnRanks([&](Group& group) -> absl::Status {
      Pipeline& stage = of(group);
      Pipeline::ForwardForward forward;
      if (group.rank() == 0) {
        forward.output = Make(group, 77, true);
        COHORT_ASSIGN_OR_RETURN(const auto back, stage.SendForwardRecvForward(forward));
        return Is(group, back, 77, true);
      }
      COHORT_ASSIGN_OR_RETURN(const auto input, stage.SendForwardRecvForward(forward));
      forward.output = input;
      forward.recv_prev = false;
      return stage.SendForwardRecvForward(forward).status();
    }));
  }
}

TEST_P(PipelineTest, NothingIsDroppedAtTheEnds) {
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

TEST_P(PipelineTest, PeersCanBeChosen) {
  MakeStages(4);
  // Backwards through the ranks.
  ExpectOk(OnRanks([&](Group& group) -> absl::Status {
    const int own = group.rank();
    PipelineCall call;
    if (own > 0) call.next_rank = own - 1;
    if (own < 3) call.prev_rank = own + 1;
    Pipeline& stage = of(group);
    if (own < 3) {
      COHORT_ASSIGN_OR_RETURN(const auto input, stage.RecvForward({}, call));
      COHORT_RETURN_IF_ERROR(Is(group, input, Seed(own + 1, 0), true));
    }
    if (own > 0) COHORT_RETURN_IF_ERROR(stage.SendForward(Make(group, Seed(own, 0), true), call));
    PipelineCall nobody;
    nobody.next_rank = 4;
    EXPECT_EQ(stage.SendForward({}, nobody).code(), absl::StatusCode::kInvalidArgument);
    nobody.next_rank = own;
    EXPECT_EQ(stage.SendForward({}, nobody).code(), absl::StatusCode::kInvalidArgument);
    return absl::OkStatus();
  }));
}

// Two stages that are each other's next and previous one may receive the directions in any order.
TEST_P(PipelineTest, DirectionsAreApart) {
  PipelineOptions options;
  options.wrap = true;
  MakeStages(2, options);
  ExpectOk(OnRanks([&](Group& group) -> absl::Status {
    Pipeline& stage = of(group);
    if (group.rank() == 0) {
      PipelineCall to_other;
      to_other.next_rank = to_other.prev_rank = 1;
      COHORT_RETURN_IF_ERROR(stage.SendForward(Make(group, 1, false), to_other));
      return stage.SendBackward(Make(group, 2, false), to_other);
    }
    PipelineCall of_other;
    of_other.next_rank = of_other.prev_rank = 0;
    COHORT_ASSIGN_OR_RETURN(const auto gradient, stage.RecvBackward({}, of_other));
    COHORT_RETURN_IF_ERROR(Is(group, gradient, 2, false));
    COHORT_ASSIGN_OR_RETURN(const auto input, stage.RecvForward({}, of_other));
    return Is(group, input, 1, false);
  }));
}

TEST_P(PipelineTest, ExpectedTensorsAreChecked) {
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
TEST_P(PipelineTest, AnErrorOfOneSideLosesNothingOfTheOther) {
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

TEST_P(PipelineTest, ACacheIsReceivedIntoAgain) {
  MakeStages(2);
  ExpectOk(OnRanks([&](Group& group) -> absl::Status {
    Pipeline& stage = of(group);
    ReceiveCache cache;
    PipelineReceive input;
    input.cache = &cache;
    void* last = nullptr;
    // The shape changes before the last.
    for (const int64_t count : {kLarge, kLarge, kLarge + 1}) {
      const Tensor ones = Tensor::Zeros(DataType::kF32, {count});
      static_cast<float*>(ones.data())[count - 1] = 1;
      if (group.rank() == 0) {
        COHORT_RETURN_IF_ERROR(stage.SendForward({Upload(group, ones)}));
        continue;
      }
      COHORT_ASSIGN_OR_RETURN(const auto got, stage.RecvForward(input));
      COHORT_RETURN_IF_ERROR(Same(group, got, {ones}));
      if (last != nullptr) {
        EXPECT_EQ((*got)[0].data() == last, count == kLarge);
      }
      last = (*got)[0].data();
    }
    return absl::OkStatus();
  }));
}

TEST_P(PipelineTest, Meta) {
  MakeStages(3);
  ExpectOk(OnRanks([&](Group& group) -> absl::Status {
    Pipeline& stage = of(group);
    const Tensors tensors = Make(group, 9, true);
    bool need_meta = true;
    std::optional<std::vector<TensorMeta>> known;
    for (int step = 0; step < 3; ++step) {
      if (group.rank() > 0) {
        COHORT_ASSIGN_OR_RETURN(known, stage.RecvTensorMeta(known));
        if (known->size() != tensors.size()) return absl::InternalError("other tensors");
        for (size_t i = 0; i < tensors.size(); ++i) {
          EXPECT_EQ((*known)[i], parallel::MetaOf(tensors[i]));
        }
        COHORT_ASSIGN_OR_RETURN(const auto input, stage.RecvForward());
        COHORT_RETURN_IF_ERROR(Is(group, input, 9, true));
      }
      if (group.rank() == 2) continue;
      COHORT_ASSIGN_OR_RETURN(need_meta, stage.SendTensorMeta(tensors, need_meta));
      EXPECT_FALSE(need_meta);
      COHORT_RETURN_IF_ERROR(stage.SendForward(tensors));
    }
    return absl::OkStatus();
  }));
}

TEST_P(PipelineTest, Async) {
  MakeStages(3);
  ExpectOk(OnRanks([&](Group& group) -> absl::Status {
    Pipeline& stage = of(group);
    client::AsyncCalls calls(group);
    const Tensors own = Make(group, Seed(group.rank(), 0), true);
    const auto input = stage.Async<std::optional<Tensors>>(
        calls, [](Pipeline& pipeline) { return pipeline.RecvForward(); });
    const client::PendingCall sent =
        stage.AsyncSend(calls, [own](Pipeline& pipeline) { return pipeline.SendForward(own); });
    for (int twice = 0; twice < 2; ++twice) {
      COHORT_ASSIGN_OR_RETURN(const auto got, input.Wait());
      if (group.rank() > 0) {
        COHORT_RETURN_IF_ERROR(Is(group, got, Seed(group.rank() - 1, 0), true));
      }
      COHORT_RETURN_IF_ERROR(sent.Wait());
    }
    return absl::OkStatus();
  }));
}

TEST_P(PipelineTest, TheEndOfAStageIsThatOfThePipeline) {
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

TEST_P(PipelineTest, RingShift) {
  for (const int size : {1, 2, 3, 8}) {
    MakeStages(size);
    for (const int distance : {1, -1, 2, 0, size, 5}) {
      for (const bool large : {false, true}) {
        SCOPED_TRACE(absl::StrCat(size, " ranks, by ", distance));
        ExpectOk(OnRanks([&](Group& group) -> absl::Status {
          const int own = group.rank();
          const int from = ((own - distance) % size + size) % size;
          const auto tensor = [&](int rank) { return Expected(Seed(rank, 0), large)[0]; };
          const Tensor mine = Upload(group, tensor(own));
          COHORT_ASSIGN_OR_RETURN(const Tensor got, RingShift(messages(group), mine, distance));
          EXPECT_TRUE(got.count() == 0 || got.data() != mine.data());
          return Same(group, Tensors{got}, {tensor(from)});
        }));
      }
    }
  }
}

TEST_P(PipelineTest, RingShiftRejectsTensorsThatCannotBeSent) {
  for (const int size : {2, 4}) {
    MakeStages(size);
    const std::vector<absl::Status> statuses = OnRanks([&](Group& group) -> absl::Status {
      const Tensor bad(nullptr, DataType::kF32, {4});
      const Tensor good = Upload(group, Tensor::Zeros(DataType::kF32, {4}));
      return RingShift(messages(group), group.rank() == 0 ? bad : good).status();
    });
    for (const int r : {0, 1}) {
      EXPECT_EQ(statuses[static_cast<size_t>(r)].code(), absl::StatusCode::kInvalidArgument);
    }
    // Rank 0 drops the tensor that it received, so it is not the result of the next call.
    ExpectShift();
  }
}

TEST_P(PipelineTest, FailRingShiftLeavesNothingForTheNextCall) {
  for (const int size : {1, 2, 4}) {
    MakeStages(size);
    const absl::Status why = absl::InvalidArgumentError("no file");
    const std::vector<absl::Status> statuses = OnRanks([&](Group& group) -> absl::Status {
      if (group.rank() == 0) return FailRingShift(messages(group), why);
      const Tensor good = Upload(group, Expected(1, true)[0]);
      return RingShift(messages(group), good).status();
    });
    for (int r = 0; r < size; ++r) {
      const absl::Status& status = statuses[static_cast<size_t>(r)];
      EXPECT_EQ(status.ok(), r > 1) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(r > 1 ? "" : "no file"));
    }
    ExpectShift();
  }
}

TEST_P(PipelineTest, ReceiversGetTheFailureOfACall) {
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

INSTANTIATE_TEST_SUITE_P(Forms, PipelineTest, ::testing::ValuesIn(kForms), FormName);

}  // namespace
}  // namespace cohort::testing
