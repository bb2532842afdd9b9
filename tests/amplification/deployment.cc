#include "tests/amplification/deployment.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/access/token_hash.h"
#include "cohort/v1/common.pb.h"
#include "cohort/v1/group.pb.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "gtest/gtest.h"

namespace cohort::amplification {
namespace {

constexpr size_t kPrefix = 5;

// Below 108 bytes with the name of a socket, which the test's folder may not be.
std::string ShortFolder() {
  char folder[] = "/tmp/cohort-XXXXXX";
  if (mkdtemp(folder) == nullptr) std::abort();
  return folder;
}

std::string Rule(const std::string& identity, const std::string& tenant, const std::string& role) {
  return absl::StrCat(R"({"identity": ")", identity, R"(", "tenant": ")", tenant, R"(", "role": ")",
                      role, R"("})");
}

// The answer to a call of the member; "": it was refused.
std::string CallAsMember(int port, const std::string& method, const std::string& request) {
  Http2Peer peer(port, kMemberToken);
  const uint32_t stream = peer.Open(method);
  peer.Write(stream, GrpcMessage(request), true);
  const std::string answer = peer.AwaitMessage(stream);
  return answer.empty() ? "" : answer.substr(kPrefix);
}

}  // namespace

Deployment::Deployment(size_t request_bytes) : folder_(ShortFolder()) {
  WritePolicy(Rules());
  const auto flags = [&](const std::string& name) {
    return std::vector<std::string>{"--listen",
                                    absl::StrCat("unix:", folder_, "/", name),
                                    "--access-policy",
                                    folder_ + "/policy.json",
                                    "--reflection",
                                    "--max-message-bytes",
                                    absl::StrCat(request_bytes)};
  };
  std::vector<std::string> coordinator = flags("coordinator");
  coordinator.insert(coordinator.end(),
                     {"--limit", absl::StrCat("max_tenant_bytes_held=", kTenantBytes), "--limit",
                      absl::StrCat("max_inline_bytes=", request_bytes / 2), "--limit",
                      absl::StrCat("max_value_bytes=", request_bytes / 2)});
  absl::Status started = coordinator_.Start(std::move(coordinator));
  EXPECT_TRUE(started.ok()) << started << coordinator_.ErrorText();
  std::vector<std::string> worker = flags("worker");
  worker.insert(worker.end(), {"--coordinator", coordinator_address()});
  started = worker_.Start(std::move(worker), 0, "worker/daemon/cohort-worker");
  EXPECT_TRUE(started.ok()) << started << worker_.ErrorText();
  // The tenant of torchft's replicas has the name of the port.
  WritePolicy(Rules());
}

Deployment::~Deployment() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::vector<std::string> Deployment::Rules() const {
  return {Rule(absl::StrCat("uid:", geteuid()), "*", "operator"),
          Rule("token:member", kTenant, "member"),
          Rule("token:member", absl::StrCat("torchft-", coordinator_.port()), "member")};
}

void Deployment::WritePolicy(const std::vector<std::string>& rules) {
  const std::string path = folder_ + "/policy.json";
  const std::string hash = absl::BytesToHexString(HashToken(kMemberToken));
  std::ofstream(path + ".next") << R"({"rules": [)" << absl::StrJoin(rules, ",\n")
                                << R"(], "tokens": [{"name": "member", "sha256": ")" << hash
                                << R"("}]})";
  if (rename((path + ".next").c_str(), path.c_str()) != 0) std::abort();
}

void Deployment::AdmitAnonymousClients() {
  std::vector<std::string> rules = Rules();
  rules.push_back(Rule("anonymous", absl::StrCat("tcpstore-", coordinator_.port()), "member"));
  WritePolicy(rules);
}

Adjust Deployment::JoinAtCoordinator() const {
  v1::JoinRequest join;
  join.mutable_scope()->set_tenant(kTenant);
  join.mutable_scope()->set_group("g");
  join.set_member("rank-0");
  join.set_incarnation(1);
  join.set_rank(0);
  join.mutable_spec()->set_min_members(1);
  join.mutable_spec()->set_max_members(1);
  join.mutable_wait()->set_seconds(20);
  v1::JoinResponse joined;
  const bool answered = joined.ParseFromString(
      CallAsMember(coordinator_.port(), "/cohort.v1.GroupService/Join", join.SerializeAsString()));
  EXPECT_TRUE(answered && !joined.session().empty()) << "the member cannot join its group";
  return [joined](google::protobuf::Message* message) {
    const auto* const field = message->GetDescriptor()->FindFieldByName("scope");
    if (field == nullptr) return;
    auto* const scope =
        static_cast<v1::Scope*>(message->GetReflection()->MutableMessage(message, field));
    scope->Clear();
    scope->set_tenant(kTenant);
    scope->set_group("g");
    scope->set_generation(joined.generation());
    scope->set_session(joined.session());
  };
}

WorkerSession Deployment::OpenSession() const {
  WorkerSession session;
  session.connection = std::make_unique<Http2Peer>(worker_.port(), kMemberToken);
  const uint32_t stream = session.connection->Open("/cohort.v1.WorkerService/OpenSession");
  session.connection->Write(stream, GrpcMessage(""), true);
  const std::string answer = session.connection->AwaitMessage(stream);
  v1::SessionEvent event;
  EXPECT_TRUE(answer.size() > kPrefix && event.ParseFromString(answer.substr(kPrefix)))
      << "the worker opens no session";
  session.opened = event.opened();
  return session;
}

Adjust Deployment::JoinAtWorker(const WorkerSession& session) const {
  const std::string& id = session.opened.session();
  v1::JoinGroupRequest join;
  join.set_session(id);
  join.set_tenant(kTenant);
  join.set_group("w");
  join.set_rank(0);
  join.set_world_size(1);
  v1::JoinGroupResponse joined;
  const bool answered = joined.ParseFromString(
      CallAsMember(worker_.port(), "/cohort.v1.WorkerService/JoinGroup", join.SerializeAsString()));
  EXPECT_TRUE(answered && joined.world_size() == 1) << "the member cannot join its group";
  return [id, group = joined.group()](google::protobuf::Message* message) {
    const auto* const type = message->GetDescriptor();
    const auto& to = *message->GetReflection();
    if (const auto* const field = type->FindFieldByName("session"); field != nullptr) {
      to.SetString(message, field, id);
    }
    // A group of another type is a name.
    const auto* const field = type->FindFieldByName("group");
    if (field != nullptr && field->cpp_type() == field->CPPTYPE_UINT64) {
      to.SetUInt64(message, field, group);
    }
  };
}

}  // namespace cohort::amplification
