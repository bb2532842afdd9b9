// The base of tests of the client against a scripted coordinator.
#ifndef COHORT_CLIENT_RENDEZVOUS_TESTING_PROCESS_GROUP_TEST_BASE_H_
#define COHORT_CLIENT_RENDEZVOUS_TESTING_PROCESS_GROUP_TEST_BASE_H_

#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "client/rendezvous/process_group/process_group.h"
#include "client/rendezvous/testing/fake_coordinator.h"
#include "gtest/gtest.h"

namespace cohort::client {

inline constexpr absl::Duration kLong = absl::Seconds(20);

inline grpc::Status Away() { return grpc::Status(grpc::StatusCode::UNAVAILABLE, "away"); }
inline grpc::Status Wrong() { return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "wrong"); }

class ProcessGroupTestBase : public ::testing::Test {
 protected:
  ProcessGroupOptions Options() {
    ProcessGroupOptions options;
    options.connection.address = fake_.address();
    options.group = "g";
    options.rank = 0;
    options.world_size = 4;
    options.join_timeout = kLong;
    options.timeout = kLong;
    return options;
  }
  std::unique_ptr<ProcessGroup> Join() { return Join(Options()); }
  std::unique_ptr<ProcessGroup> Join(const ProcessGroupOptions& options) {
    auto group = ProcessGroup::Create(options);
    EXPECT_TRUE(group.ok()) << group.status();
    return group.ok() ? *std::move(group) : nullptr;
  }

  FakeCoordinator fake_;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_TESTING_PROCESS_GROUP_TEST_BASE_H_
