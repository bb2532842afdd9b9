// Transfers of pipeline stages, on groups of every form.
#include "client/parallel/pipeline/pipeline.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/collective/async_calls.h"
#include "client/parallel/collectives/send_receive.h"
#include "gtest/gtest.h"
#include "tests/parallel/testing/pipeline_test_base.h"

namespace cohort::testing {
namespace {

using client::Group;
using parallel::Pipeline;
using parallel::PipelineCall;
using parallel::PipelineOptions;
using parallel::PipelineReceive;
using parallel::ReceiveCache;
using parallel::TensorMeta;
using parallel::Tensors;

class PipelineTest : public PipelineFixture {};

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

INSTANTIATE_TEST_SUITE_P(Forms, PipelineTest, ::testing::ValuesIn(kForms), FormName);

}  // namespace
}  // namespace cohort::testing
