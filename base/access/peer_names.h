// The names of a client: those that its connection proves, and those of a client for which it
// calls.
#ifndef COHORT_BASE_ACCESS_PEER_NAMES_H_
#define COHORT_BASE_ACCESS_PEER_NAMES_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/tls/peer_certificate.h"

namespace cohort {

// Stands between the client and the worker in the identity of a client that calls through a worker.
// No other name contains it.
inline constexpr absl::string_view kThrough = " through ";

// The names of the client at the other end of `fd`, the most specific one first:
//   the URIs of its certificate, but for those that look like one of the names below; "dns:NAME"
//   for each of its DNS names; "cn:NAME" for its common
//     name, if it has no other;
//   "uid:NUMBER" for a client of a Unix socket;
//   "anonymous-tls" for a client by TLS without a certificate, or with one without a name;
//   "anonymous" for others.
// A certificate with a SPIFFE id has no other URI, and the id is well-formed. Otherwise it has no
// name at all.
std::vector<std::string> NamesOfPeer(int fd, const PeerCertificate* certificate);

// Whether `id` is as the SPIFFE standard demands: "spiffe://", a trust domain in lower case, and a
// path without empty segments, "." and "..".
bool IsSpiffeId(absl::string_view id);

// Whether the name means the same on another machine: "uid:NUMBER" and "anonymous" do not.
bool IsNameOfCertificateOrToken(absl::string_view name);

// The names that another server has sent (base/rpc/client_names.h). Empty: `encoded` is no list of
// one or more names.
std::vector<std::string> DecodeClientNames(absl::string_view encoded);

}  // namespace cohort

#endif  // COHORT_BASE_ACCESS_PEER_NAMES_H_
