#include <gloo/allgather_ring.h>
#include <gloo/allreduce_bcube.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/reduce_scatter.h>

#include <cstring>
#include <vector>

#include "tests/benchmark/collective/members/gloo/gloo_work.h"

namespace cohort::benchmark {
namespace {

// Sends blocks of one buffer to other ranks, and receives blocks into another, with bound buffers.
// A rank sends a block once its receiver has reported that the last block is done with.
class Exchange {
 public:
  struct Peer {
    int rank = 0;
    float* block = nullptr;
    int64_t elements = 0;
  };

  Exchange(gloo::Context& context, const std::vector<Peer>& to, const std::vector<Peer>& from) {
    const int data = context.nextSlot();
    const int ready = context.nextSlot();
    for (const Peer& peer : to) {
      auto& pair = context.getPair(peer.rank);
      to_.push_back({pair->createSendBuffer(data, peer.block, peer.elements * sizeof(float)),
                     pair->createRecvBuffer(ready, &token_, sizeof(token_))});
    }
    for (const Peer& peer : from) {
      auto& pair = context.getPair(peer.rank);
      from_.push_back({pair->createRecvBuffer(data, peer.block, peer.elements * sizeof(float)),
                       pair->createSendBuffer(ready, &token_, sizeof(token_))});
    }
  }

  void Run() {
    for (Side& side : from_) side.ready->send();
    for (Side& side : to_) {
      side.ready->waitRecv();
      side.data->send();
    }
    for (Side& side : from_) side.data->waitRecv();
    for (Side& side : to_) side.data->waitSend();
    for (Side& side : from_) side.ready->waitSend();
  }

 private:
  struct Side {
    std::unique_ptr<gloo::transport::Buffer> data;
    std::unique_ptr<gloo::transport::Buffer> ready;
  };

  int token_ = 0;
  std::vector<Side> to_;
  std::vector<Side> from_;
};

// Copies the input to where the algorithm works, and runs it.
GlooCall InPlace(const GlooTask& task, int64_t elements,
                 std::shared_ptr<gloo::Algorithm> algorithm) {
  return [input = task.input, output = task.output, elements, algorithm] {
    std::memcpy(output, input, elements * sizeof(float));
    algorithm->run();
  };
}

GlooCall AllReduceCall(const GlooTask& task, int count) {
  const std::vector<float*> pointers = {task.output};
  std::shared_ptr<gloo::Algorithm> algorithm;
  if (task.algorithm == "class-ring-chunked") {
    algorithm = std::make_shared<gloo::AllreduceRingChunked<float>>(task.context, pointers, count);
  } else if (task.algorithm == "class-bcube") {
    algorithm = std::make_shared<gloo::AllreduceBcube<float>>(task.context, pointers, count);
  } else {
    algorithm =
        std::make_shared<gloo::AllreduceHalvingDoubling<float>>(task.context, pointers, count);
  }
  return InPlace(task, count, std::move(algorithm));
}

GlooCall AllToAllCall(const GlooTask& task) {
  const int rank = task.context->rank;
  const int size = task.context->size;
  const int64_t block = BlockElements(task.work, size);
  std::vector<Exchange::Peer> to;
  std::vector<Exchange::Peer> from;
  for (int i = 1; i < size; ++i) {
    const int next = (rank + i) % size;
    const int previous = (rank + size - i) % size;
    to.push_back({next, task.input + next * block, block});
    from.push_back({previous, task.output + previous * block, block});
  }
  auto exchange = std::make_shared<Exchange>(*task.context, to, from);
  return [=] {
    std::memcpy(task.output + rank * block, task.input + rank * block, block * sizeof(float));
    exchange->Run();
  };
}

GlooCall SendReceiveCall(const GlooTask& task, int64_t elements) {
  const int size = task.context->size;
  const int next = (task.context->rank + 1) % size;
  const int previous = (task.context->rank + size - 1) % size;
  const std::vector<Exchange::Peer> to = {{next, task.input, elements}};
  const std::vector<Exchange::Peer> from = {{previous, task.output, elements}};
  auto exchange = std::make_shared<Exchange>(*task.context, to, from);
  return [exchange] { exchange->Run(); };
}

}  // namespace

GlooCall MakeClassCall(const GlooTask& task) {
  const int size = task.context->size;
  const Extents extents = ExtentsOf(task.work, task.context->rank, size);
  const int count = static_cast<int>(extents.input + extents.output);
  switch (task.work.collective) {
    case Collective::kAllReduce:
      return AllReduceCall(task, static_cast<int>(extents.input));
    case Collective::kReduceScatter:
      return InPlace(
          task, extents.input,
          std::make_shared<gloo::ReduceScatterHalvingDoubling<float>>(
              task.context, std::vector<float*>{task.output}, static_cast<int>(extents.input),
              std::vector<int>(size, static_cast<int>(extents.output))));
    case Collective::kBroadcast: {
      auto algorithm = std::make_shared<gloo::BroadcastOneToAll<float>>(
          task.context, std::vector<float*>{task.context->rank == 0 ? task.input : task.output},
          count);
      return [algorithm] { algorithm->run(); };
    }
    case Collective::kAllGather: {
      auto algorithm = std::make_shared<gloo::AllgatherRing<float>>(
          task.context, std::vector<const float*>{task.input}, task.output,
          static_cast<int>(extents.input));
      return [algorithm] { algorithm->run(); };
    }
    case Collective::kAllToAll:
      return AllToAllCall(task);
    case Collective::kExchange:
      return SendReceiveCall(task, extents.input);
    default:
      return nullptr;
  }
}

}  // namespace cohort::benchmark
