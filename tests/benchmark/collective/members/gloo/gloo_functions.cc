#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>

#include "tests/benchmark/collective/members/gloo/gloo_work.h"

namespace cohort::benchmark {
namespace {

GlooCall AllReduceCall(const GlooTask& task, int64_t elements) {
  auto options = std::make_shared<gloo::AllreduceOptions>(task.context);
  options->setAlgorithm(task.algorithm == "bcube" ? gloo::AllreduceOptions::Algorithm::BCUBE
                                                  : gloo::AllreduceOptions::Algorithm::RING);
  options->setInput(task.input, elements);
  options->setOutput(task.output, elements);
  void (*sum)(void*, const void*, const void*, size_t) = &gloo::sum<float>;
  options->setReduceFunction(sum);
  return [options] { gloo::allreduce(*options); };
}

GlooCall SendReceiveCall(const GlooTask& task, int64_t elements) {
  const int size = task.context->size;
  const int next = (task.context->rank + 1) % size;
  const int previous = (task.context->rank + size - 1) % size;
  std::shared_ptr<gloo::transport::UnboundBuffer> input =
      task.context->createUnboundBuffer(task.input, elements * sizeof(float));
  std::shared_ptr<gloo::transport::UnboundBuffer> output =
      task.context->createUnboundBuffer(task.output, elements * sizeof(float));
  const auto timeout = task.context->getTimeout();
  return [=] {
    constexpr uint64_t kSlot = 1 << 20;
    output->recv(previous, kSlot);
    input->send(next, kSlot);
    output->waitRecv(timeout);
    input->waitSend(timeout);
  };
}

}  // namespace

GlooCall MakeFunctionCall(const GlooTask& task) {
  const Extents extents = ExtentsOf(task.work, task.context->rank, task.context->size);
  switch (task.work.collective) {
    case Collective::kAllReduce:
      return AllReduceCall(task, extents.input);
    case Collective::kAllGather: {
      auto options = std::make_shared<gloo::AllgatherOptions>(task.context);
      options->setInput(task.input, extents.input);
      options->setOutput(task.output, extents.output);
      return [options] { gloo::allgather(*options); };
    }
    case Collective::kBroadcast: {
      auto options = std::make_shared<gloo::BroadcastOptions>(task.context);
      // In place at the root.
      options->setOutput(task.context->rank == 0 ? task.input : task.output,
                         extents.input + extents.output);
      options->setRoot(0);
      return [options] { gloo::broadcast(*options); };
    }
    case Collective::kAllToAll: {
      auto options = std::make_shared<gloo::AlltoallOptions>(task.context);
      options->setInput(task.input, extents.input);
      options->setOutput(task.output, extents.output);
      return [options] { gloo::alltoall(*options); };
    }
    case Collective::kExchange:
      return SendReceiveCall(task, extents.input);
    default:
      return nullptr;
  }
}

}  // namespace cohort::benchmark
