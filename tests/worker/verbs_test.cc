// Every verb, through daemons, on 2 and 3 ranks: near and far, plain and allocated tensors.
#include "tests/worker/worker_test_base.h"

namespace cohort {
namespace {

using testing::Way;
using testing::WorkerTest;

TEST_F(WorkerTest, AllReduceOfTwo) {
  StartWorker();
  StartWorker();
  const Groups groups = Join({Connect(0, Way::kUnix), Connect(1, Way::kTcp)}, "group");
  ExpectOk(OnRanks(groups, [](client::Group& group) -> absl::Status {
    absl::StatusOr<Tensor> tensor = group.Allocate(DataType::kF32, {1000});
    if (!tensor.ok()) return tensor.status();
    auto* const data = static_cast<float*>(tensor->data());
    for (int i = 0; i < 1000; ++i) data[i] = static_cast<float>(i + group.rank());
    const absl::Status status = group.AllReduce(*tensor, *tensor, {ReduceOp::kSum});
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(data[i], static_cast<float>(2 * i + 1));
    return status;
  }));
}

}  // namespace
}  // namespace cohort
