#include "tests/fuzz/access/names_check.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/access/peer_names.h"
#include "base/port/peer/proxy_header.h"
#include "base/rpc/client_names.h"

namespace cohort::fuzz {
namespace {

enum Kind { kNames, kSpiffeId, kHeader, kKindCount };

absl::Status Broken(absl::string_view rule) { return absl::InternalError(rule); }

absl::Status CheckList(absl::string_view encoded, NameCounts& counts) {
  const std::vector<std::string> names = DecodeClientNames(encoded);
  ++(names.empty() ? counts.refused : counts.lists);
  for (const std::string& name : names) {
    if (name.empty() || absl::StrContains(name, kThrough))
      return Broken("a name that no client has");
  }
  if (!names.empty() && EncodeClientNames(names) != encoded)
    return Broken("other names than were sent");
  return absl::OkStatus();
}

absl::Status CheckId(absl::string_view id, NameCounts& counts) {
  if (!IsSpiffeId(id)) {
    ++counts.refused;
    return absl::OkStatus();
  }
  ++counts.ids;
  const std::string segments = absl::StrCat(id.substr(9), "/");  // behind "spiffe://"
  if (absl::StrContains(segments, "//") || absl::StrContains(segments, "/./") ||
      absl::StrContains(segments, "/../")) {
    return Broken("a path that has to be normalised");
  }
  const std::string domain = segments.substr(0, segments.find('/'));
  if (domain != absl::AsciiStrToLower(domain)) return Broken("a trust domain in upper case");
  return absl::OkStatus();
}

absl::Status CheckHeader(absl::string_view bytes, NameCounts& counts) {
  const auto header = ParseProxyHeader(bytes);
  if (!header.ok()) {
    ++counts.refused;
    return absl::OkStatus();
  }
  if (header->bytes == 0) {
    return header->address.empty() ? absl::OkStatus() : Broken("an address without a header");
  }
  ++counts.headers;
  if (header->bytes > bytes.size() || header->bytes > kMaxProxyHeaderBytes)
    return Broken("a header behind the end");
  in6_addr address;
  if (!header->address.empty() && inet_pton(AF_INET, header->address.c_str(), &address) != 1 &&
      inet_pton(AF_INET6, header->address.c_str(), &address) != 1) {
    return Broken("a malformed address");
  }
  if (header->port < 0 || header->port > 65535) return Broken("a port out of range");
  const auto shorter = ParseProxyHeader(bytes.substr(0, header->bytes - 1));
  if (!shorter.ok() || shorter->bytes != 0)
    return Broken("a header that does not need its last byte");
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckNames(absl::string_view input, NameCounts* counts) {
  NameCounts unused;
  if (counts == nullptr) counts = &unused;
  if (input.empty()) return absl::OkStatus();
  const int kind = static_cast<uint8_t>(input.front()) % kKindCount;
  input.remove_prefix(1);
  switch (kind) {
    case kNames:
      return CheckList(input, *counts);
    case kSpiffeId:
      return CheckId(input, *counts);
    default:
      return CheckHeader(input, *counts);
  }
}

std::map<std::string, std::string> SampleNames() {
  using std::string_literals::operator""s;
  const auto input = [](Kind kind, const std::string& bytes) {
    return std::string(1, static_cast<char>(kind)) + bytes;
  };
  const std::string binary = "\r\n\r\n\0\r\nQUIT\n"s;
  return {
      {"names", input(kNames, EncodeClientNames({"spiffe://example/a", "dns:b", "token:ci"}))},
      {"name_through", input(kNames, "a through b\0"s)},
      {"name_without_end", input(kNames, "a")},
      {"id", input(kSpiffeId, "spiffe://example.org/ns/team-a/sa/Trainer_1")},
      {"id_up", input(kSpiffeId, "spiffe://example.org/ns/../sa")},
      {"id_upper_case", input(kSpiffeId, "spiffe://Example.org/ns")},
      {"header_text", input(kHeader, "PROXY TCP4 10.0.0.7 10.0.0.1 41822 7700\r\nCOHORT/1")},
      {"header_text_v6", input(kHeader, "PROXY TCP6 fd00::7 fd00::1 41822 7700\r\n")},
      {"header_unknown", input(kHeader, "PROXY UNKNOWN\r\n")},
      {"header_binary",
       input(kHeader, binary + "\x21\x11\0\x0c\x0a\0\0\x07\x0a\0\0\x01\xa3\x5e\x1e\x14"s)},
      {"header_binary_v6", input(kHeader, binary + "\x21\x21\0\x24"s + std::string(36, '\x01'))},
      {"header_local", input(kHeader, binary + "\x20\0\0\0"s)},
      {"header_too_long", input(kHeader, binary + "\x21\x11\xff\xff"s)},
  };
}

}  // namespace cohort::fuzz
