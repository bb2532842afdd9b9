#include "tests/benchmark/rendezvous/peer_systems/redis_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace cohort::benchmark {

absl::StatusOr<std::unique_ptr<RedisClient>> RedisClient::Connect(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "socket");
  std::unique_ptr<RedisClient> client(new RedisClient(fd));
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("no Redis at 127.0.0.1:", port));
  }
  return client;
}

RedisClient::~RedisClient() { close(fd_); }

absl::Status RedisClient::Set(absl::string_view key, absl::string_view value) {
  COHORT_RETURN_IF_ERROR(Send({"SET", key, value}));
  COHORT_ASSIGN_OR_RETURN(const std::string reply, ReadLine());
  return reply == "+OK" ? absl::OkStatus() : absl::InternalError(reply);
}

absl::Status RedisClient::Push(absl::string_view list, absl::string_view value) {
  COHORT_RETURN_IF_ERROR(Send({"LPUSH", list, value}));
  COHORT_ASSIGN_OR_RETURN(const std::string reply, ReadLine());
  return absl::StartsWith(reply, ":") ? absl::OkStatus() : absl::InternalError(reply);
}

absl::StatusOr<std::string> RedisClient::BlockingPop(absl::string_view list) {
  COHORT_RETURN_IF_ERROR(Send({"BLPOP", list, "30"}));
  COHORT_ASSIGN_OR_RETURN(const std::string header, ReadLine());
  if (header == "*-1") return absl::NotFoundError("nothing was pushed");
  if (header != "*2") return absl::InternalError(header);
  COHORT_RETURN_IF_ERROR(ReadBulk().status());  // the list's name
  return ReadBulk();
}

absl::Status RedisClient::Send(const std::vector<absl::string_view>& words) {
  std::string request = absl::StrCat("*", words.size(), "\r\n");
  for (absl::string_view word : words) {
    absl::StrAppend(&request, "$", word.size(), "\r\n", word, "\r\n");
  }
  size_t sent = 0;
  while (sent < request.size()) {
    const ssize_t size = send(fd_, request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
    if (size < 0) return absl::ErrnoToStatus(errno, "send");
    sent += size;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> RedisClient::ReadLine() {
  size_t end;
  while ((end = buffer_.find("\r\n", position_)) == std::string::npos) {
    COHORT_RETURN_IF_ERROR(Fill(buffer_.size() - position_ + 1));
  }
  std::string line = buffer_.substr(position_, end - position_);
  position_ = end + 2;
  if (line.empty()) return absl::InternalError("an empty reply");
  return line;
}

absl::StatusOr<std::string> RedisClient::ReadBulk() {
  COHORT_ASSIGN_OR_RETURN(const std::string header, ReadLine());
  absl::string_view digits = header;
  size_t size = 0;
  if (!absl::ConsumePrefix(&digits, "$") || !absl::SimpleAtoi(digits, &size)) {
    return absl::InternalError(header);
  }
  COHORT_RETURN_IF_ERROR(Fill(size + 2));
  std::string bulk = buffer_.substr(position_, size);
  position_ += size + 2;
  return bulk;
}

absl::Status RedisClient::Fill(size_t size) {
  if (position_ > 0) {
    buffer_.erase(0, position_);
    position_ = 0;
  }
  char chunk[4096];
  while (buffer_.size() < size) {
    const ssize_t got = recv(fd_, chunk, sizeof(chunk), 0);
    if (got < 0) return absl::ErrnoToStatus(errno, "recv");
    if (got == 0) return absl::UnavailableError("Redis closed the connection");
    buffer_.append(chunk, got);
  }
  return absl::OkStatus();
}

}  // namespace cohort::benchmark
