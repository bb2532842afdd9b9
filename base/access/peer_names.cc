#include "base/access/peer_names.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/peer_user.h"
#include "base/rpc/client_names.h"
#include "base/text/utf8.h"

namespace cohort {
namespace {

// The limit of a SPIFFE id.
constexpr size_t kMaxNameBytes = 2048;

// Whether a certificate's URI could be taken for a name that no certificate gives.
bool LooksLikeOtherName(absl::string_view uri) {
  constexpr std::array<absl::string_view, 6> kOthers = {
      "dns:", "cn:", "uid:", "token:", "jwt:", "anonymous"};
  return std::any_of(kOthers.begin(), kOthers.end(),
                     [uri](absl::string_view other) { return absl::StartsWith(uri, other); });
}

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const size_t bytes = DecodeUtf8(text).bytes;
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

bool IsName(absl::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && !absl::StrContains(name, kThrough) &&
         IsUtf8(name);
}

bool ConsistsOf(absl::string_view text, bool upper_case) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '.' || c == '-' || c == '_' ||
           (upper_case && absl::ascii_isupper(c));
  });
}

// False: the certificate breaks the rules of SPIFFE.
bool CheckUris(const std::vector<std::string>& uris) {
  const bool has_id = std::any_of(uris.begin(), uris.end(), [](const std::string& uri) {
    return absl::StartsWithIgnoreCase(uri, "spiffe:");
  });
  return !has_id || (uris.size() == 1 && IsSpiffeId(uris.front()));
}

std::vector<std::string> NamesOfCertificate(const PeerCertificate& certificate) {
  std::vector<std::string> names;
  if (!CheckUris(certificate.uris)) return names;
  const auto add = [&names](std::string name) {
    if (IsName(name)) names.push_back(std::move(name));
  };
  for (const std::string& uri : certificate.uris) {
    if (!LooksLikeOtherName(uri)) add(uri);
  }
  for (const std::string& name : certificate.dns_names) add(absl::StrCat("dns:", name));
  if (names.empty() && !certificate.common_name.empty()) {
    add(absl::StrCat("cn:", certificate.common_name));
  }
  return names;
}

}  // namespace

bool IsSpiffeId(absl::string_view id) {
  if (id.size() > kMaxNameBytes || !absl::ConsumePrefix(&id, "spiffe://")) return false;
  const std::vector<absl::string_view> parts = absl::StrSplit(id, '/');
  return parts.front().size() <= 255 && ConsistsOf(parts.front(), /*upper_case=*/false) &&
         std::all_of(parts.begin() + 1, parts.end(), [](absl::string_view segment) {
           return ConsistsOf(segment, /*upper_case=*/true) && segment != "." && segment != "..";
         });
}

std::vector<std::string> NamesOfPeer(int fd, const PeerCertificate* certificate) {
  if (certificate != nullptr) {
    std::vector<std::string> names = NamesOfCertificate(*certificate);
    if (!names.empty()) return names;
  }
  int domain = 0;
  socklen_t size = sizeof(domain);
  ucred credentials = {};
  socklen_t credentials_size = sizeof(credentials);
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX &&
      getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &credentials_size) == 0 &&
      IsOneUser(credentials.uid)) {
    return {absl::StrCat("uid:", credentials.uid)};
  }
  return {certificate == nullptr ? "anonymous" : "anonymous-tls"};
}

bool IsNameOfCertificateOrToken(absl::string_view name) {
  return !absl::StartsWith(name, "uid:") && !absl::StartsWith(name, "anonymous");
}

std::vector<std::string> DecodeClientNames(absl::string_view encoded) {
  if (encoded.size() > kMaxClientNamesBytes ||
      !absl::ConsumeSuffix(&encoded, absl::string_view("\0", 1))) {
    return {};
  }
  std::vector<std::string> names = absl::StrSplit(encoded, '\0');
  return std::all_of(names.begin(), names.end(), IsName) ? names : std::vector<std::string>();
}

}  // namespace cohort
