// Conversations with a socket that speaks as NCCL's RAS does, or does not.
#include "worker/communicator/nccl/ras/ras_client.h"

#include <cstdlib>
#include <iostream>
#include <random>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/communicator/nccl/ras/testing/ras_server.h"

namespace cohort::worker {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kLong = absl::Seconds(30);

absl::StatusOr<NcclRasReport> Ask(const RasServer& server, absl::Duration timeout = kLong,
                                  size_t most_bytes = 1 << 20) {
  NcclRasOptions options;
  options.address = server.address();
  options.most_bytes = most_bytes;
  return AskNcclRas(options, Clock::Steady().Now() + timeout);
}

TEST(RasTest, AsksAndUnderstands) {
  absl::StatusOr<NcclRasReport> report = absl::UnknownError("");
  std::vector<std::string> lines;
  {
    RasServer server([&lines](RasServer& s) {
      s.Behave(3);
      lines = s.lines();
      lines.push_back(s.Line());
      s.Say(RasSample());
    });
    report = Ask(server, absl::Hours(2));
  }
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(lines, ElementsAre("CLIENT PROTOCOL 2", "TIMEOUT 3600", "SET FORMAT json", "STATUS"));
  EXPECT_EQ(report->nccl_version, "2.28.9");
  EXPECT_EQ(report->timeouts, 1);
  ASSERT_EQ(report->communicators.size(), 1u);
  const NcclRasCommunicator& communicator = report->communicators[0];
  EXPECT_EQ(communicator.hash, "0x1a:0x2b:0x3c");
  EXPECT_EQ(communicator.size, 4);
  ASSERT_EQ(communicator.ranks.size(), 2u);
  EXPECT_EQ(communicator.ranks[1].process.pid, 42);
  EXPECT_EQ(communicator.ranks[1].process.host, "10.0.0.1");
  EXPECT_EQ(communicator.ranks[1].operations.at("AllReduce"), 5u);
  ASSERT_EQ(communicator.missing.size(), 2u);
  EXPECT_TRUE(communicator.missing[0].is_dead);
  EXPECT_FALSE(communicator.missing[1].is_dead);
  EXPECT_THAT(FindingsOf(communicator),
              ElementsAre("rank 2 (process 77 on 10.0.0.9, device 1) is dead",
                          "rank 3 (process 77 on 10.0.0.9, device 1) does not answer",
                          "rank 1 (process 42 on 10.0.0.1, device 1) has launched 5 AllReduce, "
                          "others 6"));
}

TEST(RasTest, AHealthyCommunicatorHasNoFindings) {
  const auto report = ParseNcclRasReport(
      RasReportText(absl::StrCat(RasRankText(0, 1, 6), ",", RasRankText(1, 2, 6)), "", 2));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(FindingsOf(report->communicators[0]), IsEmpty());
}

TEST(RasTest, AFailedRankIsAFinding) {
  const auto report = ParseNcclRasReport(RasReportText(RasRankText(0, 1, 6, "6"), "", 1));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(FindingsOf(report->communicators[0]),
              ElementsAre("rank 0 (process 1 on 10.0.0.0, device 0) has failed with 6"));
}

TEST(RasTest, AnOlderNcclIsFailedPrecondition) {
  RasServer server([](RasServer& s) {
    s.Behave(2);
    s.Line();
    s.Say("ERROR: Unknown command SET FORMAT json\n");
    s.StaySilent();
  });
  const absl::Status status = Ask(server).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("2.28.7"));
}

TEST(RasTest, AnAddressWithoutListenerIsUnavailable) {
  std::string address;
  {
    RasServer server([](RasServer&) {});
    address = server.address();
    EXPECT_FALSE(Ask(server).ok());
  }
  const absl::Status status = AskNcclRas({address}, Clock::Steady().Now() + kLong).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(address));
}

TEST(RasTest, AServerThatDoesNotGreetIsNotAwaited) {
  RasServer server([](RasServer& s) { s.StaySilent(); });
  NcclRasOptions options;
  options.address = server.address();
  options.greeting = absl::Milliseconds(50);
  const Instant begin = Clock::Steady().Now();
  const absl::Status status = AskNcclRas(options, begin + kLong).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_LT(Clock::Steady().Now() - begin, kLong / 2);
}

TEST(RasTest, FindingsGoBehindAnError) {
  const absl::Status error = absl::DeadlineExceededError("init is not through");
  const auto with = [&](const std::string& report) {
    RasServer server([&report](RasServer& s) {
      s.Behave(3);
      s.Line();
      s.Say(report);
    });
    return WithNcclFindings(error, {server.address()});
  };
  EXPECT_EQ(with(RasSample()),
            absl::DeadlineExceededError(
                "init is not through; NCCL on this host says: rank 2 (process 77 on 10.0.0.9, "
                "device 1) is dead; rank 3 (process 77 on 10.0.0.9, device 1) does not answer; "
                "rank 1 (process 42 on 10.0.0.1, device 1) has launched 5 AllReduce, others 6"));
  EXPECT_EQ(with(RasReportText(RasRankText(0, 1, 6), "", 1)), error) << "nothing stands out";
  EXPECT_EQ(with("{"), error);
  std::string ranks = RasRankText(0, 1, 6, "1");
  for (int rank = 1; rank < 100; ++rank) absl::StrAppend(&ranks, ",", RasRankText(rank, 1, 6, "1"));
  EXPECT_LT(with(RasReportText(ranks, "", 100)).message().size(), 600u);
  RasServer silent([](RasServer& s) { s.StaySilent(); });
  EXPECT_EQ(WithNcclFindings(error, {silent.address()}), error);
}

TEST(RasTest, AddressesAreNumbers) {
  for (const char* const address :
       {"example.com:28028", "localhost", "127.0.0.1:port", ":", "[::1"}) {
    const absl::Status status = AskNcclRas({address}, Clock::Steady().Now() + kLong).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << address << ": " << status;
  }
}

TEST(RasTest, SilenceAtAnyStepEndsByTheDeadline) {
  for (int step = 0; step <= 4; ++step) {
    RasServer server([step](RasServer& s) {
      s.Behave(std::min(step, 3));
      if (step == 4) s.Say("{\"nccl_version\": ");
      s.StaySilent();
    });
    const Instant begin = Clock::Steady().Now();
    const absl::Status status = Ask(server, absl::Milliseconds(100)).status();
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << step << ": " << status;
    EXPECT_LT(Clock::Steady().Now() - begin, kLong / 2);
  }
}

TEST(RasTest, AServerThatHangsUpAtAnyStepIsNamed) {
  for (int step = 0; step <= 3; ++step) {
    RasServer server([step](RasServer& s) {
      s.Behave(step);
      s.Line();
    });
    const absl::Status status = Ask(server).status();
    EXPECT_THAT(status.code(), AnyOf(absl::StatusCode::kUnavailable, absl::StatusCode::kDataLoss));
    EXPECT_THAT(std::string(status.message()), HasSubstr("NCCL's RAS"));
  }
}

TEST(RasTest, OtherServersAreRefused) {
  const std::string endless(1 << 16, 'x');
  for (const std::string& greeting : {std::string("HTTP/1.1 400 Bad Request\r\n\r\n"),
                                      std::string("\n"), std::string(5, '\0') + "\n", endless}) {
    for (int step = 0; step < 3; ++step) {
      RasServer server([&greeting, step](RasServer& s) {
        s.Behave(step);
        s.Line();
        s.Say(greeting);
        s.StaySilent();
      });
      const absl::Status status = Ask(server).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
      EXPECT_LT(status.message().size(), 1000u);
    }
  }
}

TEST(RasTest, AnEndlessReportIsCutOff) {
  RasServer server([](RasServer& s) {
    s.Behave(3);
    s.Line();
    while (s.Say("                                ")) continue;
  });
  const absl::Status status = Ask(server, kLong, 1 << 16).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
}

TEST(RasTest, AnErrorNamesItsPosition) {
  const auto expect = [](const std::string& from, const std::string& to, const std::string& says) {
    const absl::Status status =
        ParseNcclRasReport(absl::StrReplaceAll(RasSample(), {{from, to}})).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << from << " -> " << to;
    EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  };
  expect("\"pid\": 42", "\"pid\": -2", "communicators[0].ranks[1].pid is -2");
  expect("\"pid\": 42", "\"pid\": 4.5", "is no whole number");
  expect("\"pid\": 42", "\"pid\": 18446744073709551615", "is no whole number");
  expect("\"rank\": 1,", "\"rank\": 4,", "is 4, not in 0..3");
  expect("\"rank\": 1,", "\"rank\": 0,", "is there twice");
  expect("\"rank\": 3,", "\"rank\": 0,", "communicators[0].missing_ranks[1] is there twice");
  expect("\"size\": 4", "\"size\": 2000000000", "size is 2000000000");
  expect("\"secondary_hash\"", "\"other\"", "secondary_hash is missing");
  expect("10.0.0.1", "\\u0007", "has other than printable ASCII characters");
  expect("10.0.0.1", std::string(1000, 'h'), "is too long");
  expect("\"AllReduce\": 5", "\"AllReduce\": \"5\"", "is no whole number");
  expect("\"considered_dead\": true", "\"considered_dead\": 1", "is neither true nor false");
  expect("\"ranks\": [", "\"ranks\": [7, ", "ranks[0] is no object");
  for (const std::string& text : {std::string(), std::string("[]"), std::string("{"),
                                  std::string(1 << 20, '['), std::string("{}{}")}) {
    EXPECT_EQ(ParseNcclRasReport(text).status().code(), absl::StatusCode::kDataLoss);
  }
}

// Reports with a few bytes changed, cut or doubled are read or refused. A report that is read keeps
// to the bounds.
TEST(RasTest, DamagedReportsAreReadOrRefused) {
  uint32_t seed = std::random_device()();
  if (const char* const given = std::getenv("COHORT_TEST_SEED"); given != nullptr) {
    ASSERT_TRUE(absl::SimpleAtoi(given, &seed));
  }
  std::cout << "COHORT_TEST_SEED=" << seed << std::endl;
  std::mt19937 random(seed);
  const std::string characters = "0123456789-+.eE\"\\{}[],: truefalsn\n\0\x80\xff";
  int read = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = RasSample();
    for (uint32_t change = random() % 4; change < 4; ++change) {
      const size_t at = random() % text.size();
      const size_t length = random() % std::min<size_t>(text.size() - at, 1 + random() % 40);
      switch (random() % 4) {
        case 0:
          text[at] = characters[random() % characters.size()];
          break;
        case 1:
          text.erase(at, length);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), length));
          break;
        default:
          text[at] = static_cast<char>(random());
      }
      if (text.empty()) text = "{";
    }
    const absl::StatusOr<NcclRasReport> report = ParseNcclRasReport(text);
    if (!report.ok()) {
      EXPECT_EQ(report.status().code(), absl::StatusCode::kDataLoss);
      continue;
    }
    ++read;
    for (const NcclRasCommunicator& communicator : report->communicators) {
      EXPECT_LE(communicator.ranks.size() + communicator.missing.size(),
                static_cast<size_t>(communicator.size));
      for (const std::string& finding : FindingsOf(communicator)) EXPECT_LT(finding.size(), 4096u);
    }
  }
  EXPECT_GT(read, 0);
}

}  // namespace
}  // namespace cohort::worker
