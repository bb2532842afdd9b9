// Loads a TCPStore server: so many connections, each with one request on its way.
//
//   tcpstore_load PORT CLIENTS METHOD SECONDS
//
// METHOD: "set" (a value of 64 bytes, and a check of its key: set itself has no answer), "get" (of
// such a value), "add", or "wait" (for a key that is there). Prints the requests with an answer per
// second.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr uint32_t kMagic = 0x3C85F7CE;
constexpr size_t kValueBytes = 64;

[[noreturn]] void Fail(const std::string& text) {
  std::fprintf(stderr, "tcpstore_load: %s: %s\n", text.c_str(), std::strerror(errno));
  std::exit(1);
}

std::string Number(uint64_t number) {
  std::string bytes(sizeof(number), '\0');
  std::memcpy(bytes.data(), &number, sizeof(number));
  return bytes;
}
std::string Text(const std::string& text) { return Number(text.size()) + text; }
std::string Set(const std::string& key) {
  return "\1" + Text(key) + Text(std::string(kValueBytes, 'v'));
}
std::string ListOf(char operation, const std::string& key) {
  return operation + Number(1) + Text(key);
}

// The bytes of a request, and the size of its answer.
struct Request {
  std::string bytes;
  size_t answer_bytes = 0;
};

Request MakeRequest(const std::string& method, int client) {
  const std::string key = "load/" + std::to_string(client);
  if (method == "set") return {Set(key) + ListOf('\5', key), 1};
  if (method == "get") return {"\3" + Text(key), 8 + kValueBytes};
  if (method == "add") return {"\4" + Text("count/" + std::to_string(client)) + Number(1), 8};
  if (method == "wait") return {ListOf('\6', key), 1};
  std::fprintf(stderr, "tcpstore_load: no method %s\n", method.c_str());
  std::exit(2);
}

// Connects as PyTorch's client does, which waits for an echo; then writes the client's key.
int Connect(int port, const std::string& key) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) Fail("connect");
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const auto ask = [fd](const std::string& bytes, size_t answer_bytes) {
    char answer[8];
    if (send(fd, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()) ||
        recv(fd, answer, answer_bytes, MSG_WAITALL) != static_cast<ssize_t>(answer_bytes)) {
      Fail("connect");
    }
  };
  std::string hello(1, '\0');
  hello.append(reinterpret_cast<const char*>(&kMagic), sizeof(kMagic));
  ask(hello + "\15echo", 4);
  ask(Set(key) + ListOf('\5', key), 1);
  return fd;
}

struct Client {
  int fd = -1;
  Request request;
  size_t left = 0;  // bytes of the answer
};

void Send(Client& client) {
  const std::string& bytes = client.request.bytes;
  if (send(client.fd, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    Fail("send");
  }
  client.left = client.request.answer_bytes;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: tcpstore_load PORT CLIENTS METHOD SECONDS\n");
    return 2;
  }
  const int port = std::atoi(argv[1]);
  std::vector<Client> clients(static_cast<size_t>(std::atoi(argv[2])));
  const auto length = std::chrono::duration<double>(std::atof(argv[4]));
  const int epoll = epoll_create1(0);
  for (size_t i = 0; i < clients.size(); ++i) {
    Client& client = clients[i];
    client.request = MakeRequest(argv[3], static_cast<int>(i));
    client.fd = Connect(port, "load/" + std::to_string(i));
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.ptr = &client;
    epoll_ctl(epoll, EPOLL_CTL_ADD, client.fd, &event);
  }
  const auto begin = std::chrono::steady_clock::now();
  for (Client& client : clients) Send(client);
  int64_t answers = 0;
  std::vector<epoll_event> events(clients.size());
  char bytes[4096];
  size_t waiting = clients.size();
  // Requests that are on their way at the end are answered, too.
  while (waiting > 0) {
    const int count = epoll_wait(epoll, events.data(), static_cast<int>(events.size()), 1000);
    if (count <= 0) Fail("the server does not answer");
    for (int i = 0; i < count; ++i) {
      Client& client = *static_cast<Client*>(events[static_cast<size_t>(i)].data.ptr);
      const ssize_t size = recv(client.fd, bytes, sizeof(bytes), 0);
      if (size <= 0) Fail("recv");
      client.left -= static_cast<size_t>(size);
      if (client.left > 0) continue;
      ++answers;
      if (std::chrono::steady_clock::now() - begin < length) {
        Send(client);
      } else {
        --waiting;
      }
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf("%.0f\n", static_cast<double>(answers) / took.count());
}
