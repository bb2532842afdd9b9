// The fixture of tests whose ranks send each other messages.
#ifndef COHORT_TESTS_PARALLEL_TESTING_MESSAGES_TEST_BASE_H_
#define COHORT_TESTS_PARALLEL_TESTING_MESSAGES_TEST_BASE_H_

#include <memory>
#include <vector>

#include "client/parallel/messages/messages.h"
#include "tests/parallel/testing/parallel_test_base.h"

namespace cohort::testing {

class MessagesFixture : public ParallelTest {
 protected:
  // By rank, of MakeGroup's group.
  void MakeMessages(int size, const parallel::MessagesOptions& options = {}) {
    messages_.clear();
    MakeGroup(size);
    for (int r = 0; r < size; ++r) {
      messages_.push_back(std::make_unique<parallel::Messages>(rank(r), options));
    }
  }
  void TearDown() override {
    messages_.clear();
    ParallelTest::TearDown();
  }
  parallel::Messages& of(client::Group& group) {
    return *messages_[static_cast<size_t>(group.rank())];
  }

 private:
  std::vector<std::unique_ptr<parallel::Messages>> messages_;
};

}  // namespace cohort::testing

#endif  // COHORT_TESTS_PARALLEL_TESTING_MESSAGES_TEST_BASE_H_
