#include "base/port/peer/ip_network.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace cohort {
namespace {

using Bytes = std::array<uint8_t, 16>;

std::optional<Bytes> BytesOf(const std::string& address) {
  Bytes bytes = {};
  if (inet_pton(AF_INET6, address.c_str(), bytes.data()) == 1) return bytes;
  bytes[10] = bytes[11] = 0xff;
  if (inet_pton(AF_INET, address.c_str(), bytes.data() + 12) == 1) return bytes;
  return std::nullopt;
}

}  // namespace

absl::StatusOr<IpNetwork> IpNetwork::Parse(absl::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '/');
  const std::optional<Bytes> address = BytesOf(parts[0]);
  const bool is_v4 = !absl::StrContains(parts[0], ':');
  IpNetwork network;
  int bits = is_v4 ? 32 : 128;
  const int most = bits;
  if (!address.has_value() || parts.size() > 2 ||
      (parts.size() == 2 && (!absl::SimpleAtoi(parts[1], &bits) || bits < 0 || bits > most))) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is no network such as 10.0.0.0/8 or fd00::/8"));
  }
  network.address_ = *address;
  network.bits_ = bits + (is_v4 ? 96 : 0);
  return network;
}

bool IpNetwork::Contains(const std::string& address) const {
  const std::optional<Bytes> bytes = BytesOf(address);
  if (!bytes.has_value()) return false;
  for (int bit = 0; bit < bits_; ++bit) {
    const auto at = static_cast<size_t>(bit / 8);
    if (((address_[at] ^ (*bytes)[at]) & (0x80 >> bit % 8)) != 0) return false;
  }
  return true;
}

absl::StatusOr<std::vector<IpNetwork>> ParseIpNetworks(const std::vector<std::string>& texts) {
  std::vector<IpNetwork> networks;
  for (const std::string& text : texts) {
    COHORT_ASSIGN_OR_RETURN(IpNetwork network, IpNetwork::Parse(text));
    networks.push_back(network);
  }
  return networks;
}

}  // namespace cohort
