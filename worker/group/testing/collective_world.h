// The ranks of a group, each on a thread of its own, for tests of the layers above communicators.
#ifndef COHORT_WORKER_GROUP_TESTING_COLLECTIVE_WORLD_H_
#define COHORT_WORKER_GROUP_TESTING_COLLECTIVE_WORLD_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/tensor/tensor.h"
#include "worker/communicator/communicator.h"
#include "worker/group/collectives/tensor_collectives.h"
#include "worker/group/collectives/tensor_location.h"

namespace cohort::worker {

enum class Medium {
  kHeap,     // shared memory; tensors and scratch in heaps that all ranks map
  kMixed,    // like kHeap, but every second tensor is in memory of the process
  kProcess,  // shared memory; tensors and scratch in memory of the process
  kSocket,
};

std::string NameOf(Medium medium);

class CollectiveWorld {
 public:
  CollectiveWorld(Medium medium, int size);
  virtual ~CollectiveWorld() = default;

  int size() const { return static_cast<int>(collectives_.size()); }
  TensorCollectives& rank(int rank) { return *collectives_[static_cast<size_t>(rank)]; }
  Communicator& communicator(int rank) { return *communicators_[static_cast<size_t>(rank)]; }
  // Allocates a tensor in the medium's memory; this process can read it.
  virtual Tensor Allocate(DataType type, const Shape& shape);
  // The same elements, in the form that a rank passes to its collectives.
  virtual Tensor Seen(int /*rank*/, const Tensor& tensor) { return tensor; }
  // Waits until the calls of a rank are done.
  virtual absl::Status Await(int /*rank*/) { return absl::OkStatus(); }
  virtual bool Reduces(DataType type, ReduceOp op) { return CheckReducible(type, op).ok(); }

  // Runs `body` on all ranks. Returns the statuses, by rank.
  std::vector<absl::Status> Run(const std::function<absl::Status(TensorCollectives&)>& body);

 protected:
  CollectiveWorld(Medium medium, std::vector<std::unique_ptr<Communicator>> communicators);
  std::vector<std::unique_ptr<TensorCollectives>>& collectives() { return collectives_; }
  // Called before the members of a derived class end, because collectives and communicators use
  // them.
  void Clear() {
    collectives_.clear();
    communicators_.clear();
  }

 private:
  const Medium medium_;
  HostLocation location_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::vector<std::unique_ptr<TensorCollectives>> collectives_;
  int allocated_ = 0;
};

Instant Soon();
void ExpectOk(const std::vector<absl::Status>& statuses, const std::string& what);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_TESTING_COLLECTIVE_WORLD_H_
