// A coordinator that starts with an older copy of its journal: nothing that its clients have seen
// comes a second time.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/rendezvous/process_group/process_group.h"
#include "client/rendezvous/store_client.h"
#include "gtest/gtest.h"
#include "tests/rendezvous/rendezvous_test_base.h"
#include "tests/testing/coordinator_process.h"

namespace cohort::client {
namespace {

using cohort::testing::CoordinatorProcess;
using cohort::testing::NewFolder;

class RestoreTest : public ::testing::Test {
 protected:
  // Ends the coordinator that runs.
  void Start(const std::string& journal, const std::vector<std::string>& flags = {}) {
    if (coordinator_ != nullptr) {
      ASSERT_TRUE(coordinator_->Terminate(kLong).ok());
    }
    CoordinatorProcess::Options options;
    options.flags = {"--journal", "sqlite", "--journal-path", journal};
    options.flags.insert(options.flags.end(), flags.begin(), flags.end());
    coordinator_ = std::make_unique<CoordinatorProcess>(options);
    const absl::Status started = coordinator_->Start();
    ASSERT_TRUE(started.ok()) << started;
    ConnectionOptions connection;
    connection.address = coordinator_->address();
    connection_ = *Connection::Create(connection);
    store_ = StoreClient::Create(connection_, "");
  }
  int64_t Put(const std::string& key) {
    const auto put = store_->Put(key, "value", {}, kLong);
    EXPECT_TRUE(put.ok()) << put.status();
    return put.ok() ? put->revision : 0;
  }
  // The generation of a group of one member, which leaves again.
  int64_t Generation() {
    ProcessGroupOptions options;
    options.connection.address = coordinator_->address();
    options.group = "g";
    options.rank = 0;
    options.world_size = 1;
    options.join_timeout = options.timeout = kLong;
    const auto group = ProcessGroup::Create(options);
    EXPECT_TRUE(group.ok()) << group.status();
    return group.ok() ? (*group)->generation() : 0;
  }

  const std::string folder_ = NewFolder();
  std::unique_ptr<CoordinatorProcess> coordinator_;
  std::shared_ptr<Connection> connection_;
  std::unique_ptr<StoreClient> store_;
};

TEST_F(RestoreTest, NoNumberComesASecondTime) {
  const std::string journal = folder_ + "/journal";
  const std::string copy = folder_ + "/copy";
  ASSERT_NO_FATAL_FAILURE(Start(journal));
  Put("early");
  Generation();
  ASSERT_NO_FATAL_FAILURE(Start(journal));
  ASSERT_TRUE(coordinator_->Terminate(kLong).ok());
  coordinator_.reset();
  std::filesystem::copy_file(journal, copy);
  // More starts, revisions and generations than the copy knows.
  int64_t revision = 0;
  int64_t generation = 0;
  for (int start = 0; start < 3; ++start) {
    ASSERT_NO_FATAL_FAILURE(Start(journal));
    revision = std::max(revision, Put("late"));
    generation = std::max(generation, Generation());
  }
  EXPECT_GE(generation, 4);
  ASSERT_NO_FATAL_FAILURE(Start(copy, {"--restored"}));
  EXPECT_EQ(store_->Get({"early"})->values.size(), 1u);
  EXPECT_EQ(store_->Get({"late"})->values.size(), 0u);
  const int64_t next_revision = Put("next");
  EXPECT_GT(next_revision, revision);
  const int64_t next_generation = Generation();
  EXPECT_GT(next_generation, generation);
  // The flag is for the first start alone.
  ASSERT_NO_FATAL_FAILURE(Start(copy));
  EXPECT_GT(Put("more"), next_revision);
  EXPECT_GT(Generation(), next_generation);
}

}  // namespace
}  // namespace cohort::client
