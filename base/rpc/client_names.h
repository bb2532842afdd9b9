// The names of a client, as a server sends them that calls another server in the name of that
// client.
#ifndef COHORT_BASE_RPC_CLIENT_NAMES_H_
#define COHORT_BASE_RPC_CLIENT_NAMES_H_

#include <cstddef>
#include <string>
#include <vector>

namespace cohort {

// The metadata of gRPC that has them; in framed RPC, a frame kClient has them.
inline constexpr char kClientNamesMetadata[] = "cohort-client-bin";
// A server takes no longer list.
inline constexpr size_t kMaxClientNamesBytes = 8192;

// Each name with a NUL byte behind it. Names beyond kMaxClientNamesBytes are left out.
inline std::string EncodeClientNames(const std::vector<std::string>& names) {
  std::string encoded;
  for (const std::string& name : names) {
    if (encoded.size() + name.size() + 1 > kMaxClientNamesBytes) break;
    encoded.append(name).push_back('\0');
  }
  return encoded;
}

}  // namespace cohort

#endif  // COHORT_BASE_RPC_CLIENT_NAMES_H_
