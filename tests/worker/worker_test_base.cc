#include "tests/worker/worker_test_base.h"

#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/rpc/client_tls.h"
#include "grpcpp/create_channel.h"
#include "tests/failure/testing/members.h"
#include "worker/group/attached_group.h"

namespace cohort::testing {

WorkerTest::~WorkerTest() {
  for (Worker& worker : workers_) {
    worker.process.reset();
    unlink(worker.path.c_str());
    rmdir(worker.folder.c_str());
  }
}

void WorkerTest::SetUp() { ASSERT_TRUE(coordinator_.Start().ok()); }

void WorkerTest::StartWorker(const std::vector<std::string>& flags,
                             const std::vector<std::string>& environment) {
  // Below 108 bytes, which the test's folder may not be.
  char folder[] = "/tmp/cohort-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  Worker worker;
  worker.folder = folder;
  worker.path = absl::StrCat(folder, "/worker.sock");
  CoordinatorProcess::Options options;
  options.binary = worker_binary_;
  options.environment = environment;
  options.flags = {"--listen", absl::StrCat("unix:", worker.path), "--coordinator",
                   coordinator_.address()};
  options.flags.insert(options.flags.end(), flags.begin(), flags.end());
  worker.process = std::make_unique<CoordinatorProcess>(options);
  const absl::Status started = worker.process->Start();
  ASSERT_TRUE(started.ok()) << started;
  workers_.push_back(std::move(worker));
}

std::string WorkerTest::AddressOf(int index, Transport transport) const {
  const Worker& worker = workers_[static_cast<size_t>(index)];
  return transport == Transport::kUnix ? absl::StrCat("unix:", worker.path)
                                       : worker.process->address();
}

std::unique_ptr<v1::WorkerService::Stub> WorkerTest::StubOf(int index) const {
  const std::string address = AddressOf(index, Transport::kTcp);
  const absl::StatusOr<ClientTls> tls = ClientTlsOfEnvironment(address);
  EXPECT_TRUE(tls.ok()) << tls.status();
  return v1::WorkerService::NewStub(grpc::CreateChannel(address, tls->grpc));
}

v1::GetWorkerResponse WorkerTest::Describe(int index) const {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  v1::GetWorkerResponse response;
  const grpc::Status status = StubOf(index)->GetWorker(&context, {}, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response;
}

bool WorkerTest::AwaitEmpty(int index) const {
  return Eventually([this, index] {
    const v1::GetWorkerResponse now = Describe(index);
    return now.session_count() == 0 && now.tensor_count() == 0 && now.tensor_bytes() == 0 &&
           now.ranks_size() == 0;
  });
}

std::shared_ptr<client::WorkerSession> WorkerTest::Connect(int index, Transport transport,
                                                           const std::string& name) const {
  client::WorkerSessionOptions options;
  options.address = AddressOf(index, transport);
  options.client_name = name;
  options.attach = transport != Transport::kRemoteTcp;
  absl::StatusOr<std::shared_ptr<client::WorkerSession>> session =
      client::WorkerSession::Connect(options);
  EXPECT_TRUE(session.ok()) << session.status();
  if (!session.ok()) return nullptr;
  EXPECT_EQ((*session)->why_not_attached().empty(), options.attach)
      << (*session)->why_not_attached();
  return *std::move(session);
}

client::RemoteGroupOptions WorkerTest::GroupOptionsOf(
    std::shared_ptr<client::WorkerSession> session, const std::string& group, int rank,
    int world_size) const {
  client::RemoteGroupOptions options;
  options.session = std::move(session);
  options.group = group;
  options.rank = rank;
  options.world_size = world_size;
  options.join_timeout = kTimeout;
  options.timeout = kTimeout;
  return options;
}

WorkerTest::Groups WorkerTest::JoinAll(
    const std::vector<std::shared_ptr<client::WorkerSession>>& sessions, const std::string& group,
    const std::vector<Transport>& transports) const {
  const int size = static_cast<int>(sessions.size());
  Groups groups(sessions.size());
  OnThreads(size, [&](int rank) {
    const auto at = static_cast<size_t>(rank);
    const auto join = [&]() -> absl::StatusOr<std::unique_ptr<client::Group>> {
      client::RemoteGroupOptions rank_options = GroupOptionsOf(sessions[at], group, rank, size);
      if (at < transports.size() && transports[at] == Transport::kAttached)
        return worker::AttachedGroup::Create(rank_options);
      return client::RemoteGroup::Create(rank_options);
    };
    absl::StatusOr<std::unique_ptr<client::Group>> joined = join();
    EXPECT_TRUE(joined.ok()) << "rank " << rank << ": " << joined.status();
    if (joined.ok()) groups[at] = *std::move(joined);
  });
  return groups;
}

std::vector<absl::Status> WorkerTest::OnRanks(
    const Groups& groups, const std::function<absl::Status(client::Group&)>& body) {
  std::vector<absl::Status> statuses(groups.size());
  OnThreads(static_cast<int>(groups.size()), [&](int rank) {
    const auto at = static_cast<size_t>(rank);
    statuses[at] = body(*groups[at]);
  });
  return statuses;
}

void WorkerTest::ExpectOk(const std::vector<absl::Status>& statuses) {
  for (size_t rank = 0; rank < statuses.size(); ++rank) {
    EXPECT_TRUE(statuses[rank].ok()) << "rank " << rank << ": " << statuses[rank];
  }
}

}  // namespace cohort::testing
