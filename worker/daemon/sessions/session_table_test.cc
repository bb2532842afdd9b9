#include "worker/daemon/sessions/session_table.h"

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "base/access/access_policy.h"
#include "base/access/peer_access.h"
#include "base/access/token_hash.h"
#include "base/clock.h"
#include "base/testing/no_new_threads.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/daemon/access/caller.h"
#include "worker/daemon/sessions/testing/noted_rank.h"

namespace cohort::worker {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kSoon = absl::Seconds(20);

TEST(SessionTableTest, WithoutAThreadASessionIsRefusedAndTheNextIsOpened) {
  SessionTable sessions;
  {
    const testing::NoNewThreads refuse;
    const absl::Status refused = sessions.Open({"trainer", 1, "host-a", ""}, Caller()).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("RLIMIT_NPROC"));
  }
  const auto session = sessions.Open({"trainer", 1, "host-a", ""}, Caller());
  ASSERT_TRUE(session.ok()) << session.status();
}

// The clients spiffe://test/a1, a2 ... of tenant a, and spiffe://test/b of tenant b.
class Clients {
 public:
  Clients() {
    const std::string path = ::testing::TempDir() + "/policy.json";
    std::ofstream(path) << R"({"rules": [
        {"identity": "spiffe://test/b", "tenant": "b", "role": "member"},
        {"identity": "spiffe://test/a*", "tenant": "a", "role": "member"}]})";
    policy_ = AccessPolicy::Load(path).value();
  }
  Caller operator()(const std::string& name, absl::Time certificate_ends = absl::InfiniteFuture()) {
    PeerAccess peer(policy_, {"spiffe://test/" + name}, "", certificate_ends);
    return access_.CallerOf("OpenSession", &peer);
  }

 private:
  std::shared_ptr<AccessPolicy> policy_;
  WorkerAccess access_{/*checks=*/true};
};

TEST(SessionTableTest, AnEndedCertificateOpensNoSessionAndKeepsItsOwn) {
  Clients caller_named;
  SessionTable sessions;
  const auto session = sessions.Open({"trainer", 1, "host-a", ""}, caller_named("a1"));
  ASSERT_TRUE(session.ok()) << session.status();
  const Caller ended = caller_named("a1", absl::Now() - absl::Seconds(1));
  const absl::Status refused = sessions.Open({"trainer", 1, "host-a", ""}, ended).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("the certificate of spiffe://test/a1 has ended at "));
  EXPECT_TRUE(sessions.Find((*session)->id().ToBytes(), ended).ok());
}

// A policy whose file is replaced.
class ChangedPolicy {
 public:
  explicit ChangedPolicy(absl::string_view rules) {
    Write(rules, "");
    policy_ = AccessPolicy::Load(path_).value();
  }
  void Replace(absl::string_view rules, absl::string_view tokens = "") {
    const int64_t before = policy_->Version(now_);
    Write(rules, tokens);
    now_ += absl::Minutes(1);
    ASSERT_GT(policy_->Version(now_), before);
  }
  const std::shared_ptr<AccessPolicy>& get() const { return policy_; }

 private:
  void Write(absl::string_view rules, absl::string_view tokens) {
    const std::string next = path_ + ".next";
    std::ofstream(next) << R"({"rules": [)" << rules << R"(], "tokens": [)" << tokens << "]}";
    ASSERT_EQ(rename(next.c_str(), path_.c_str()), 0);
  }

  const std::string path_ = ::testing::TempDir() + "/changed_policy.json";
  Instant now_ = Clock::Steady().Now();
  std::shared_ptr<AccessPolicy> policy_;
};

constexpr char kRuleA[] = R"({"identity": "spiffe://test/a", "tenant": "a", "role": "member"})";
constexpr char kRuleAInB[] = R"({"identity": "spiffe://test/a", "tenant": "b", "role": "member"})";
constexpr char kRuleT[] = R"({"identity": "token:t", "tenant": "a", "role": "member"})";
constexpr char kRuleS[] = R"({"identity": "jwt:k8s:s", "tenant": "a", "role": "member"})";

absl::StatusOr<std::shared_ptr<Session>> OpenAs(SessionTable& sessions, const std::string& name) {
  Session::Client client{"trainer", 1, "host-a", ""};
  client.names = {name};
  return sessions.Open(client, Caller());
}

TEST(SessionTableTest, SessionsEndWithTheRightsOfTheirClients) {
  const std::string all = absl::StrCat(kRuleA, ",", kRuleT, ",", kRuleS);
  const std::string token_t =
      absl::StrCat(R"({"name": "t", "sha256": ")", absl::BytesToHexString(HashToken("t")), R"("})");
  ChangedPolicy policy(all);
  policy.Replace(all, token_t);
  SessionTable sessions(Quotas(), policy.get());
  const auto certificate = OpenAs(sessions, "spiffe://test/a").value();
  const auto another = OpenAs(sessions, "spiffe://test/a").value();
  const auto token = OpenAs(sessions, "token:t").value();
  const auto signed_token = OpenAs(sessions, "jwt:k8s:s").value();
  sessions.EndWithoutRights();
  EXPECT_FALSE(certificate->ended() || token->ended() || signed_token->ended());
  policy.Replace(all);
  sessions.EndWithoutRights();
  EXPECT_TRUE(token->ended());
  EXPECT_FALSE(certificate->ended() || signed_token->ended());
  policy.Replace(kRuleS);
  sessions.EndWithoutRights();
  EXPECT_TRUE(certificate->ended() && another->ended());
  EXPECT_FALSE(signed_token->ended());
  policy.Replace(kRuleT);
  sessions.EndWithoutRights();
  EXPECT_TRUE(signed_token->ended());
}

// Its call was checked before the change, and it begins when all sessions have been looked at.
TEST(SessionTableTest, ASessionThatBeginsDuringAChangeOfThePolicyEndsWithItsRights) {
  ChangedPolicy policy(kRuleA);
  SessionTable sessions(Quotas(), policy.get());
  policy.Replace(kRuleS);
  sessions.EndWithoutRights();
  const absl::Status refused = OpenAs(sessions, "spiffe://test/a").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("has lost its rights"));
  EXPECT_TRUE(sessions.All().empty());
  EXPECT_TRUE(OpenAs(sessions, "jwt:k8s:s").ok());
}

TEST(SessionTableTest, AGroupInATenantWithoutARoleKeepsItsClientFromTheSession) {
  ChangedPolicy policy(absl::StrCat(kRuleA, ",", kRuleAInB));
  SessionTable sessions(Quotas(), policy.get());
  WorkerAccess access(/*checks=*/true);
  PeerAccess peer(policy.get(), {"spiffe://test/a"}, "");
  const auto session =
      sessions.Open({"trainer", 1, "host-a", ""}, access.CallerOf("OpenSession", &peer)).value();
  ASSERT_TRUE(session->AddGroup(1, std::make_shared<NotedRank>("b")).ok());
  const std::string id = session->id().ToBytes();
  EXPECT_TRUE(sessions.Find(id, access.CallerOf("RunCollective", &peer)).ok());
  policy.Replace(kRuleA);
  const absl::Status refused = sessions.Find(id, access.CallerOf("RunCollective", &peer)).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("tenant b"));
}

TEST(SessionTableTest, AGroupThatBeginsDuringAChangeOfThePolicyEndsWithItsSession) {
  ChangedPolicy policy(absl::StrCat(kRuleA, ",", kRuleAInB));
  SessionTable sessions(Quotas(), policy.get());
  const auto session = OpenAs(sessions, "spiffe://test/a").value();
  policy.Replace(kRuleA);
  sessions.EndWithoutRights();
  EXPECT_FALSE(session->ended());
  const auto rank = std::make_shared<NotedRank>("b");
  ASSERT_TRUE(session->AddGroup(1, rank).ok());
  EXPECT_EQ(sessions.CheckRights(session).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(rank->aborted(), HasSubstr("has lost its rights"));
  ASSERT_TRUE(sessions.AwaitLeft(Clock::Steady().Now() + kSoon));
}

TEST(SessionTableTest, AGroupThatJoinsAfterTheEndOfItsSessionIsRefused) {
  SessionTable sessions;
  const auto session = sessions.Open({"trainer", 1, "host-a", ""}, Caller()).value();
  sessions.End(session, "its client is gone");
  const absl::Status refused = session->AddGroup(1, std::make_shared<NotedRank>());
  EXPECT_EQ(refused, absl::AbortedError("the session has ended: its client is gone"));
  ASSERT_TRUE(sessions.AwaitLeft(Clock::Steady().Now() + kSoon));
}

TEST(SessionTableTest, AnIdentityAndATenantHaveTheirShareOfTheSessions) {
  Clients caller_named;
  const Caller caller = caller_named("a1");
  SessionTable sessions;
  std::vector<std::shared_ptr<Session>> open;
  for (size_t i = 0; i < SessionTable::kMaxSessionsOfIdentity; ++i) {
    open.push_back(sessions.Open({"trainer", 1, "host-a", ""}, caller).value());
  }
  const absl::Status refused = sessions.Open({"trainer", 1, "host-a", ""}, caller).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("spiffe://test/a1 has 1024 sessions"));
  const Caller second = caller_named("a2");
  for (size_t i = 0; i < SessionTable::kMaxSessionsOfIdentity; ++i) {
    open.push_back(sessions.Open({"trainer", 2, "host-a", ""}, second).value());
  }
  EXPECT_THAT(
      std::string(
          sessions.Open({"trainer", 3, "host-a", ""}, caller_named("a3")).status().message()),
      HasSubstr("tenant a has 2048 sessions"));
  const auto opened = sessions.Open({"trainer", 4, "host-a", ""}, caller_named("b"));
  EXPECT_TRUE(opened.ok()) << opened.status();
  open.erase(open.begin() + SessionTable::kMaxSessionsOfIdentity, open.end());
  sessions.End(open.back(), "it is over");
  ASSERT_TRUE(sessions.AwaitLeft(Clock::Steady().Now() + kSoon));
  EXPECT_TRUE(sessions.Open({"trainer", 1, "host-a", ""}, caller).ok());
}

// A tensor of the client must not get the worker killed for its memory.
TEST(SessionTableTest, TensorsTakeNoMoreThanTheirLimit) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  SessionTable sessions(Quotas({}, {/*max_in_all=*/64 * kMiB, /*max_per_session=*/48 * kMiB}));
  const auto first = sessions.Open({"trainer", 1, "host-a", ""}, Caller()).value();
  const auto second = sessions.Open({"server", 2, "host-a", ""}, Caller()).value();
  auto tensor = first->Allocate(40 * kMiB);
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_THAT(
      std::string(first->Allocate(10 * kMiB).status().message()),
      HasSubstr("this session holds 41943040 of 50331648 (--max-tensor-bytes-per-session)"));
  const absl::Status refused = second->Allocate(32 * kMiB).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message(),
            "a tensor takes 33554432 bytes; all sessions hold 41943040 of 67108864 "
            "(--max-tensor-bytes)");
  EXPECT_TRUE(second->Allocate(16 * kMiB).ok());
  tensor = TensorMemory();
  EXPECT_TRUE(second->Allocate(32 * kMiB).ok());
  // The tensors of an attached client are not the worker's to pay for.
  ASSERT_TRUE(second->AttachHeap().ok());
  EXPECT_TRUE(second->Allocate(100 * kMiB).ok());
  EXPECT_TRUE(first->Allocate(48 * kMiB).ok());
}

TEST(SessionTableTest, TensorsAndCallsOfATenantCountTogether) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  SessionTable sessions(Quotas({}, {/*max_in_all=*/64 * kMiB, /*max_per_session=*/0}));
  Clients caller_named;
  const auto open = [&](const std::string& name) {
    return sessions.Open({name, 1, "host-a", ""}, caller_named(name)).value();
  };
  const auto first = open("a1");
  const auto second = open("a2");
  const auto other = open("b");
  const auto tensor = first->Allocate(40 * kMiB);
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_THAT(std::string(second->Allocate(20 * kMiB).status().message()),
              HasSubstr("tenant a holds 41943040 of 58720256, as many as one tenant may have"));
  EXPECT_TRUE(other->Allocate(20 * kMiB).ok());
  CallGate gate(/*max_calls=*/8, /*max_calls_per_session=*/4);
  std::vector<CallGate::Pass> passes;
  for (int i = 0; i < 4; ++i) passes.push_back(*gate.Enter(first->calls()));
  for (int i = 0; i < 3; ++i) passes.push_back(*gate.Enter(second->calls()));
  EXPECT_THAT(std::string(gate.Enter(second->calls()).status().message()),
              HasSubstr("7 calls of tenant a"));
  EXPECT_TRUE(gate.Enter(other->calls()).ok());
}

TEST(SessionTableTest, SessionsEndWhenNoThreadStarts) {
  SessionTable sessions;
  std::vector<std::shared_ptr<Session>> open;
  for (int i = 0; i < 3; ++i)
    open.push_back(*sessions.Open({"trainer", i, "host-a", ""}, Caller()));
  const testing::NoNewThreads refuse;
  for (const std::shared_ptr<Session>& session : open) sessions.End(session, "it is over");
  EXPECT_TRUE(sessions.AwaitLeft(Clock::Steady().Now() + kSoon));
  EXPECT_EQ(sessions.Stats().sessions, 0);
}

// A join that waits for its group does not delay the end of its session, or of the worker.
TEST(SessionTableTest, TheEndOfASessionCancelsItsJoins) {
  SessionTable sessions;
  const auto session = *sessions.Open({"trainer", 1, "host-a", ""}, Caller());
  const auto other = *sessions.Open({"trainer", 2, "host-a", ""}, Caller());
  sessions.End(session, "its client is gone");
  EXPECT_EQ(session->joining().reason().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(session->joining().reason().message()), HasSubstr("its client is gone"));
  EXPECT_TRUE(other->joining().reason().ok());
}

TEST(SessionTableTest, DrainCancelsTheJoinsOfAllSessions) {
  SessionTable sessions;
  const auto first = *sessions.Open({"trainer", 1, "host-a", ""}, Caller());
  const auto second = *sessions.Open({"trainer", 2, "host-a", ""}, Caller());
  sessions.Drain();
  for (const auto& session : {first, second}) {
    EXPECT_EQ(session->joining().reason().code(), absl::StatusCode::kUnavailable);
    EXPECT_FALSE(session->ended());
  }
}

}  // namespace
}  // namespace cohort::worker
