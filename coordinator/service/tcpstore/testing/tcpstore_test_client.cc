#include "coordinator/service/tcpstore/testing/tcpstore_test_client.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "coordinator/service/tcpstore/tcpstore_request.h"

namespace cohort::coordinator::tcpstore {

std::string NumberBytes(uint64_t number) {
  std::string bytes(sizeof(number), '\0');
  std::memcpy(bytes.data(), &number, sizeof(number));
  return bytes;
}

std::string TextBytes(absl::string_view text) {
  return absl::StrCat(NumberBytes(text.size()), text);
}

std::string RequestBytes(int operation, const std::vector<std::string>& fields) {
  std::string bytes(1, static_cast<char>(operation));
  for (const std::string& field : fields) bytes += field;
  return bytes;
}

std::string Hello() { return RequestBytes(0, {NumberBytes(kMagic).substr(0, sizeof(kMagic))}); }

TestClient::TestClient(int port, absl::string_view first)
    : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ended_ = connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0;
  Send(first);
}

bool TestClient::Send(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

void TestClient::EndSending() { shutdown(fd_.get(), SHUT_WR); }

std::string TestClient::Read(size_t size, absl::Duration timeout) {
  std::string bytes(size, '\0');
  size_t have = 0;
  while (have < size) {
    pollfd waited{fd_.get(), POLLIN, 0};
    if (poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout))) <= 0) break;
    const ssize_t count = recv(fd_.get(), bytes.data() + have, size - have, 0);
    if (count <= 0) {
      ended_ = true;
      break;
    }
    have += static_cast<size_t>(count);
  }
  bytes.resize(have);
  return bytes;
}

}  // namespace cohort::coordinator::tcpstore
