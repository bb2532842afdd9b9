// Ranks on several hosts, each with a network of its own: every operation, cut cables, and links
// that lose packets, delay them or are slow.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/child_process.h"
#include "tests/failure/testing/host_network.h"
#include "tests/failure/testing/members.h"

namespace cohort {
namespace {

using ::testing::AnyOf;
using testing::ChildProcess;
using ::testing::HasSubstr;
using testing::HostNetwork;
using testing::kTimeout;
using ::testing::StartsWith;

constexpr char kCoordinatorPort[] = "7700";
constexpr absl::Duration kCallTimeout = absl::Seconds(4);
// A busy machine may exceed a deadline by this much.
constexpr absl::Duration kSlack = absl::Seconds(4);

// All ranks that an error names, such as by "rank 0-1,3 did not finish".
std::vector<int> RanksIn(const std::string& line) {
  const std::vector<std::string> parts = absl::StrSplit(line, "rank ");
  std::vector<int> ranks;
  for (size_t part = 1; part < parts.size(); ++part) {
    const std::string text = parts[part].substr(0, parts[part].find_first_not_of("0123456789,-"));
    for (const absl::string_view range : absl::StrSplit(text, ',')) {
      const std::vector<std::string> ends = absl::StrSplit(range, '-');
      int first = 0;
      int last = 0;
      if (!absl::SimpleAtoi(ends.front(), &first)) continue;
      if (!absl::SimpleAtoi(ends.back(), &last)) continue;
      for (int rank = first; rank <= last; ++rank) ranks.push_back(rank);
    }
  }
  return ranks;
}

class HostsTest : public ::testing::Test {
 protected:
  // Starts hosts with ranks, in order, and one more host with the coordinator. Not OK: this machine
  // allows no network namespaces.
  absl::Status Begin(int hosts, int ranks_per_host) {
    absl::StatusOr<std::unique_ptr<HostNetwork>> network = HostNetwork::Create(hosts + 1);
    if (!network.ok()) return network.status();
    network_ = *std::move(network);
    ranks_per_host_ = ranks_per_host;
    const std::string address = absl::StrCat(HostNetwork::Address(hosts), ":", kCoordinatorPort);
    coordinator_ = std::make_unique<ChildProcess>(
        network_->On(hosts, {"coordinator/cohort-coordinator", "--listen", address, "--insecure",
                             "--metrics-listen", "", "--log-level", "warning"}));
    const int size = hosts * ranks_per_host;
    for (int rank = 0; rank < size; ++rank) {
      ranks_.push_back(std::make_unique<ChildProcess>(network_->On(
          HostOf(rank),
          {"tests/failure/testing/rank_main", address, "group", absl::StrCat(rank),
           absl::StrCat(size), absl::StrCat("timeout_ms=", absl::ToInt64Milliseconds(kCallTimeout)),
           absl::StrCat("lease_ms=", absl::ToInt64Milliseconds(lease_))})));
    }
    const std::vector<std::string> lines = Lines();
    for (int rank = 0; rank < size; ++rank) {
      const int next = (rank + 1) % size;
      EXPECT_THAT(lines[rank], StartsWith(absl::StrCat("joined ", rank, " ")));
      EXPECT_THAT(lines[rank],
                  HasSubstr(HostOf(next) == HostOf(rank)
                                ? "shared memory"
                                : absl::StrCat("tcp ", HostNetwork::Address(HostOf(next)))));
    }
    Report("joined");
    return absl::OkStatus();
  }

  int HostOf(int rank) const { return rank / ranks_per_host_; }
  int size() const { return static_cast<int>(ranks_.size()); }

  // Returns every rank's next line.
  std::vector<std::string> Lines() {
    std::vector<std::string> lines;
    for (int rank = 0; rank < size(); ++rank) {
      const absl::StatusOr<std::string> line = ranks_[rank]->ReadLine(kTimeout);
      EXPECT_TRUE(line.ok()) << "rank " << rank << ": " << line.status();
      lines.push_back(line.value_or("nothing"));
    }
    return lines;
  }
  void SendCommand(const std::string& command) {
    for (const std::unique_ptr<ChildProcess>& rank : ranks_) rank->WriteLine(command);
  }
  void ExpectAll(const std::string& beginning) {
    for (const std::string& line : Lines()) EXPECT_THAT(line, StartsWith(beginning));
  }

  void VerifyAll(const std::vector<std::string>& sizes) {
    for (const char* const operation :
         {"all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "exchange"}) {
      for (const std::string& size : sizes) {
        SCOPED_TRACE(absl::StrCat(operation, " ", size));
        SendCommand(absl::StrCat("once ", operation, " ", size));
        ExpectAll("OK");
        if (HasFailure()) return;
      }
    }
    Report("verified");
  }

  // Whether `line` names a rank on the other side of the cut than `rank`.
  bool NamesTheOtherSide(const std::string& line, int rank, int cut) const {
    for (const int other : RanksIn(line)) {
      if (other < size() && (HostOf(other) == cut) != (HostOf(rank) == cut)) return true;
    }
    return false;
  }

  // All ranks get an error in time that names a rank on the other side. No error blames only ranks
  // on the same side, which wait for the other host themselves.
  void ExpectNamed(const std::vector<std::string>& lines, int cut) {
    int named = 0;
    for (int rank = 0; rank < size(); ++rank) {
      EXPECT_THAT(lines[rank], AnyOf(StartsWith("ABORTED "), StartsWith("DEADLINE_EXCEEDED ")));
      EXPECT_FALSE(RanksIn(lines[rank]).empty()) << lines[rank];
      if (NamesTheOtherSide(lines[rank], rank, cut)) ++named;
    }
    EXPECT_EQ(named, size()) << absl::StrJoin(lines, "\n");
  }

  void CutInTheMiddle(const std::string& what, int cut) {
    SCOPED_TRACE(absl::StrCat(what, ", host ", cut));
    SendCommand(absl::StrCat("loop ", what));
    ExpectAll("running");
    ASSERT_FALSE(HasFailure());
    ASSERT_EQ(network_->Cut(cut), absl::OkStatus());
    const Instant begin = Clock::Steady().Now();
    const std::vector<std::string> lines = Lines();
    EXPECT_LT(Clock::Steady().Now() - begin, kCallTimeout + kSlack);
    ExpectNamed(lines, cut);
    ASSERT_FALSE(HasFailure());
    Report("told all of the cut");
    ASSERT_EQ(network_->Mend(cut), absl::OkStatus());
    SendCommand("rejoin");
    ExpectAll("OK");
    Report("formed again");
    SendCommand(absl::StrCat("once ", what));
    ExpectAll("OK");
  }

  void Report(const std::string& what) {
    const Instant now = Clock::Steady().Now();
    std::cout << what << " after " << absl::FormatDuration(now - reported_) << std::endl;
    reported_ = now;
  }

  // Longer than the cuts here: ranks notice a cut by their own deadlines.
  absl::Duration lease_ = absl::Seconds(15);
  std::unique_ptr<HostNetwork> network_;
  std::vector<std::unique_ptr<ChildProcess>> ranks_;

 private:
  int ranks_per_host_ = 1;
  std::unique_ptr<ChildProcess> coordinator_;
  Instant reported_ = Clock::Steady().Now();
};

TEST_F(HostsTest, EveryOperationOnTwoHostsWithTwoRanks) {
  if (const absl::Status status = Begin(2, 2); !status.ok()) GTEST_SKIP() << status;
  VerifyAll({"8 plain", "4096 registered", "300000 plain", "3000000 registered"});
}

TEST_F(HostsTest, EveryOperationOnFourHostsWithOneRank) {
  if (const absl::Status status = Begin(4, 1); !status.ok()) GTEST_SKIP() << status;
  VerifyAll({"8 registered", "300000 plain"});
}

TEST_F(HostsTest, EveryOperationOnFourHostsWithTwoRanks) {
  if (const absl::Status status = Begin(4, 2); !status.ok()) GTEST_SKIP() << status;
  VerifyAll({"8 plain", "300000 registered"});
}

TEST_F(HostsTest, ACutLinkIsNamedAndTheGroupFormsAgain) {
  if (const absl::Status status = Begin(2, 2); !status.ok()) GTEST_SKIP() << status;
  CutInTheMiddle("all_reduce 3000000 plain", 1);
}

TEST_F(HostsTest, ACutLinkOfOneHostInFour) {
  if (const absl::Status status = Begin(4, 1); !status.ok()) GTEST_SKIP() << status;
  CutInTheMiddle("all_reduce 300000 plain", 2);
}

// The lease is shorter than the cut, so the coordinator ends the generation. The ranks that were
// cut off get that news when they are already in the next generation.
TEST_F(HostsTest, LateNewsOfACutDoNotEndTheNextGeneration) {
  lease_ = absl::Seconds(2);
  if (const absl::Status status = Begin(2, 2); !status.ok()) GTEST_SKIP() << status;
  CutInTheMiddle("all_reduce 3000000 plain", 1);
  // TCP retransmits after a pause that is at most as long as the silence was.
  const Instant end = Clock::Steady().Now() + kCallTimeout;
  while (!HasFailure() && Clock::Steady().Now() < end) {
    SendCommand("once all_reduce 300000 plain");
    ExpectAll("OK");
  }
}

TEST_F(HostsTest, ACutThatIsMendedInTimeEndsNothing) {
  if (const absl::Status status = Begin(2, 2); !status.ok()) GTEST_SKIP() << status;
  SendCommand("once all_reduce 3000000 plain");
  ASSERT_EQ(network_->Cut(1), absl::OkStatus());
  ASSERT_EQ(network_->Mend(1), absl::OkStatus());
  ExpectAll("OK");
}

// Tensors do not pass through the coordinator, so it may be out of reach for as long as a lease.
TEST_F(HostsTest, OperationsGoOnWhileTheCoordinatorIsCutOff) {
  if (const absl::Status status = Begin(2, 2); !status.ok()) GTEST_SKIP() << status;
  constexpr int kCoordinatorHost = 2;
  ASSERT_EQ(network_->Cut(kCoordinatorHost), absl::OkStatus());
  VerifyAll({"8 plain", "300000 registered"});
  ASSERT_EQ(network_->Mend(kCoordinatorHost), absl::OkStatus());
  VerifyAll({"4096 plain"});
}

TEST_F(HostsTest, LossAndDelayChangeNoResult) {
  if (const absl::Status status = Begin(2, 2); !status.ok()) GTEST_SKIP() << status;
  for (int host = 0; host < 2; ++host) {
    const absl::Status status = network_->Shape(host, "netem delay 20ms loss 1%");
    if (absl::IsUnimplemented(status)) GTEST_SKIP() << status;
    ASSERT_EQ(status, absl::OkStatus());
  }
  VerifyAll({"8 plain", "300000 plain"});
}

// The link carries two megabytes a second, and its queue drops bursts, so that TCP loses packets
// without netem.
TEST_F(HostsTest, ASlowLinkThatDropsPacketsChangesNoResult) {
  if (const absl::Status status = Begin(2, 2); !status.ok()) GTEST_SKIP() << status;
  const absl::Status status = network_->Shape(1, "tbf rate 16mbit burst 16kb limit 24kb");
  if (absl::IsUnimplemented(status)) GTEST_SKIP() << status;
  ASSERT_EQ(status, absl::OkStatus());
  VerifyAll({"8 plain", "300000 plain"});
  const absl::StatusOr<int64_t> dropped = network_->Dropped(1);
  ASSERT_TRUE(dropped.ok()) << dropped.status();
  EXPECT_GT(*dropped, 0);
  std::cout << *dropped << " packets dropped" << std::endl;
}

}  // namespace
}  // namespace cohort
