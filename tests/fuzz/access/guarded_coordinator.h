// A coordinator with TLS and an access policy, in this process, for fuzz targets.
#ifndef COHORT_TESTS_FUZZ_ACCESS_GUARDED_COORDINATOR_H_
#define COHORT_TESTS_FUZZ_ACCESS_GUARDED_COORDINATOR_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/port/listener.h"
#include "base/tls/testing/certificates.h"
#include "base/tls/tls_context.h"
#include "coordinator/service/dispatch/dispatcher.h"
#include "coordinator/service/engine/engine.h"
#include "coordinator/service/rpc_server.h"
#include "tests/fuzz/access/frame_client.h"

namespace cohort::coordinator::fuzz {

// The token that the policy knows. Its client is a member of the tenant "a".
inline constexpr char kGoodToken[] = "a-token-of-the-policy";

// The identity spiffe://fuzz/good has all rights.
class GuardedCoordinator {
 public:
  // `certificate_optional`: TLS clients without a certificate are let in, without rights.
  // `listener`: its limits; this class sets TLS and the access policy.
  explicit GuardedCoordinator(bool certificate_optional, ListenerOptions listener = {});
  // One that serves all inputs of this process, from the first one on.
  static GuardedCoordinator& Shared(bool certificate_optional);

  // The path of its Unix socket.
  const std::string& path() const { return path_; }
  const std::string& folder() const { return folder_; }
  // Signs the certificates of clients.
  const cohort::testing::CertificateAuthority& ca() const { return ca_; }
  // The files of a client that the policy lets in, and of one without a certificate.
  const TlsFiles& client() const { return client_; }
  TlsFiles anonymous() const { return {"", "", client_.ca}; }

  // INTERNAL: a client with a certificate gets no answer to a call on a new connection.
  absl::Status ServesGoodClient();
  // A client on a new connection by TLS. Errors: of the connection or of its handshake.
  absl::StatusOr<std::unique_ptr<FrameClient>> Connect(const TlsFiles& files) const;
  // Whether the calls of clients that are gone end.
  bool AwaitIdle() { return dispatcher_->AwaitIdle(kTimeout); }

 private:
  const std::string folder_;
  const std::string path_;
  const cohort::testing::CertificateAuthority ca_;
  const TlsFiles client_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::unique_ptr<RpcServer> server_;
};

}  // namespace cohort::coordinator::fuzz

#endif  // COHORT_TESTS_FUZZ_ACCESS_GUARDED_COORDINATOR_H_
