// Secrets that a coordinator and a worker get must not leave them: bearer tokens, private keys,
// sessions, unique ids and values do not appear in logs, metrics, errors or in answers to others.
// One file, though long: one test plants all secrets, and searches all outputs for each of them.
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/access/token_hash.h"
#include "base/rpc/client_tls.h"
#include "base/tls/testing/certificates.h"
#include "base/tls/tls_context.h"
#include "base/unique_fd.h"
#include "client/collective/remote/remote_group.h"
#include "cohort/v1/group.grpc.pb.h"
#include "gmock/gmock.h"
#include "google/protobuf/message.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/child_process.h"
#include "tests/failure/testing/limited_coordinator.h"
#include "tests/failure/testing/members.h"
#include "tests/failure/testing/stubs.h"
#include "tests/security/secret_forms.h"
#include "tests/testing/coordinator_process.h"

namespace cohort::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr char kGroup[] = "g";
constexpr int kMembers = 2;

std::string RandomBytes(size_t size) {
  static std::random_device device;
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(device());
  return bytes;
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

void Become(const TlsFiles& files) {
  setenv("COHORT_TLS_CERTIFICATE", files.certificate.c_str(), 1);
  setenv("COHORT_TLS_KEY", files.key.c_str(), 1);
  setenv("COHORT_TLS_CA", files.ca.c_str(), 1);
}

// The answer of the metrics port that a program's log names, to a client with this bearer token.
std::string MetricsOf(const std::string& log, const std::string& token) {
  constexpr absl::string_view kName = "metrics_port=";
  const size_t at = log.find(std::string(kName));
  if (at == std::string::npos) return "";
  sockaddr_in name = {};
  name.sin_family = AF_INET;
  name.sin_port = htons(static_cast<uint16_t>(std::atoi(&log[at + kName.size()])));
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval timeout = {20, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)) != 0) return "";
  const std::string scrape =
      absl::StrCat("GET /metrics HTTP/1.1\r\nAuthorization: Bearer ", token, "\r\n\r\n");
  send(fd.get(), scrape.data(), scrape.size(), MSG_NOSIGNAL);
  std::string answer;
  char buffer[4096];
  for (ssize_t count; (count = recv(fd.get(), buffer, sizeof(buffer), 0)) > 0;) {
    answer.append(buffer, static_cast<size_t>(count));
  }
  return answer;
}

std::string Text(const grpc::Status& status) {
  return absl::StrCat(status.error_message(), " ", status.error_details());
}

class PlantedSecretsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // The programs would inherit a limit of 0.
    rlimit core = {};
    getrlimit(RLIMIT_CORE, &core);
    core.rlim_cur = core.rlim_max;
    setrlimit(RLIMIT_CORE, &core);
    token_ = absl::BytesToHexString(RandomBytes(32));
    std::ofstream(folder_ + "/token") << token_ << "\n";
    WritePolicy();
    server_ = ca_.Sign("server", {"server", "DNS:localhost,IP:127.0.0.1"});
    owner_ = Client("owner");
    const absl::Status started =
        coordinator_.Start({"--tls-certificate", server_.certificate, "--tls-key", server_.key,
                            "--tls-client-ca", server_.ca, "--tls-client-certificate-optional",
                            "--access-policy", folder_ + "/policy.json", "--journal", "sqlite",
                            "--journal-path", folder_ + "/journal", "--log-level", "debug"});
    ASSERT_TRUE(started.ok()) << started << coordinator_.ErrorText();
  }
  void TearDown() override {
    for (const char* const name : {"COHORT_TLS_CERTIFICATE", "COHORT_TLS_KEY", "COHORT_TLS_CA"}) {
      unsetenv(name);
    }
  }

  void WritePolicy() const {
    const auto rule = [](const char* identity, const char* tenant, const char* role) {
      return absl::StrCat(R"({"identity": ")", identity, R"(", "tenant": ")", tenant,
                          R"(", "role": ")", role, R"("})");
    };
    std::ofstream(folder_ + "/policy.json") << absl::StrCat(
        R"({"rules": [)", rule("spiffe://test/owner", "a", "member"), ",",
        rule("spiffe://test/thief", "a", "member"), ",", rule("token:ci", "a", "member"), ",",
        rule("spiffe://test/watcher", "*", "observer"), R"(], "tokens": [
          {"name": "ci", "sha256": ")",
        absl::BytesToHexString(HashToken(token_)), R"("}]})");
  }
  TlsFiles Client(const std::string& name) const {
    return ca_.Sign(name, {name, "URI:spiffe://test/" + name});
  }
  // Stubs of a client with this certificate, or with this token.
  std::unique_ptr<Stubs> StubsOf(const TlsFiles& files, const std::string& token_file = "") const {
    const auto tls = ClientTlsFor(coordinator_.address(), files, token_file);
    EXPECT_TRUE(tls.ok()) << tls.status();
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return std::make_unique<Stubs>(
        grpc::CreateCustomChannel(coordinator_.address(), tls->grpc, arguments));
  }
  static v1::Scope ScopeOf(const std::string& session) {
    v1::Scope scope;
    scope.set_tenant("a");
    scope.set_group(kGroup);
    scope.set_session(session);
    return scope;
  }

  // Forms the group, and plants the sessions of its members.
  void Join(Stubs& stubs) {
    std::vector<v1::JoinResponse> joined(kMembers);
    OnThreads(kMembers, [&](int rank) {
      v1::JoinRequest request = JoinRequestOf(kGroup, rank, kMembers);
      *request.mutable_scope() = ScopeOf("");
      request.set_incarnation(incarnations_[static_cast<size_t>(rank)]);
      const grpc::Status status =
          stubs.groups->Join(Context().get(), request, &joined[static_cast<size_t>(rank)]);
      EXPECT_TRUE(status.ok()) << status.error_message();
    });
    for (const v1::JoinResponse& response : joined) {
      ASSERT_EQ(response.session().size(), 16u);
      // The answer to the join has the session, so FormIn finds it where it is.
      EXPECT_EQ(FormIn(response.SerializeAsString(), response.session()), "as it is");
      sessions_.push_back(response.session());
      Plant("a session", response.session());
    }
  }
  void Plant(const std::string& name, std::string secret) {
    secrets_.emplace_back(name, std::move(secret));
  }
  void PlantKeyOf(const std::string& name, const TlsFiles& files) {
    for (const absl::string_view line : absl::StrSplit(ReadAll(files.key), '\n')) {
      if (line.size() >= 16 && !absl::StartsWith(line, "-----")) {
        Plant(absl::StrCat("the private key of the ", name), std::string(line));
      }
    }
  }
  // An object that waits for its receiver, a key, a unique id and a member that waits.
  void PlantValues(Stubs& owner, Stubs& ci);
  // Calls that fail, by the owner and by others.
  void ProvokeErrors(Stubs& owner, Stubs& thief, Stubs& ci);
  // Everything that an observer may ask for.
  void Observe(Stubs& watcher);
  void RunTool(const std::vector<std::string>& words);
  std::string StartWorker();
  void ExpectNoSecrets() const {
    for (const auto& [source, text] : outputs_) {
      for (const auto& [name, secret] : secrets_) {
        EXPECT_EQ(FormIn(text, secret), "") << source << " has " << name << ":\n" << text;
      }
    }
  }
  // Keeps an answer as bytes and as text.
  void Keep(const std::string& source, const grpc::Status& status,
            const google::protobuf::Message& answer) {
    EXPECT_TRUE(status.ok()) << source << ": " << status.error_message();
    outputs_[source] += answer.SerializeAsString() + answer.DebugString();
  }
  void KeepError(const grpc::Status& status) {
    EXPECT_FALSE(status.ok()) << "call " << errors_;
    ++errors_;
    outputs_["errors"] += Text(status) + "\n";
  }

  const std::string folder_ = NewFolder();
  const CertificateAuthority ca_{folder_};
  TlsFiles server_;
  TlsFiles owner_;
  std::string token_;
  LimitedCoordinator coordinator_;
  std::unique_ptr<ChildProcess> worker_;
  const std::vector<int64_t> incarnations_ = {0x5eedc0ffee123457, 0x5eedc0ffee765431};
  std::vector<std::string> sessions_;
  std::vector<std::pair<std::string, std::string>> secrets_;
  std::map<std::string, std::string> outputs_;
  int errors_ = 0;
};

void PlantedSecretsTest::PlantValues(Stubs& owner, Stubs& ci) {
  v1::PutRequest put;
  put.mutable_scope()->set_tenant("a");
  put.set_key("key");
  put.set_value(RandomBytes(32));
  Plant("the value of a key", put.value());
  v1::PutResponse put_response;
  EXPECT_TRUE(ci.store->Put(Context().get(), put, &put_response).ok());

  v1::PublishRequest publish;
  *publish.mutable_scope() = ScopeOf(sessions_[0]);
  publish.set_name("nccl");
  *publish.add_ids() = RandomBytes(128);
  Plant("a unique id", publish.ids(0).substr(0, 64));
  v1::PublishResponse published;
  EXPECT_TRUE(owner.unique_ids->Publish(Context().get(), publish, &published).ok());

  v1::SendRequest send;
  *send.mutable_scope() = ScopeOf(sessions_[0]);
  send.set_destination(1);
  send.set_tag("tag");
  send.mutable_payload()->set_inline_(RandomBytes(48));
  Plant("the value of an object", send.payload().inline_());
  v1::SendResponse sent;
  EXPECT_TRUE(owner.messages->Send(Context().get(), send, &sent).ok());
}

void PlantedSecretsTest::ProvokeErrors(Stubs& owner, Stubs& thief, Stubs& ci) {
  // Another identity uses a session, and takes a member's place.
  v1::KeepAliveRequest keep_alive;
  *keep_alive.mutable_scope() = ScopeOf(sessions_[0]);
  v1::KeepAliveResponse kept;
  KeepError(thief.groups->KeepAlive(Context().get(), keep_alive, &kept));
  v1::JoinRequest join = JoinRequestOf(kGroup, 0, kMembers);
  *join.mutable_scope() = ScopeOf("");
  join.set_incarnation(incarnations_[0]);
  v1::JoinResponse joined;
  KeepError(thief.groups->Join(Context().get(), join, &joined));
  // A session that the coordinator does not know, one of another size, another generation.
  const std::string unknown = RandomBytes(16);
  Plant("a session that does not exist", unknown);
  *keep_alive.mutable_scope() = ScopeOf(unknown);
  KeepError(owner.groups->KeepAlive(Context().get(), keep_alive, &kept));
  *keep_alive.mutable_scope() = ScopeOf(sessions_[0] + "x");
  KeepError(owner.groups->KeepAlive(Context().get(), keep_alive, &kept));
  v1::BarrierRequest barrier;
  *barrier.mutable_scope() = ScopeOf(sessions_[0]);
  barrier.mutable_scope()->set_generation(99);
  v1::BarrierResponse released;
  KeepError(owner.messages->Barrier(Context().get(), barrier, &released));
  // Values in requests that are refused.
  v1::SendRequest send;
  *send.mutable_scope() = ScopeOf(sessions_[0]);
  send.set_destination(99);
  send.mutable_payload()->set_inline_(RandomBytes(32));
  Plant("a value that is refused", send.payload().inline_());
  v1::SendResponse sent;
  KeepError(owner.messages->Send(Context().get(), send, &sent));
  v1::PutRequest put;
  put.mutable_scope()->set_tenant("a");
  put.set_key("key");
  put.set_value(RandomBytes(32));
  put.set_expected_revision(1000000);
  Plant("a value of a failed put", put.value());
  v1::PutResponse put_response;
  const grpc::Status other_revision = ci.store->Put(Context().get(), put, &put_response);
  if (!other_revision.ok()) KeepError(other_revision);
  // A tenant in which the token has no role, and a token that the policy does not have.
  put.mutable_scope()->set_tenant("b");
  KeepError(ci.store->Put(Context().get(), put, &put_response));
  const std::string wrong = absl::BytesToHexString(RandomBytes(32));
  Plant("a token that is wrong", wrong);
  std::ofstream(folder_ + "/wrong-token") << wrong;
  const auto guesser = StubsOf({"", "", ca_.path()}, folder_ + "/wrong-token");
  KeepError(guesser->store->Put(Context().get(), put, &put_response));
}

void PlantedSecretsTest::Observe(Stubs& watcher) {
  v1::GetGroupRequest get_group;
  *get_group.mutable_scope() = ScopeOf("");
  v1::GetGroupResponse group;
  Keep("GetGroup", watcher.groups->GetGroup(Context().get(), get_group, &group), group);
  v1::ListGroupsRequest list_request;
  list_request.mutable_scope()->set_tenant("a");
  v1::ListGroupsResponse list;
  Keep("ListGroups", watcher.groups->ListGroups(Context().get(), list_request, &list), list);
  v1::DumpWaitsRequest dump_request;
  *dump_request.mutable_scope() = ScopeOf("");
  v1::DumpWaitsResponse dump;
  Keep("DumpWaits", watcher.admin->DumpWaits(Context().get(), dump_request, &dump), dump);
  EXPECT_GT(dump.calls_size(), 0);
  v1::WhoIsMissingRequest missing_request;
  *missing_request.mutable_scope() = ScopeOf("");
  v1::WhoIsMissingResponse missing;
  Keep("WhoIsMissing", watcher.admin->WhoIsMissing(Context().get(), missing_request, &missing),
       missing);
  v1::ServerStatsResponse server;
  Keep("ServerStats", watcher.admin->ServerStats(Context().get(), {}, &server), server);
  v1::StatsRequest stats_request;
  *stats_request.mutable_scope() = ScopeOf("");
  v1::StatsResponse stats;
  Keep("Stats", watcher.messages->Stats(Context().get(), stats_request, &stats), stats);
  // The events of the group from its start on.
  v1::WatchGroupRequest watch;
  *watch.mutable_scope() = ScopeOf("");
  watch.set_from_revision(1);
  const auto context = Context();
  const auto events = watcher.groups->WatchGroup(context.get(), watch);
  v1::WatchGroupResponse event;
  if (events->Read(&event)) Keep("WatchGroup", grpc::Status::OK, event);
  context->TryCancel();
}

void PlantedSecretsTest::RunTool(const std::vector<std::string>& words) {
  std::vector<std::string> command = {"/bin/sh", "-c", "exec \"$0\" \"$@\" 2>&1",
                                      ProgramPath("worker/cli/cohort")};
  command.insert(command.end(), words.begin(), words.end());
  for (const char* const flag : {"--tenant", "a", "--coordinator"}) command.push_back(flag);
  command.push_back(coordinator_.address());
  ChildProcess tool(std::move(command));
  std::string& output = outputs_[absl::StrCat("cohort ", words[0], " ", words.back())];
  for (absl::StatusOr<std::string> line = tool.ReadLine(kTimeout); line.ok();
       line = tool.ReadLine(kTimeout)) {
    absl::StrAppend(&output, *line, "\n");
  }
  EXPECT_TRUE(tool.Wait(kTimeout).ok());
  EXPECT_NE(output, "");
}

// Returns its address.
std::string PlantedSecretsTest::StartWorker() {
  const std::string port_file = folder_ + "/worker-port";
  worker_ = std::make_unique<ChildProcess>(std::vector<std::string>{
      "worker/daemon/cohort-worker", "--listen", "127.0.0.1:0", "--port-file", port_file,
      "--metrics-listen", "127.0.0.1:0", "--coordinator", coordinator_.address(), "--log-level",
      "debug", "--tls-certificate", server_.certificate, "--tls-key", server_.key,
      "--tls-client-ca", server_.ca});
  EXPECT_TRUE(Eventually([&] { return absl::StrContains(ReadAll(port_file), "\n"); }))
      << worker_->ErrorText();
  const std::string port(absl::StripAsciiWhitespace(ReadAll(port_file)));
  return absl::StrCat("127.0.0.1:", port.substr(port.rfind(':') + 1));
}

TEST_F(PlantedSecretsTest, NoCoreDumpHoldsThem) {
  StartWorker();
  for (const pid_t pid : {coordinator_.pid(), worker_->pid()}) {
    EXPECT_THAT(ReadAll(absl::StrCat("/proc/", pid, "/limits")),
                ContainsRegex("Max core file size +[01] +[01] "));
  }
}

TEST_F(PlantedSecretsTest, AppearInNoOutput) {
  Plant("a bearer token", token_);
  PlantKeyOf("coordinator", server_);
  PlantKeyOf("client", owner_);
  const auto owner = StubsOf(owner_);
  const auto thief = StubsOf(Client("thief"));
  const auto watcher = StubsOf(Client("watcher"));
  const auto ci = StubsOf({"", "", ca_.path()}, folder_ + "/token");
  ASSERT_NO_FATAL_FAILURE(Join(*owner));
  PlantValues(*owner, *ci);
  // A member that waits in a barrier, for DumpWaits.
  const auto waiting_context = Context();
  std::thread waiting([&] {
    v1::BarrierRequest barrier;
    *barrier.mutable_scope() = ScopeOf(sessions_[0]);
    barrier.mutable_round()->mutable_wait()->set_seconds(60);
    v1::BarrierResponse response;
    owner->messages->Barrier(waiting_context.get(), barrier, &response);
  });
  v1::DumpWaitsRequest dump_request;
  *dump_request.mutable_scope() = ScopeOf("");
  EXPECT_TRUE(Eventually([&] {
    v1::DumpWaitsResponse dump;
    return watcher->admin->DumpWaits(Context().get(), dump_request, &dump).ok() &&
           dump.calls_size() > 0;
  }));
  ProvokeErrors(*owner, *thief, *ci);
  EXPECT_GE(errors_, 8);
  Observe(*watcher);
  outputs_["the coordinator's metrics"] = MetricsOf(coordinator_.ErrorText(), token_);
  EXPECT_THAT(outputs_["the coordinator's metrics"], HasSubstr("cohort_uptime_seconds"));

  // A worker, with a group of one rank.
  Become(owner_);
  const std::string worker = StartWorker();
  {
    client::RemoteGroupOptions options;
    options.worker.address = worker;
    options.tenant = "a";
    options.group = "tensors";
    options.rank = 0;
    options.world_size = 1;
    options.join_timeout = options.timeout = kTimeout;
    const auto group = client::RemoteGroup::Create(options);
    ASSERT_TRUE(group.ok()) << group.status() << worker_->ErrorText();
    EXPECT_TRUE((*group)->Barrier().ok());
    Become(Client("watcher"));
    outputs_["the worker's metrics"] = MetricsOf(worker_->ErrorText(), token_);
    EXPECT_THAT(outputs_["the worker's metrics"], HasSubstr("cohort_"));
    RunTool({"group", "show", kGroup});
    RunTool({"group", "show", "tensors"});
    RunTool({"group", "list"});
    RunTool({"waits"});
    RunTool({"who-is-missing", kGroup});
    RunTool({"server"});
    RunTool({"worker", "show", worker});
    RunTool({"trace", "--json", "tensors"});
  }
  waiting_context->TryCancel();
  waiting.join();

  worker_->Signal(SIGTERM);
  EXPECT_TRUE(worker_->Wait(kTimeout).ok());
  EXPECT_TRUE(coordinator_.Terminate(kTimeout).ok());
  outputs_["the coordinator's log"] = coordinator_.ErrorText();
  outputs_["the worker's log"] = worker_->ErrorText();
  EXPECT_THAT(outputs_["the coordinator's log"], HasSubstr("denied a call"));
  ExpectNoSecrets();
  // The journal has the sessions, and is for its user alone.
  std::string journal = ReadAll(folder_ + "/journal") + ReadAll(folder_ + "/journal-wal");
  EXPECT_EQ(FormIn(journal, sessions_[0]), "as it is");
  EXPECT_EQ(FormIn(journal, token_), "");
  struct stat file = {};
  ASSERT_EQ(stat((folder_ + "/journal").c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
}

// A client that knows it may repeat the join, and then gets the session, where there is no policy.
TEST_F(PlantedSecretsTest, GetGroupHidesTheIncarnation) {
  ASSERT_NO_FATAL_FAILURE(Join(*StubsOf(owner_)));
  v1::GetGroupRequest request;
  *request.mutable_scope() = ScopeOf("");
  v1::GetGroupResponse response;
  const grpc::Status status =
      StubsOf(Client("watcher"))->groups->GetGroup(Context().get(), request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.group().members_size(), kMembers);
  for (const v1::Member& member : response.group().members()) {
    EXPECT_NE(member.incarnation_hash(), incarnations_[static_cast<size_t>(member.rank())]);
  }
}

}  // namespace
}  // namespace cohort::testing
