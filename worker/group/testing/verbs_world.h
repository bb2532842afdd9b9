// The ranks of a group, each on a thread of its own, for tests of the layers above communicators.
#ifndef COHORT_WORKER_GROUP_TESTING_VERBS_WORLD_H_
#define COHORT_WORKER_GROUP_TESTING_VERBS_WORLD_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/tensor.h"
#include "worker/communicator/communicator.h"
#include "worker/group/tensor_place.h"
#include "worker/group/tensor_verbs.h"

namespace cohort::worker {

enum class Medium {
  kHeap,     // shared memory; tensors and scratch in heaps that all ranks map
  kMixed,    // like kHeap, but every second tensor is in memory of the process
  kProcess,  // shared memory; tensors and scratch in memory of the process
  kSocket,
};

std::string NameOf(Medium medium);

class VerbsWorld {
 public:
  VerbsWorld(Medium medium, int size);
  virtual ~VerbsWorld() = default;

  int size() const { return static_cast<int>(verbs_.size()); }
  TensorVerbs& rank(int rank) { return *verbs_[static_cast<size_t>(rank)]; }
  Communicator& communicator(int rank) { return *communicators_[static_cast<size_t>(rank)]; }
  // Allocates a tensor in the medium's memory; this process can read it.
  virtual Tensor Allocate(DataType type, const Shape& shape);
  // The same elements, in the form that a rank passes to its verbs.
  virtual Tensor Seen(int /*rank*/, const Tensor& tensor) { return tensor; }
  // Waits until the calls of a rank are done.
  virtual absl::Status Await(int /*rank*/) { return absl::OkStatus(); }
  virtual bool Reduces(DataType type, ReduceOp op) { return CheckReducible(type, op).ok(); }

  // Runs `body` on all ranks. Returns the statuses, by rank.
  std::vector<absl::Status> Run(const std::function<absl::Status(TensorVerbs&)>& body);

 protected:
  VerbsWorld(Medium medium, std::vector<std::unique_ptr<Communicator>> communicators);
  std::vector<std::unique_ptr<TensorVerbs>>& verbs() { return verbs_; }
  // Called before the members of a derived class end, because verbs and communicators use them.
  void Clear() {
    verbs_.clear();
    communicators_.clear();
  }

 private:
  const Medium medium_;
  HostPlace place_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::vector<std::unique_ptr<TensorVerbs>> verbs_;
  int allocated_ = 0;
};

Instant Soon();
void ExpectOk(const std::vector<absl::Status>& statuses, const std::string& what);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_TESTING_VERBS_WORLD_H_
