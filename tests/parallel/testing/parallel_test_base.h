// Groups of every form, for tests of the layers above groups: real coordinators and daemons, and
// ranks on threads of the test.
#ifndef COHORT_TESTS_PARALLEL_TESTING_PARALLEL_TEST_BASE_H_
#define COHORT_TESTS_PARALLEL_TESTING_PARALLEL_TEST_BASE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/tensor/tensor.h"
#include "client/collective/group.h"
#include "client/collective/group_factory.h"
#include "gtest/gtest.h"
#include "tests/worker/worker_test_base.h"

namespace cohort::testing {

enum class Form {
  kLocal,     // this process is each rank
  kDaemon,    // a daemon is; this process calls it
  kAttached,  // a daemon keeps the membership, this process computes
  kDevice,    // as kLocal, with tensors on GPUs as well: on a CUDA and an NCCL made for tests
};

std::string NameOf(Form form);

class ParallelTest : public WorkerTest, public ::testing::WithParamInterface<Form> {
 protected:
  static constexpr int kMostRanks = 8;

  // Starts what the form needs.
  void SetUp() override;
  // Destroys the groups before the processes that they depend on.
  void TearDown() override;

  // Rank r of the group `name`. Calls without a timeout of their own have `timeout`.
  absl::StatusOr<std::unique_ptr<client::Group>> Join(const std::string& name, int rank, int size,
                                                      absl::Duration timeout = absl::Seconds(60));
  // How rank r of MakeGroup's group takes a place in further groups. One thread at a time.
  client::GroupFactory FactoryOf(int rank, absl::Duration timeout = absl::Seconds(60));
  // Makes a new group of `size` ranks; the ranks of the one before leave. An error fails the test.
  void MakeGroup(int size, absl::Duration timeout = absl::Seconds(60));
  client::Group& rank(int rank) { return *groups_[static_cast<size_t>(rank)]; }
  int size() const { return static_cast<int>(groups_.size()); }

  // Runs `body` for each rank of MakeGroup's group, on a thread of its own; returns the statuses by
  // rank.
  std::vector<absl::Status> OnRanks(const std::function<absl::Status(client::Group&)>& body);

  // The same elements, in new memory where this form's tensors lie.
  static Tensor Upload(client::Group& group, const Tensor& host);
  // Contiguous, on the host.
  static Tensor Download(client::Group& group, const Tensor& tensor);
  // The very elements, as this process can touch them: memory of the test's GPUs is the host's.
  static Tensor Touchable(const Tensor& tensor);

 private:
  std::vector<std::shared_ptr<client::WorkerSession>> sessions_;  // by rank
  Groups groups_;
  int made_ = 0;
};

// All forms: INSTANTIATE_TEST_SUITE_P(Forms, MyTest, ::testing::ValuesIn(kForms), FormName).
inline constexpr Form kForms[] = {Form::kLocal, Form::kDaemon, Form::kAttached, Form::kDevice};
std::string FormName(const ::testing::TestParamInfo<Form>& info);

}  // namespace cohort::testing

#endif  // COHORT_TESTS_PARALLEL_TESTING_PARALLEL_TEST_BASE_H_
