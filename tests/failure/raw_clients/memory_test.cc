// The coordinator counts and bounds the memory that callers make it keep. After a kill -9 the same
// state fits into the same memory. Prints resident memory for each kind of caller.
#include <sys/stat.h>

#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/child_process.h"
#include "tests/failure/testing/raw_http2.h"
#include "tests/failure/testing/stubs.h"
#include "tests/testing/coordinator_process.h"

namespace cohort {
namespace {

using testing::CoordinatorProcess;
using ::testing::HasSubstr;
using testing::Stubs;

constexpr int64_t kMiB = 1 << 20;

class MemoryTest : public ::testing::Test {
 protected:
  void Start(std::vector<std::string> flags, const std::string& binary = "") {
    CoordinatorProcess::Options options;
    if (!binary.empty()) options.binary = binary;
    options.flags = std::move(flags);
    coordinator_ = std::make_unique<CoordinatorProcess>(options);
    ASSERT_TRUE(coordinator_->Start().ok());
    stubs_ = std::make_unique<Stubs>(coordinator_->address());
  }

  int64_t Resident() const { return testing::ResidentBytes(coordinator_->pid()); }

  v1::ServerStatsResponse Stats() {
    v1::ServerStatsResponse response;
    EXPECT_TRUE(stubs_->admin->ServerStats(testing::Context().get(), {}, &response).ok());
    return response;
  }
  int64_t Held(const std::string& kind) {
    const v1::ServerStatsResponse stats = Stats();
    for (const v1::MemoryUse& use : stats.memory()) {
      if (use.kind() == kind) return use.bytes();
    }
    return 0;
  }
  // Prints how much `what` took, and returns it.
  int64_t Report(const std::string& what, int64_t before) {
    const int64_t grown = Resident() - before;
    std::cout << what << ": " << grown / 1024 << " KiB more resident, "
              << Stats().charged_bytes() / 1024 << " KiB charged" << std::endl;
    return grown;
  }

  // One connection asks for pages of `keys` keys and reads none: the tenant's quota ends it.
  void ExpectUnreadAnswersCount(int calls, int64_t quota, int keys, size_t value_bytes);

  grpc::Status CreateGroup(const std::string& name, int max_members) {
    v1::CreateGroupRequest request;
    request.mutable_scope()->set_group(name);
    request.mutable_spec()->set_min_members(max_members);
    request.mutable_spec()->set_max_members(max_members);
    v1::CreateGroupResponse response;
    return stubs_->groups->CreateGroup(testing::Context().get(), request, &response);
  }
  grpc::Status Put(const std::string& key, const std::string& value,
                   const std::string& tenant = "tenant") {
    v1::PutRequest request;
    request.mutable_scope()->set_tenant(tenant);
    request.set_key(key);
    request.set_value(value);
    v1::PutResponse response;
    return stubs_->store->Put(testing::Context().get(), request, &response);
  }

  std::unique_ptr<CoordinatorProcess> coordinator_;
  std::unique_ptr<Stubs> stubs_;
};

TEST_F(MemoryTest, GroupsCostLittleBeforeMembersJoin) {
  constexpr int kGroups = 3000;
  ASSERT_NO_FATAL_FAILURE(Start({}));
  ASSERT_TRUE(CreateGroup("first", 16384).ok());
  const int64_t before = Resident();
  for (int i = 0; i < kGroups; ++i) {
    const grpc::Status created = CreateGroup(absl::StrCat("group", i), 16384);
    ASSERT_TRUE(created.ok()) << created.error_message();
  }
  const int64_t grown = Report(absl::StrCat(kGroups, " groups of up to 16384 members"), before);
  EXPECT_LT(grown, kGroups * 16 * 1024);
  EXPECT_GT(Held("groups"), grown / 2);
}

TEST_F(MemoryTest, ReadingStoresOfNewTenantsLeavesNothing) {
  constexpr int kTenants = 20000;
  ASSERT_NO_FATAL_FAILURE(Start({}));
  const auto get = [&](const std::string& tenant) {
    v1::GetRequest request;
    request.mutable_scope()->set_tenant(tenant);
    request.add_keys("key");
    v1::GetResponse response;
    return stubs_->store->Get(testing::Context().get(), request, &response);
  };
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(get("same").ok());
  const int64_t before = Resident();
  for (int i = 0; i < kTenants; ++i) ASSERT_TRUE(get(absl::StrCat("tenant", i)).ok());
  EXPECT_LT(Report(absl::StrCat(kTenants, " reads of new tenants"), before), 8 * kMiB);
  EXPECT_EQ(Held("namespaces"), 0);
}

TEST_F(MemoryTest, ParkedCallsAreCountedAndBounded) {
  constexpr int kCalls = 10000;
  // All calls share one channel, and the account, not the limit on streams, must refuse some of
  // them.
  ASSERT_NO_FATAL_FAILURE(
      Start({"--limit", "max_bytes_held=83886080", "--max-concurrent-streams", "16384"}));
  v1::QueuePopRequest request;
  request.mutable_scope()->set_tenant("tenant");
  request.set_queue("queue");
  request.mutable_wait()->set_seconds(600);
  const int64_t before = Resident();
  struct Pop {
    std::unique_ptr<grpc::ClientContext> context = testing::Context(absl::Minutes(10));
    v1::QueuePopResponse response;
  };
  std::vector<std::unique_ptr<Pop>> pops;
  absl::Mutex mutex;
  int ended = 0, refused = 0;
  std::string message;
  for (int i = 0; i < kCalls; ++i) {
    pops.push_back(std::make_unique<Pop>());
    Pop& pop = *pops.back();
    stubs_->store->async()->QueuePop(
        pop.context.get(), &request, &pop.response, [&](const grpc::Status& status) {
          absl::MutexLock lock(&mutex);
          ++ended;
          if (status.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED) {
            return;
          }
          ++refused;
          message = status.error_message();
        });
  }
  // All calls have been handled once each is parked or refused.
  for (int attempt = 0; attempt < 60000; ++attempt) {
    absl::MutexLock lock(&mutex);
    if (ended + Stats().waiter_count() >= kCalls || HasFailure()) break;
  }
  Report(absl::StrCat(kCalls, " parked pops"), before);
  EXPECT_LE(Held("calls"), 84 * kMiB);
  for (const auto& pop : pops) pop->context->TryCancel();
  const auto all_ended = [&] { return ended == kCalls; };
  absl::MutexLock lock(&mutex);
  EXPECT_TRUE(mutex.AwaitWithTimeout(absl::Condition(&all_ended), absl::Minutes(2)));
  std::cout << refused << " were refused" << std::endl;
  EXPECT_GT(refused, 0);
  EXPECT_THAT(message, HasSubstr("limit max_bytes_held is 83886080"));
}

TEST_F(MemoryTest, UnreadStreamsAreCounted) {
  constexpr int kStreams = 200;
  constexpr int kConnections = 20;
  ASSERT_NO_FATAL_FAILURE(Start({}));
  ASSERT_TRUE(Put("first", "value").ok());
  v1::WatchRequest watch;
  watch.mutable_scope()->set_tenant("tenant");
  struct Watcher {
    std::unique_ptr<grpc::ClientContext> context = testing::Context(absl::Minutes(5));
    std::unique_ptr<grpc::ClientReader<v1::WatchResponse>> stream;
  };
  std::vector<std::unique_ptr<Stubs>> connections;
  for (int i = 0; i < kConnections; ++i) {
    connections.push_back(std::make_unique<Stubs>(coordinator_->address(), i + 1));
  }
  std::vector<Watcher> watchers(kStreams);
  for (int i = 0; i < kStreams; ++i) {
    watchers[i].stream =
        connections[i % kConnections]->store->Watch(watchers[i].context.get(), watch);
    watchers[i].stream->WaitForInitialMetadata();
  }
  const int64_t before = Resident();
  for (int i = 0; i < 20; ++i) {
    const grpc::Status put = Put("key", std::string(1000000, 'x'));
    ASSERT_TRUE(put.ok()) << put.error_message();
  }
  const int64_t grown = Report(absl::StrCat(kStreams, " unread watch streams"), before);
  std::cout << "output charged: " << Held("output") / 1024 << " KiB" << std::endl;
  // All streams hold the same few values.
  EXPECT_LT(grown, 64 * kMiB);
  EXPECT_LT(Held("output"), kStreams * 4096);
  for (Watcher& watcher : watchers) watcher.context->TryCancel();
  for (Watcher& watcher : watchers) {
    v1::WatchResponse response;
    while (watcher.stream->Read(&response)) {
    }
    watcher.stream->Finish();
  }
}

// The client's window takes a small part of the first answer.
void MemoryTest::ExpectUnreadAnswersCount(int calls, int64_t quota, int keys, size_t value_bytes) {
  ASSERT_NO_FATAL_FAILURE(Start({"--limit", absl::StrCat("max_tenant_bytes_held=", quota)}));
  for (int i = 0; i < keys; ++i) {
    const grpc::Status put = Put(absl::StrCat("key", i), std::string(value_bytes, 'x'));
    ASSERT_TRUE(put.ok()) << put.error_message();
  }
  v1::RangeRequest range;
  range.mutable_scope()->set_tenant("tenant");
  const std::string message = range.SerializeAsString();
  const int64_t before = Resident();
  const std::string& address = coordinator_->address();
  testing::RawHttp2 client(std::stoi(address.substr(address.rfind(':') + 1)),
                           testing::RawHttp2::Greeting());
  for (int i = 0; i < calls; ++i) {
    const auto stream = static_cast<uint32_t>(2 * i + 1);
    ASSERT_TRUE(client.Send(absl::StrCat(
        testing::Frame(testing::FrameType::kHeaders, testing::kEndHeaders, stream,
                       testing::RequestBlock("/cohort.v1.StoreService/Range")),
        testing::Frame(
            testing::FrameType::kData, testing::kEndStream, stream,
            absl::StrCat(std::string(1, '\0'),
                         testing::Number32(static_cast<uint32_t>(message.size())), message)))));
  }
  // The first answers fill the tenant's share; the next ones are refused.
  EXPECT_TRUE(client.AwaitText("max_tenant_bytes_held", absl::Seconds(30)));
  EXPECT_LT(Report(absl::StrCat(calls, " unread answers"), before), 64 * kMiB);
  EXPECT_TRUE(Put("key", "value", "another").ok());
}

TEST_F(MemoryTest, UnreadAnswersCountForTheTenant) {
  ExpectUnreadAnswersCount(/*calls=*/200, /*quota=*/24 * kMiB, /*keys=*/1000, /*value_bytes=*/2000);
}

// All answers share the value, and each keeps its call.
TEST_F(MemoryTest, UnreadAnswersThatShareAValueCountForTheTenant) {
  ExpectUnreadAnswersCount(/*calls=*/900, /*quota=*/6 * kMiB, /*keys=*/1, /*value_bytes=*/300000);
}

TEST_F(MemoryTest, AnUnreadWatchStreamEndsAtTheLimit) {
  constexpr int64_t kLimit = 16 * kMiB;
  constexpr int kMostStreams = 1000;
  ASSERT_NO_FATAL_FAILURE(Start({"--limit", absl::StrCat("max_bytes_held=", kLimit)}));
  // Changes of values that are too small to be shared: one answer of a watch has 64 KiB of them.
  for (int i = 0; i < 2000; ++i) {
    const grpc::Status put = Put("key", std::string(2000, 'x'));
    ASSERT_TRUE(put.ok()) << put.error_message();
  }
  v1::RangeRequest range;
  range.mutable_scope()->set_tenant("tenant");
  v1::RangeResponse now;
  ASSERT_TRUE(stubs_->store->Range(testing::Context().get(), range, &now).ok());
  v1::WatchRequest watch;
  watch.mutable_scope()->set_tenant("tenant");
  watch.set_from_revision(now.revision() - 1900);
  struct Watcher {
    std::unique_ptr<Stubs> stubs;
    std::unique_ptr<grpc::ClientContext> context = testing::Context(absl::Minutes(5));
    std::unique_ptr<grpc::ClientReader<v1::WatchResponse>> stream;
  };
  std::vector<Watcher> watchers;
  grpc::Status refused;
  while (refused.ok() && static_cast<int>(watchers.size()) < kMostStreams) {
    Watcher& watcher = watchers.emplace_back();
    // Streams of one connection would share its window.
    watcher.stubs = std::make_unique<Stubs>(coordinator_->address(),
                                            static_cast<int>(watchers.size()) / 20 + 1);
    watcher.stream = watcher.stubs->store->Watch(watcher.context.get(), watch);
    v1::WatchResponse response;
    // Reads only the first answer; the coordinator has to keep the next.
    if (!watcher.stream->Read(&response)) refused = watcher.stream->Finish();
  }
  std::cout << watchers.size() << " streams, output charged: " << Held("output") / 1024 << " KiB"
            << std::endl;
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << refused.error_message();
  EXPECT_THAT(refused.error_message(), HasSubstr(absl::StrCat("max_bytes_held is ", kLimit)));
  EXPECT_THAT(refused.error_message(), HasSubstr("more for output"));
  // The request itself is charged, too.
  EXPECT_LE(Stats().charged_bytes(), kLimit + 64 * 1024);
  watchers.pop_back();
  for (Watcher& watcher : watchers) watcher.context->TryCancel();
  for (Watcher& watcher : watchers) {
    v1::WatchResponse response;
    while (watcher.stream->Read(&response)) {
    }
    watcher.stream->Finish();
  }
  // Memory is free again as soon as the coordinator has seen the streams end.
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  bool served = false;
  while (!served && absl::Now() < deadline) {
    auto context = testing::Context();
    auto stream = stubs_->store->Watch(context.get(), watch);
    v1::WatchResponse response;
    served = stream->Read(&response);
    context->TryCancel();
    while (stream->Read(&response)) {
    }
    stream->Finish();
  }
  EXPECT_TRUE(served);
}

TEST_F(MemoryTest, AFullJournalComesBackWithinTheSameMemory) {
  constexpr int64_t kMemory = 256 << 20;
  const std::string path = testing::NewFolder() + "/journal";
  const std::vector<std::string> flags = {"--journal", "sqlite", "--journal-path", path};
  // Thread stacks count as data.
  const std::string script = testing::NewFolder() + "/coordinator";
  std::ofstream(script) << "#!/bin/sh\nulimit -s 256\nulimit -d " << kMemory / 1024 << "\nexec "
                        << testing::ProgramPath("coordinator/cohort-coordinator") << " \"$@\"\n";
  ASSERT_EQ(chmod(script.c_str(), 0700), 0);
  ASSERT_NO_FATAL_FAILURE(Start(flags, script));
  EXPECT_EQ(Stats().max_bytes_held(), kMemory / 2);
  for (int i = 0; i < 1000; ++i) {
    const grpc::Status created = CreateGroup(absl::StrCat("group", i), 16384);
    ASSERT_TRUE(created.ok()) << created.error_message();
  }
  int puts = 0;
  const auto fill = [&](const std::string& tenant) {
    grpc::Status status;
    for (; status.ok() && puts < 2000; ++puts) {
      status = Put(absl::StrCat("key", puts), std::string(200000, 'x'), tenant);
    }
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
    return status.error_message();
  };
  // One tenant leaves memory to the others; all together fill it.
  EXPECT_THAT(fill("tenant"),
              HasSubstr(absl::StrCat("max_tenant_bytes_held is ", kMemory / 2 / 4 * 3)));
  EXPECT_THAT(fill("other"), HasSubstr(absl::StrCat("max_bytes_held is ", kMemory / 2)));
  const int64_t charged = Stats().charged_bytes();
  std::cout << puts << " values of 200 kB: " << charged / kMiB << " MiB charged, "
            << Resident() / kMiB << " MiB resident" << std::endl;
  EXPECT_GT(charged, kMemory / 2 * 3 / 4);
  for (int life = 0; life < 2; ++life) {
    coordinator_->Kill();
    const absl::Status started = coordinator_->Start();
    ASSERT_TRUE(started.ok()) << started;
    stubs_ = std::make_unique<Stubs>(coordinator_->address(), life + 1);
    // One call: the memory of a call that ends is charged for a moment longer.
    const v1::ServerStatsResponse stats = Stats();
    EXPECT_EQ(stats.group_count(), 1000);
    EXPECT_LE(stats.charged_bytes(), charged);
    std::cout << "restarted: " << stats.charged_bytes() / kMiB << " MiB charged, "
              << Resident() / kMiB << " MiB resident" << std::endl;
  }
}

}  // namespace
}  // namespace cohort
