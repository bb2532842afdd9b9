#include "base/port/peer/proxy_header.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace cohort {
namespace {

constexpr absl::string_view kText = "PROXY ";
constexpr size_t kMaxTextBytes = 107;  // with the line's end
constexpr absl::string_view kBinary("\r\n\r\n\0\r\nQUIT\n", 12);
constexpr size_t kBinaryHeaderBytes = 16;

absl::Status Malformed(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("PROXY protocol: ", why));
}

int NumberAt(absl::string_view bytes, size_t at) {
  return static_cast<uint8_t>(bytes[at]) << 8 | static_cast<uint8_t>(bytes[at + 1]);
}

// The address in the form of this process.
std::string TextOf(int family, const char* address) {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(family, address, text, sizeof(text));
  return text;
}

// "PROXY TCP4 CLIENT SERVER CLIENT_PORT SERVER_PORT\r\n"
absl::StatusOr<ProxyHeader> ParseText(absl::string_view first) {
  const size_t end = first.substr(0, kMaxTextBytes).find("\r\n");
  if (end == absl::string_view::npos) {
    if (first.size() < kMaxTextBytes) return ProxyHeader();
    return Malformed("the first line is too long");
  }
  ProxyHeader header;
  header.bytes = end + 2;
  const std::vector<std::string> words = absl::StrSplit(first.substr(0, end), ' ');
  if (words[1] == "UNKNOWN") return header;
  const int family = words[1] == "TCP6" ? AF_INET6 : AF_INET;
  char address[sizeof(in6_addr)] = {};
  if (words.size() != 6 || (words[1] != "TCP4" && words[1] != "TCP6") ||
      inet_pton(family, words[2].c_str(), address) != 1 ||
      !absl::SimpleAtoi(words[4], &header.port) || header.port < 0 || header.port > 65535) {
    return Malformed("the first line is not of TCP4, TCP6 or UNKNOWN");
  }
  header.address = TextOf(family, address);
  return header;
}

absl::StatusOr<ProxyHeader> ParseBinary(absl::string_view first) {
  constexpr uint8_t kLocal = 0x20;
  constexpr uint8_t kProxied = 0x21;
  constexpr uint8_t kTcp4 = 0x11;
  constexpr uint8_t kTcp6 = 0x21;
  if (first.size() < kBinaryHeaderBytes) return ProxyHeader();
  const auto command = static_cast<uint8_t>(first[12]);
  const auto family = static_cast<uint8_t>(first[13]);
  if (command != kLocal && command != kProxied) return Malformed("unknown version or command");
  const size_t bytes = kBinaryHeaderBytes + static_cast<size_t>(NumberAt(first, 14));
  if (bytes > kMaxProxyHeaderBytes) return Malformed("the header is too long");
  if (first.size() < bytes) return ProxyHeader();
  ProxyHeader header;
  header.bytes = bytes;
  if (command == kLocal || (family != kTcp4 && family != kTcp6)) return header;
  // The addresses of client and server, then their ports.
  const size_t each = family == kTcp4 ? sizeof(in_addr) : sizeof(in6_addr);
  if (bytes < kBinaryHeaderBytes + 2 * each + 4) return Malformed("the header has no addresses");
  header.address = TextOf(family == kTcp4 ? AF_INET : AF_INET6, first.data() + kBinaryHeaderBytes);
  header.port = NumberAt(first, kBinaryHeaderBytes + 2 * each);
  return header;
}

}  // namespace

absl::StatusOr<ProxyHeader> ParseProxyHeader(absl::string_view first) {
  const auto begins = [first](absl::string_view signature) {
    const size_t size = std::min(first.size(), signature.size());
    return first.substr(0, size) == signature.substr(0, size);
  };
  if (begins(kText)) return first.size() < kText.size() ? ProxyHeader() : ParseText(first);
  if (begins(kBinary)) return ParseBinary(first);
  return Malformed("the connection does not begin with its header");
}

}  // namespace cohort
