#include "worker/group/connections/secure_connections.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/rank_set.h"
#include "base/status_macros.h"
#include "worker/communicator/socket/mesh/secure_mesh.h"

namespace cohort::worker {
namespace {

constexpr absl::string_view kPathPrefix = "tls ";
constexpr absl::string_view kRemedy =
    "Give all ranks COHORT_TLS_CA, COHORT_TLS_CERTIFICATE and COHORT_TLS_KEY, or all "
    "COHORT_RANK_TLS=off";

std::string OnHost(size_t rank, const PeerTls& peer) {
  return absl::StrCat("rank ", rank, " on ", peer.host_name);
}

}  // namespace

absl::StatusOr<bool> UseTls(absl::string_view group, absl::Span<const PeerTls> peers) {
  RankSet plain;
  size_t first_plain = peers.size();
  size_t first_with_tls = peers.size();
  for (size_t rank = 0; rank < peers.size(); ++rank) {
    const bool uses_tls = peers[rank].state == TlsState::kOn;
    size_t& first = uses_tls ? first_with_tls : first_plain;
    if (first == peers.size()) first = rank;
    if (!uses_tls) plain.Add(static_cast<int>(rank));
  }
  if (plain.empty()) return true;
  if (first_with_tls == peers.size()) {
    for (size_t rank = 0; rank < peers.size(); ++rank) {
      if (!IsTlsElsewhere(peers[rank].state)) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "ranks of group ", group, " would use plain text between hosts, and ",
          OnHost(rank, peers[rank]), " ", DescribeTls(peers[rank].state), ". ", kRemedy));
    }
    return false;
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "ranks of group ", group,
      " differ in TLS between hosts: ", OnHost(first_plain, peers[first_plain]), " ",
      DescribeTls(peers[first_plain].state), ", ", OnHost(first_with_tls, peers[first_with_tls]),
      " uses TLS (without TLS: rank ", plain.ToString(), "). ", kRemedy));
}

absl::Status SecureConnections(Connections& connections, const TlsFiles& files, Instant deadline) {
  if (!connections.tls_secret.has_value()) return absl::OkStatus();
  const Id128 secret = *std::exchange(connections.tls_secret, std::nullopt);
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<TlsContext> context,
                          TlsContext::Load(files, TlsSide::kPeer));
  SecureMeshOptions options;
  options.rank = connections.rank;
  options.secret = secret;
  options.context = context->Current(Clock::Steady().Now());
  for (const std::string& path : connections.paths) {
    options.places.emplace_back(absl::StripPrefix(path, kPathPrefix));
  }
  COHORT_RETURN_IF_ERROR(SecureMesh(*connections.mesh, options, deadline));
  if (!connections.across.has_value()) return absl::OkStatus();
  const Crossing crossing = CrossingOf(connections.hosts, connections.rank);
  SecureMeshOptions across = {static_cast<int>(crossing.host),
                              SecretOfCrossing(secret, crossing),
                              options.context,
                              crossing.ranks,
                              {}};
  for (const int rank : crossing.ranks) {
    across.places.push_back(options.places[static_cast<size_t>(rank)]);
  }
  return SecureMesh(*connections.across, across, deadline);
}

}  // namespace cohort::worker
