#include "base/access/audit_log.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const AuditedClient kClient = {"spiffe://test/a", "10.0.0.3"};

TEST(AuditLogTest, ADenialNamesTheMethodTheRoleTheTenantAndTheClient) {
  AuditLog log;
  const absl::Status denied =
      log.Deny({"Evict", Role::kOperator, "team-a"}, kClient, Role::kMember, Instant());
  EXPECT_EQ(denied.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(denied.message(),
            "Evict needs the role operator in tenant team-a, and spiffe://test/a has the role "
            "member");
  EXPECT_THAT(
      std::string(
          log.Deny({"Drain", Role::kOperator, "*"}, kClient, Role::kNone, Instant()).message()),
      HasSubstr("in all tenants, and spiffe://test/a has no role there"));
}

// Stubs print errors.
TEST(AuditLogTest, ADenialHasNoControlCharactersOfAName) {
  AuditLog log;
  const absl::Status denied = log.Deny({"Evict", Role::kOperator, "a"}, {"cn:x\n\x1b[31m", "::1"},
                                       Role::kNone, Instant());
  for (const char byte : denied.message()) EXPECT_GE(byte, ' ') << denied;
}

TEST(AuditLogTest, LogsOneDenialOfAClientEachSecondAndCountsTheOthers) {
  AuditLog log;
  ::testing::internal::CaptureStdout();
  for (int i = 0; i < 5; ++i) {
    log.Deny(absl::StrCat("reason ", i), kClient, Instant()).IgnoreError();
  }
  log.Deny("reason 5", kClient, Instant() + absl::Seconds(1)).IgnoreError();
  const std::string lines = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(lines, HasSubstr("why=\"reason 0\" identity=spiffe://test/a from=10.0.0.3 times=1"));
  EXPECT_THAT(lines, Not(HasSubstr("reason 1")));
  EXPECT_THAT(lines, HasSubstr("why=\"reason 5\" identity=spiffe://test/a from=10.0.0.3 times=5"));
}

TEST(AuditLogTest, ANoisyClientHidesNoOther) {
  AuditLog log;
  ::testing::internal::CaptureStdout();
  for (int i = 0; i < 1000; ++i) log.Deny("noise", kClient, Instant()).IgnoreError();
  log.Deny("theft", {"spiffe://test/b", "10.0.0.4"}, Instant()).IgnoreError();
  for (int i = 0; i < 10 * AuditLog::kMaxLines; ++i) {
    log.Done("Join", kClient, "team-a", "member m of group g", Instant());
  }
  log.Done("Evict", kClient, "team-a", "member w of group g", Instant());
  const std::string lines = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(lines, HasSubstr("why=theft identity=spiffe://test/b from=10.0.0.4 times=1"));
  EXPECT_THAT(lines, HasSubstr("call=Evict"));
}

// A client may name any number of others for which it calls.
TEST(AuditLogTest, TheClientsThatACallerNamesCountAsTheCaller) {
  AuditLog log;
  ::testing::internal::CaptureStdout();
  for (int i = 0; i < 1000; ++i) {
    const std::string named = absl::StrCat("spiffe://invented/", i, " through spiffe://test/a");
    log.Deny("noise", {named, "10.0.0.3", "spiffe://test/a"}, Instant()).IgnoreError();
  }
  log.Deny("theft", {"spiffe://test/b", "10.0.0.4"}, Instant()).IgnoreError();
  const std::string lines = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2);
  EXPECT_THAT(lines, HasSubstr("why=theft identity=spiffe://test/b"));
}

// Any number of identities costs a bounded number of lines and of bytes.
TEST(AuditLogTest, ManyIdentitiesHaveABoundedNumberOfLines) {
  AuditLog log;
  ::testing::internal::CaptureStdout();
  for (int i = 0; i < 5000; ++i) {
    log.Deny("noise", {absl::StrCat("client ", i), ""}, Instant()).IgnoreError();
  }
  // They choose the text of a wrong token.
  for (int i = 0; i < 5000; ++i) {
    log.Deny("noise", {absl::StrCat("a client with a token of ", i), "10.0.0.5"}, Instant())
        .IgnoreError();
  }
  const std::string lines = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), AuditLog::kMaxDenied);
}

TEST(AuditLogTest, DenialsWithoutALineCountInTheNextOneOfTheirIdentity) {
  AuditLog log;
  ::testing::internal::CaptureStdout();
  for (int i = 0; i < AuditLog::kMaxDenied; ++i) {
    log.Deny("noise", {absl::StrCat("client ", i), ""}, Instant()).IgnoreError();
  }
  for (int i = 0; i < 3; ++i) log.Deny("hidden", kClient, Instant()).IgnoreError();
  log.Deny("shown", kClient, Instant() + absl::Seconds(1)).IgnoreError();
  const std::string lines = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(lines, Not(HasSubstr("hidden")));
  EXPECT_THAT(lines, HasSubstr("why=shown identity=spiffe://test/a from=10.0.0.3 times=4"));
}

TEST(AuditLogTest, LogsWhoDidWhatFromWhere) {
  AuditLog log;
  ::testing::internal::CaptureStdout();
  for (int i = 0; i <= AuditLog::kMaxLines; ++i) {
    log.Done("Evict", kClient, "team-a", absl::StrCat("member ", i, " of group g"), Instant());
  }
  log.Done("Drain", kClient, "*", "the coordinator drains", Instant() + absl::Seconds(1));
  const std::string lines = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(lines, HasSubstr("audit call=Evict identity=spiffe://test/a from=10.0.0.3 "
                               "tenant=team-a object=\"member 0 of group g\" left_out=0"));
  EXPECT_THAT(lines, Not(HasSubstr(absl::StrCat("member ", AuditLog::kMaxLines, " of"))));
  EXPECT_THAT(lines, HasSubstr("call=Drain identity=spiffe://test/a from=10.0.0.3 tenant=* "
                               "object=\"the coordinator drains\" left_out=1"));
}

}  // namespace
}  // namespace cohort
