// The calendar of a host that runs a coordinator or a member is set: no wait ends early, and none
// takes longer.
#include <fcntl.h>
#include <sys/mman.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/unique_fd.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/child_process.h"
#include "tests/failure/testing/members.h"
#include "tests/failure/testing/stubs.h"
#include "tests/testing/coordinator_process.h"

namespace cohort {
namespace {

using testing::ChildProcess;
using testing::CoordinatorProcess;
using testing::kTimeout;
using testing::ProgramPath;
using testing::Stubs;

// How far a calendar is set: back, and ahead.
const absl::Duration kSteps[] = {-absl::Seconds(40), -absl::Hours(3), absl::Hours(24 * 365 * 5)};

// The calendar of programs that get its environment. Thread-compatible.
class Calendar {
 public:
  Calendar() : path_(absl::StrCat(testing::NewFolder(), "/calendar")) {
    const UniqueFd file(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (ftruncate(file.get(), sizeof(int64_t)) != 0) std::abort();
    void* const page = mmap(nullptr, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (page == MAP_FAILED) std::abort();
    ahead_ = static_cast<volatile int64_t*>(page);
  }
  ~Calendar() { munmap(const_cast<int64_t*>(ahead_), sizeof(int64_t)); }
  Calendar(const Calendar&) = delete;
  Calendar& operator=(const Calendar&) = delete;

  std::vector<std::string> environment() const {
    return {absl::StrCat("LD_PRELOAD=", ProgramPath("tests/failure/testing/libset_calendar.so")),
            absl::StrCat("COHORT_TEST_CALENDAR=", path_)};
  }
  void Set(absl::Duration by) { *ahead_ = *ahead_ + absl::ToInt64Nanoseconds(by); }

 private:
  const std::string path_;
  volatile int64_t* ahead_ = nullptr;
};

class CalendarTest : public ::testing::Test {
 protected:
  CalendarTest()
      : coordinator_({"coordinator/cohort-coordinator", 0, {}, calendar_.environment()}) {}

  void SetUp() override {
    ASSERT_TRUE(coordinator_.Start().ok());
    stubs_ = std::make_unique<Stubs>(coordinator_.address(), 0);
  }

  // Reads a key that never comes, with a wait of `wait` and a deadline soon after.
  absl::Duration TimeOfWait(absl::Duration wait) {
    v1::GetRequest request;
    request.add_keys("absent");
    request.mutable_wait()->set_nanos(absl::ToInt64Nanoseconds(wait));
    v1::GetResponse response;
    const Instant start = Clock::Steady().Now();
    const grpc::Status status =
        stubs_->store->Get(testing::Context(wait + absl::Seconds(1)).get(), request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.missing_keys_size(), 1);
    return Clock::Steady().Now() - start;
  }

  Calendar calendar_;
  CoordinatorProcess coordinator_;
  std::unique_ptr<Stubs> stubs_;
};

TEST_F(CalendarTest, AWaitAfterACalendarStepLastsAsLong) {
  // Abseil reads the calendar about every 2 s and computes the time in between: at some of these
  // steps it lags.
  constexpr int kRounds = 6;
  for (int round = 0; round < kRounds; ++round) {
    for (const absl::Duration step : kSteps) {
      SCOPED_TRACE(absl::FormatDuration(step));
      calendar_.Set(step);
      EXPECT_GE(TimeOfWait(absl::Milliseconds(300)), absl::Milliseconds(250));
    }
    calendar_.Set(-kSteps[0] - kSteps[1] - kSteps[2]);
  }
}

TEST_F(CalendarTest, AParkedWaitOutlivesACalendarStep) {
  for (const absl::Duration step : kSteps) {
    SCOPED_TRACE(absl::FormatDuration(step));
    v1::GetRequest request;
    const std::string key = absl::StrCat("key", absl::FormatDuration(step));
    request.add_keys(key);
    request.mutable_wait()->set_seconds(30);
    v1::GetResponse response;
    const auto context = testing::Context(absl::Seconds(40));
    testing::Answers<grpc::Status> answers(1);
    stubs_->store->async()->Get(context.get(), &request, &response, answers.Slot(0));
    ASSERT_TRUE(testing::Eventually([&] {
      v1::ServerStatsResponse stats;
      return stubs_->admin->ServerStats(testing::Context().get(), {}, &stats).ok() &&
             stats.waiter_count() == 1;
    }));
    calendar_.Set(step);
    // The parked read must not end during a wait that began later.
    TimeOfWait(absl::Milliseconds(500));
    EXPECT_EQ(answers.arrived(), 0);
    v1::PutRequest put;
    put.set_key(key);
    put.set_value("here");
    v1::PutResponse written;
    ASSERT_TRUE(stubs_->store->Put(testing::Context().get(), put, &written).ok());
    ASSERT_TRUE(answers.AwaitAll());
    EXPECT_TRUE(answers[0].ok()) << answers[0].error_message();
    EXPECT_EQ(response.values_size(), 1);
  }
}

// The client library in a process with that calendar: leases, deadlines and rounds.
TEST_F(CalendarTest, AMemberStaysAndItsRoundsWork) {
  std::vector<std::string> command = {"/usr/bin/env"};
  for (const std::string& setting : calendar_.environment()) command.push_back(setting);
  for (const std::string& word :
       {ProgramPath("tests/failure/testing/member_main"), coordinator_.address(),
        std::string("group"), std::string("1"), std::string("2"), std::string("lease_ms=2000"),
        std::string("attached_ms=2000")}) {
    command.push_back(word);
  }
  ChildProcess other(command);
  client::ProcessGroupOptions options =
      testing::MemberOptions(testing::Connect(coordinator_.address()), "group", 0, 2);
  options.lease = options.attached_lease = absl::Seconds(2);
  absl::StatusOr<std::unique_ptr<client::ProcessGroup>> group =
      client::ProcessGroup::Create(options);
  ASSERT_TRUE(group.ok()) << group.status();
  ASSERT_EQ(other.ReadLine(kTimeout).value_or("nothing"), "joined 1 2 1");
  for (const absl::Duration step : kSteps) {
    SCOPED_TRACE(absl::FormatDuration(step));
    // The other member waits in the round while the calendar is set, and its lease runs.
    other.WriteLine("barrier step");
    ASSERT_TRUE(testing::AwaitParked(coordinator_.address(), "group", 1));
    calendar_.Set(step);
    const Instant set = Clock::Steady().Now();
    ASSERT_TRUE(testing::Eventually(
        [&] { return Clock::Steady().Now() - set > absl::Milliseconds(2500); }));
    client::RoundOptions round;
    round.name = "step";
    round.timeout = kTimeout;
    const absl::Status status = (*group)->Barrier(round);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(other.ReadLine(kTimeout).value_or("nothing"), "OK ");
  }
}

}  // namespace
}  // namespace cohort
