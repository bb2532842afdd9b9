// The replies that one thread delivers together. Each connection writes its part of them once, at
// the end.
#ifndef COHORT_BASE_FRAMED_RPC_REPLY_BATCH_H_
#define COHORT_BASE_FRAMED_RPC_REPLY_BATCH_H_

#include <memory>
#include <utility>
#include <vector>

namespace cohort::framed_rpc {

// Thread-compatible.
class ReplyBatch {
 public:
  class Output {
   public:
    virtual ~Output() = default;
    virtual void Flush() = 0;
  };

  // Holds `output` until Flush, which flushes it.
  void Add(std::shared_ptr<Output> output) { outputs_.push_back(std::move(output)); }
  void Flush() {
    for (const std::shared_ptr<Output>& output : outputs_) output->Flush();
  }

 private:
  std::vector<std::shared_ptr<Output>> outputs_;
};

}  // namespace cohort::framed_rpc

#endif  // COHORT_BASE_FRAMED_RPC_REPLY_BATCH_H_
