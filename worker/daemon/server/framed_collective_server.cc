#include "worker/daemon/server/framed_collective_server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/memory/no_memory.h"
#include "base/rpc/status_conversion.h"
#include "base/text/logging.h"
#include "base/threads/thread.h"

namespace cohort::worker {
namespace {

constexpr size_t kReadBytes = size_t{64} << 10;
// A client that takes no answer for so long is disconnected.
constexpr int kSendSeconds = 30;
// The death of a peer's machine is noticed within kIdleS + kProbes * kProbeS seconds.
constexpr int kIdleS = 20;
constexpr int kProbeS = 5;
constexpr int kProbes = 2;
// The least time between two lines of the log about connections without a thread.
constexpr absl::Duration kBetweenLogs = absl::Seconds(10);
constexpr char kMethod[] = "cohort.v1.WorkerService/RunCollective\n";
constexpr absl::string_view kOperation(kMethod, sizeof(kMethod) - 2);

void Set(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof(value));
}

void Prepare(int fd) {
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  const timeval timeout = {kSendSeconds, 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  // On Unix sockets, whose peers cannot vanish unnoticed, these calls fail without harm.
  Set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  Set(fd, IPPROTO_TCP, TCP_KEEPIDLE, kIdleS);
  Set(fd, IPPROTO_TCP, TCP_KEEPINTVL, kProbeS);
  Set(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  Set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
}

bool SendAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

// Returns null if there is no memory.
char* RoomFor(framed_rpc::FrameReader& input, size_t bytes) {
  try {
    return input.Room(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

std::string Hello() {
  std::string hello(framed_rpc::kPreface);
  framed_rpc::Header header;
  header.kind = framed_rpc::Kind::kHello;
  header.body_bytes = sizeof(kMethod) - 1;
  framed_rpc::AppendHeader(header, &hello);
  return hello + kMethod;
}

}  // namespace

FramedCollectiveServer::FramedCollectiveServer(WorkerService& service, int64_t max_message_bytes,
                                               int max_connections)
    : service_(service),
      max_message_bytes_(max_message_bytes),
      max_connections_(static_cast<size_t>(std::max(max_connections, 0))) {}

FramedCollectiveServer::~FramedCollectiveServer() { Stop(absl::ZeroDuration()); }

void FramedCollectiveServer::Adopt(int fd, std::shared_ptr<IncompleteRequestBytes> incoming) {
  UniqueFd taken(fd);
  Prepare(fd);
  MutexLock lock(&mutex_);
  JoinDone();
  if (stopped_ || connections_.size() >= max_connections_) return;
  Connection& connection = connections_.emplace_back();
  connection.fd = std::move(taken);
  connection.incoming = std::move(incoming);
  absl::StatusOr<std::thread> thread =
      StartThread("cohort-framed", [this, &connection] { Serve(connection); });
  if (!thread.ok()) {
    connections_.pop_back();
    if (const Instant now = Clock::Steady().Now(); now >= next_log_) {
      next_log_ = now + kBetweenLogs;
      Log(LogLevel::kWarning, "connection for collectives closed: its client calls by gRPC",
          {{"connections", static_cast<int64_t>(connections_.size())},
           {"why", thread.status().message()}});
    }
    return;
  }
  connection.thread = *std::move(thread);
}

void FramedCollectiveServer::Serve(Connection& connection) {
  ServeCalls(connection.fd.get(), connection.incoming);
  MutexLock lock(&mutex_);
  // At most one ended thread is left; the next connection, or Stop, joins it.
  JoinDone();
  connection.fd = UniqueFd();
  connection.done = true;
}

void FramedCollectiveServer::ServeCalls(int fd, std::shared_ptr<IncompleteRequestBytes> incoming) {
  framed_rpc::FrameReader input(static_cast<size_t>(max_message_bytes_));
  IncomingCharge charge(std::move(incoming));
  bool greeted = false;
  bool open = true;
  while (open) {
    // Grows with the bytes that have arrived: a client that declares a large frame holds little
    // memory.
    size_t size = std::max(kReadBytes, std::min({input.wanted(), input.held(), size_t{1} << 20}));
    char* room = RoomFor(input, size);
    if (room == nullptr) {
      framed_rpc::Frame frame;
      if (!input.GiveUpFrame(&frame)) break;
      const auto bytes = static_cast<int64_t>(frame.header.body_bytes);
      if (!Answer(fd, frame, NoMemory(kOperation, "a request", bytes))) break;
      room = RoomFor(input, kReadBytes);
      if (room == nullptr) break;
    }
    size = std::min(size, input.room());
    const ssize_t count = recv(fd, room, size, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    input.Filled(static_cast<size_t>(count));
    if (!greeted) {
      absl::string_view preface;
      if (!input.Peek(framed_rpc::kPreface.size(), &preface)) continue;
      if (preface != framed_rpc::kPreface || !SendAll(fd, Hello())) break;
      input.Skip(preface.size());
      greeted = true;
    }
    for (bool more = true; open && more;) {
      framed_rpc::Frame frame;
      switch (input.Read(&frame)) {
        case framed_rpc::FrameReader::Next::kMore:
          more = false;
          break;
        case framed_rpc::FrameReader::Next::kBroken:
          open = false;
          break;
        case framed_rpc::FrameReader::Next::kTooLarge:
          open = Answer(fd, frame,
                        absl::ResourceExhaustedError(
                            absl::StrCat("a request of ", frame.header.body_bytes,
                                         " bytes; the worker takes ", max_message_bytes_)));
          break;
        case framed_rpc::FrameReader::Next::kFrame:
          open = Answer(fd, frame, absl::OkStatus());
          break;
      }
    }
    if (charge.Set(static_cast<int64_t>(input.memory()))) {
      const absl::Status room = charge.all()->Check();
      framed_rpc::Frame frame;
      if (!room.ok() && input.GiveUpFrame(&frame)) {
        charge.Set(0);
        open = open && Answer(fd, frame,
                              absl::ResourceExhaustedError(absl::StrCat(
                                  kOperation, ": no room for a request of ",
                                  frame.header.body_bytes, " bytes: ", room.message())));
      }
    }
  }
}

absl::Status FramedCollectiveServer::Run(const framed_rpc::Frame& frame,
                                         v1::RunCollectiveResponse* response) {
  if (frame.header.method != 0) {
    return absl::UnimplementedError(absl::StrCat("no method ", frame.header.method));
  }
  v1::RunCollectiveRequest request;
  if (!request.ParseFromArray(frame.body.data(), static_cast<int>(frame.body.size()))) {
    return absl::InvalidArgumentError("the request is no message of this method");
  }
  return service_.RunCollective(request, response);
}

bool FramedCollectiveServer::Answer(int fd, const framed_rpc::Frame& frame, absl::Status status) {
  // A call ends at its timeout or with its session; it cannot be cancelled.
  if (frame.header.kind == framed_rpc::Kind::kCancel) return true;
  if (frame.header.kind != framed_rpc::Kind::kCall) return false;
  v1::RunCollectiveResponse response;
  if (status.ok()) {
    status = WithMemory(kOperation, "a request", static_cast<int64_t>(frame.body.size()),
                        [&] { return Run(frame, &response); });
  }
  framed_rpc::Header header;
  header.call = frame.header.call;
  header.kind = framed_rpc::Kind::kReply;
  header.code = static_cast<uint8_t>(status.code());
  std::string answer(framed_rpc::kHeaderBytes, '\0');
  if (status.ok()) {
    try {
      response.AppendToString(&answer);
    } catch (const std::bad_alloc&) {
      status =
          NoMemory(kOperation, "an answer", static_cast<int64_t>(response.ByteSizeLong()));
      header.code = static_cast<uint8_t>(status.code());
    }
  }
  if (!status.ok()) {
    answer.resize(framed_rpc::kHeaderBytes);
    // Cut like gRPC's texts: the same call gets the same answer on both paths.
    const grpc::Status cut = ToGrpcStatus(status);
    absl::StrAppend(&answer, cut.error_message(), cut.error_details());
    header.extra = static_cast<uint32_t>(cut.error_message().size());
  }
  header.body_bytes = static_cast<uint32_t>(answer.size() - framed_rpc::kHeaderBytes);
  framed_rpc::WriteHeader(header, &answer[0]);
  return SendAll(fd, answer);
}

void FramedCollectiveServer::JoinDone() {
  for (auto it = connections_.begin(); it != connections_.end();) {
    if (!it->done) {
      ++it;
      continue;
    }
    it->thread.join();  // the thread has ended its work
    it = connections_.erase(it);
  }
}

void FramedCollectiveServer::Stop(absl::Duration grace) {
  MutexLock lock(&mutex_);
  stopped_ = true;
  for (Connection& connection : connections_) shutdown(connection.fd.get(), SHUT_RD);
  const auto all_done = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return std::all_of(connections_.begin(), connections_.end(),
                       [](const Connection& connection) { return connection.done; });
  };
  mutex_.AwaitWithTimeout(absl::Condition(&all_done), grace);
  for (Connection& connection : connections_) shutdown(connection.fd.get(), SHUT_RDWR);
  mutex_.Await(absl::Condition(&all_done));
  JoinDone();
}

}  // namespace cohort::worker
