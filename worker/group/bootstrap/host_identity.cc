#include "worker/group/bootstrap/host_identity.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdint>
#include <fstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"
#include "worker/communicator/socket/mesh/rank_listener.h"

namespace cohort::worker {

namespace {

// The number of this process's network namespace.
uint64_t NetworkNamespace() {
#ifdef SO_NETNS_COOKIE
  const UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  if (getsockopt(fd.get(), SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &size) == 0) return cookie;
#endif
  // For kernels before 5.14. A process that has changed its user cannot read this.
  struct stat network = {};
  stat("/proc/self/ns/net", &network);
  return network.st_ino;
}

}  // namespace

std::string MachineIdentity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot;
}

std::string HostIdentity() { return absl::StrCat(MachineIdentity(), "/", NetworkNamespace()); }

std::string ClockIdentity() {
  // A time namespace moves the steady clock.
  struct stat time = {};
  stat("/proc/self/ns/time", &time);
  return absl::StrCat(MachineIdentity(), "/", time.st_ino);
}

std::string LocalAddressTowards(absl::string_view address, std::string* why) {
  constexpr char kLoopback[] = "127.0.0.1";
  const auto because = [&](absl::string_view reason) {
    if (why != nullptr) *why = absl::StrCat("it reaches the coordinator at ", address, reason);
  };
  because("");
  if (absl::StartsWith(address, "unix:")) return kLoopback;
  const absl::StatusOr<std::vector<SocketAddress>> targets = ResolveAddresses(address);
  if (!targets.ok()) {
    because(absl::StrCat(", and ", targets.status().message()));
    return kLoopback;
  }
  because(", and has no route there");
  for (const SocketAddress& target : *targets) {
    // Connecting a datagram socket sends nothing; it only chooses the route.
    const UniqueFd fd(socket(target.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage local = {};
    socklen_t size = sizeof(local);
    if (fd.get() < 0 || connect(fd.get(), target.get(), target.size) != 0 ||
        getsockname(fd.get(), reinterpret_cast<sockaddr*>(&local), &size) != 0) {
      continue;
    }
    char text[INET6_ADDRSTRLEN] = {};
    const void* const number =
        local.ss_family == AF_INET6
            ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6*>(&local)->sin6_addr)
            : static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(&local)->sin_addr);
    if (inet_ntop(local.ss_family, number, text, sizeof(text)) == nullptr) continue;
    because("");
    return text;
  }
  return kLoopback;
}

}  // namespace cohort::worker
