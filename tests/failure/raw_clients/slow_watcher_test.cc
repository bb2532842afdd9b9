// Watchers that do not read their streams cost the coordinator little, and get an error if they
// missed events.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/child_process.h"
#include "tests/failure/testing/members.h"
#include "tests/failure/testing/stubs.h"
#include "tests/testing/coordinator_process.h"

namespace cohort {
namespace {

using testing::CoordinatorProcess;
using testing::kTimeout;
using testing::Stubs;

constexpr int64_t kMiB = 1 << 20;
constexpr int kWatchers = 20;

class SlowWatcherTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(coordinator_.Start().ok());
    stubs_ = std::make_unique<Stubs>(coordinator_.address());
    v1::JoinResponse response;
    const grpc::Status joined = stubs_->groups->Join(
        testing::Context().get(), testing::JoinRequestOf("group", 0, 1), &response);
    ASSERT_TRUE(joined.ok()) << joined.error_message();
    scope_.set_group("group");
    scope_.set_generation(response.generation());
    scope_.set_session(response.session());
  }

  // An open stream that the test does not read.
  template <typename Response>
  struct Watcher {
    std::unique_ptr<Stubs> stubs;
    std::unique_ptr<grpc::ClientContext> context;
    std::unique_ptr<grpc::ClientReader<Response>> stream;
    ~Watcher() {
      if (stream == nullptr) return;
      context->TryCancel();
      Response response;
      while (stream->Read(&response)) {
      }
      stream->Finish();
    }
  };

  CoordinatorProcess coordinator_{{}};
  std::unique_ptr<Stubs> stubs_;
  v1::Scope scope_;
};

TEST_F(SlowWatcherTest, AGroupWatcherIsBoundedAndLearnsIfItMissedAnEvent) {
  constexpr int kEvents = 12000;
  std::vector<std::unique_ptr<Watcher<v1::WatchGroupResponse>>> watchers;
  v1::WatchGroupRequest watch;
  watch.mutable_scope()->set_group("group");
  for (int index = 0; index < kWatchers; ++index) {
    auto watcher = std::make_unique<Watcher<v1::WatchGroupResponse>>();
    watcher->stubs = std::make_unique<Stubs>(coordinator_.address(), index + 1);
    watcher->context = testing::Context(kTimeout * 2);
    watcher->stream = watcher->stubs->groups->WatchGroup(watcher->context.get(), watch);
    watcher->stream->WaitForInitialMetadata();
    watchers.push_back(std::move(watcher));
  }
  const int64_t before = testing::ResidentBytes(coordinator_.pid());
  v1::ReportErrorRequest report;
  *report.mutable_scope() = scope_;
  report.set_detail(std::string(1000, 'e'));
  for (int index = 0; index < kEvents; ++index) {
    v1::ReportErrorResponse response;
    const grpc::Status status =
        stubs_->groups->ReportError(testing::Context().get(), report, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  const int64_t grown = testing::ResidentBytes(coordinator_.pid()) - before;
  std::cout << kEvents << " events of 1 kB, " << kWatchers
            << " watchers that do not read: " << grown / kMiB << " MiB more" << std::endl;
  // All events for each watcher would be 240 MB; the log itself keeps 4096 events.
  EXPECT_LT(grown, 60 * kMiB);

  // The events that a watcher reads in the end have no gap, whether or not the stream was cut
  // short.
  v1::WatchGroupResponse response;
  int64_t last = 0;
  int64_t event_count = 0;
  while (event_count < kEvents && watchers[0]->stream->Read(&response)) {
    for (const v1::GroupEvent& event : response.events()) {
      ASSERT_TRUE(last == 0 || event.revision() == last + 1)
          << last << " then " << event.revision();
      last = event.revision();
      ++event_count;
    }
  }
  if (event_count < kEvents) {
    const grpc::Status status = watchers[0]->stream->Finish();
    watchers[0]->stream = nullptr;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::OUT_OF_RANGE) << status.error_message();
  }
  std::cout << "read afterwards: " << event_count << " events" << std::endl;
}

TEST_F(SlowWatcherTest, AKeyWatcherIsBoundedWhenOneKeyIsOverwrittenForEver) {
  constexpr int kPuts = 3000;
  constexpr int64_t kValueBytes = 64 << 10;
  std::vector<std::unique_ptr<Watcher<v1::WatchResponse>>> watchers;
  v1::WatchRequest watch;
  watch.mutable_scope()->set_group("group");
  for (int index = 0; index < kWatchers; ++index) {
    auto watcher = std::make_unique<Watcher<v1::WatchResponse>>();
    watcher->stubs = std::make_unique<Stubs>(coordinator_.address(), index + 1);
    watcher->context = testing::Context(kTimeout * 2);
    watcher->stream = watcher->stubs->store->Watch(watcher->context.get(), watch);
    watcher->stream->WaitForInitialMetadata();
    watchers.push_back(std::move(watcher));
  }
  const int64_t before = testing::ResidentBytes(coordinator_.pid());
  v1::PutRequest put;
  *put.mutable_scope() = scope_;
  put.set_key("weights");
  put.set_value(std::string(kValueBytes, 'v'));
  for (int index = 0; index < kPuts; ++index) {
    v1::PutResponse response;
    const grpc::Status status = stubs_->store->Put(testing::Context().get(), put, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  const int64_t grown = testing::ResidentBytes(coordinator_.pid()) - before;
  std::cout << kPuts << " writes of one key of 64 KiB, " << kWatchers
            << " watchers that do not read: " << grown / kMiB << " MiB more" << std::endl;
  // All values for each watcher would be 190 MB, and so would one log of them.
  EXPECT_LT(grown, 100 * kMiB);

  v1::WatchResponse response;
  int64_t last = 0;
  int64_t event_count = 0;
  while (event_count < kPuts && watchers[0]->stream->Read(&response)) {
    for (const v1::KeyEvent& event : response.events()) {
      ASSERT_TRUE(last == 0 || event.key_value().revision() == last + 1)
          << last << " then " << event.key_value().revision();
      last = event.key_value().revision();
      ++event_count;
    }
  }
  if (event_count < kPuts) {
    const grpc::Status status = watchers[0]->stream->Finish();
    watchers[0]->stream = nullptr;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::OUT_OF_RANGE) << status.error_message();
  }
  std::cout << "read afterwards: " << event_count << " events" << std::endl;
}

}  // namespace
}  // namespace cohort
