// A communicator of the fake NCCL: the object behind ncclComm_t. For the fake's sources alone.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_API_TESTING_FAKE_NCCL_COMM_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_API_TESTING_FAKE_NCCL_COMM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "worker/communicator/nccl/api/testing/fake_nccl_api.h"

// Guarded by the lock of its FakeNcclApi. It stays after its end, so that a later use is detected.
struct ncclComm {
  struct PreMulSum {
    ncclDataType_t type = ncclFloat32;
    cohort::worker::FakeScalar scalar{};
    const void* memory = nullptr;
  };

  cohort::worker::FakeNcclApi::FoundingPtr founding;
  int rank = 0;
  int device = 0;
  bool blocking = true;

  bool gone = false;
  bool revoked = false;
  bool finalized = false;
  ncclResult_t error = ncclSuccess;
  // The first operations, while they connect.
  bool connected = false;
  int polls_to_connect = 0;
  std::vector<std::unique_ptr<cohort::worker::FakeNcclApi::Batch>> connecting;
  int on_streams = 0;  // batches that are not done
  // They run in the order in which they were issued, on whatever streams, until they are stopped.
  int64_t batches = 0;
  int64_t batches_done = 0;
  bool stopped = false;
  std::map<int, PreMulSum> ops;
  std::map<void*, void*> buffers;  // by handle
  std::map<void*, void*> windows;
};

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_API_TESTING_FAKE_NCCL_COMM_H_
