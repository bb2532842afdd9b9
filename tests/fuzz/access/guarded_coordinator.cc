#include "tests/fuzz/access/guarded_coordinator.h"

#include <poll.h>
#include <stdlib.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/access/access_policy.h"
#include "base/access/token_hash.h"
#include "base/clock.h"
#include "base/framed_rpc/frame.h"
#include "base/status_macros.h"
#include "base/tls/tls_session.h"
#include "base/unique_fd.h"
#include "coordinator/journal/memory_journal.h"
#include "tests/fuzz/access/frame_client.h"

namespace cohort::coordinator::fuzz {
namespace {

using Progress = TlsSession::Progress;

constexpr char kServerStats[] = "cohort.v1.AdminService/ServerStats";

// A socket's path has to be short.
std::string NewFolder() {
  char folder[] = "/tmp/cohort-fuzz-XXXXXX";
  if (mkdtemp(folder) == nullptr) std::abort();
  return folder;
}

std::string WritePolicy(const std::string& folder) {
  const std::string path = folder + "/policy.json";
  std::ofstream(path) << absl::StrCat(
      R"({"rules": [
        {"identity": "spiffe://fuzz/good", "tenant": "*", "role": "operator"},
        {"identity": "token:good", "tenant": "a", "role": "member"}], "tokens": [
        {"name": "good", "sha256": ")",
      absl::BytesToHexString(HashToken(kGoodToken)), R"("}]})");
  return path;
}

absl::Status Finish(TlsSession& session, int fd) {
  while (true) {
    switch (session.Handshake()) {
      case Progress::kDone:
        return absl::OkStatus();
      case Progress::kFailed:
        return session.error();
      case Progress::kWantInput:
        if (!AwaitEvents(fd, POLLIN)) return absl::InternalError("no handshake in time");
        break;
      case Progress::kWantOutput:
        if (!AwaitEvents(fd, POLLOUT)) return absl::InternalError("no handshake in time");
        break;
    }
  }
}

}  // namespace

GuardedCoordinator& GuardedCoordinator::Shared(bool certificate_optional) {
  // They live as long as the process: threads of gRPC do, too.
  // Most inputs break the handshake, and all are of one user.
  ListenerOptions listener;
  listener.failed_handshakes.burst = absl::InfiniteDuration();
  static auto* const strict = new GuardedCoordinator(false, listener);
  static auto* const lenient = new GuardedCoordinator(true, listener);
  return certificate_optional ? *lenient : *strict;
}

GuardedCoordinator::GuardedCoordinator(bool certificate_optional, ListenerOptions listener)
    : folder_(NewFolder()),
      path_(folder_ + "/socket"),
      ca_(folder_),
      client_(ca_.Sign("client", {"good", "URI:spiffe://fuzz/good"})) {
  engine_ =
      Engine::Start(EngineOptions(), std::make_unique<MemoryJournal>(), Clock::Steady()).value();
  DispatcherOptions dispatch;
  dispatch.checks_access = true;
  dispatcher_ = std::make_unique<Dispatcher>(dispatch, *engine_, nullptr);
  TlsFiles files = ca_.Sign("server", {"server", "DNS:localhost"});
  files.client_certificate_optional = certificate_optional;
  RpcServerOptions options;
  options.listen = {absl::StrCat("unix:", path_)};
  options.listener = std::move(listener);
  options.listener.tls = TlsContext::Load(files, TlsSide::kServer).value();
  options.listener.access = AccessPolicy::Load(WritePolicy(folder_)).value();
  server_ = RpcServer::Start(options, *dispatcher_).value();
}

absl::StatusOr<std::unique_ptr<FrameClient>> GuardedCoordinator::Connect(
    const TlsFiles& files) const {
  UniqueFd fd(ConnectTo(path_));
  if (fd.get() < 0) return absl::UnavailableError("the coordinator accepts no connection");
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<TlsContext> context,
                          TlsContext::Load(files, TlsSide::kClient));
  const auto session =
      TlsSession::Connect(context->Current(Clock::Steady().Now()), fd.get(), "localhost");
  COHORT_RETURN_IF_ERROR(Finish(*session, fd.get()));
  auto client = std::make_unique<FrameClient>(std::move(fd), session);
  if (client->Greet()) return client;
  // With TLS 1.3 a client learns with its first answer that the server refuses it.
  return session->error().ok() ? absl::UnavailableError("the coordinator does not greet")
                               : session->error();
}

absl::Status GuardedCoordinator::ServesGoodClient() {
  const absl::StatusOr<std::unique_ptr<FrameClient>> client = Connect(client_);
  if (!client.ok()) {
    return absl::InternalError(absl::StrCat("a good client: ", client.status().ToString()));
  }
  (*client)->Send(framed_rpc::Kind::kCall, (*client)->NumberOf(kServerStats), "");
  const std::optional<FrameClient::Reply> reply = (*client)->Next();
  if (!reply.has_value()) return absl::InternalError("a good client gets no answer");
  if (reply->code == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("a good client is refused: ", reply->text));
}

}  // namespace cohort::coordinator::fuzz
