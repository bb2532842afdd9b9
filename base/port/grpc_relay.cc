// One file, though long: both directions of a connection, its pauses and its end share one state,
// which one thread uses.
#include "base/port/grpc_relay.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/port/peer/grpc_peer.h"
#include "base/port/peer/peer_address.h"
#include "base/threads/event_loop.h"
#include "base/tls/stream_socket.h"

namespace cohort {
namespace {

// Bytes of one read. At most so many wait here in each direction.
constexpr size_t kPieceBytes = size_t{256} << 10;
// Bytes that one connection moves in one direction before the others of its thread have their turn.
constexpr size_t kTurnBytes = size_t{1} << 20;
// The kernel's memory for each direction of the pair.
constexpr int kPairBytes = 512 << 10;
// A connection with more open streams than this has so many of them reset at a time when it ends.
// gRPC's threads take some 0.1 ms for the end of each, in which connections of others wait.
constexpr size_t kResetsAtATime = 32;
// The bytes of a frame that waits until it is whole. gRPC's clients send frames of 16 KiB at first.
constexpr size_t kMostBegun = size_t{32} << 10;
// Open streams of a connection that are not charged once their requests are whole. The coordinator
// charges the calls of its services itself; the streams of gRPC's own services, such as
// Health/Watch, are charged here alone.
constexpr size_t kFreeStreams = 32;
// The memory of gRPC for a stream whose headers have come.
constexpr int64_t kStreamBytes = 16 << 10;
constexpr absl::Duration kBetweenResets = absl::Milliseconds(4);
// The memory of gRPC for a connection. It counts for those of clients that have had no role.
constexpr int64_t kConnectionBytes = 48 << 10;
// The pace for all clients of an address that have had no role. It bounds how many streams they may
// open, because those that gRPC has not ended yet are charged (kStreamBytes).
constexpr absl::Duration kForEachStreamWithoutRole = absl::Milliseconds(2);
// The tenant of a client whose streams have to wait is read in pieces that are smaller by this.
constexpr size_t kPacedBytes = 3072;
// How long a client may take for the last bytes of a connection that gRPC has closed.
constexpr absl::Duration kLastBytes = absl::Seconds(5);
constexpr int kMostThreads = 4;
// About as long as gRPC takes for a short call. Otherwise each call wakes the relay twice, which
// costs 20 to 30 us each time.
constexpr absl::Duration kBusyWait = absl::Microseconds(200);

// The threads of all relayed connections of the process. They never end, as gRPC's do not.
EventLoop& NextLoop() {
  static auto* const loops = [] {
    auto* const made = new std::vector<std::unique_ptr<EventLoop>>();
    const int threads = static_cast<int>(std::thread::hardware_concurrency()) / 4;
    for (int i = 0; i < std::clamp(threads, 1, kMostThreads); ++i) {
      made->push_back(std::make_unique<EventLoop>(absl::StrCat("grpc-relay-", i)));
      made->back()->SetBusyWait(kBusyWait);
    }
    return made;
  }();
  static std::atomic<size_t> next{0};
  return *(*loops)[next.fetch_add(1, std::memory_order_relaxed) % loops->size()];
}

// Returns a pair of connected sockets, of which the first one has the name.
absl::StatusOr<std::pair<UniqueFd, UniqueFd>> MakePair(const std::string& name) {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) {
    return absl::ErrnoToStatus(errno, "no pair of sockets for gRPC");
  }
  auto pair = std::make_pair(UniqueFd(fds[0]), UniqueFd(fds[1]));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);  // abstract: it begins with a 0
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (bind(fds[0], reinterpret_cast<const sockaddr*>(&address), size) != 0) {
    return absl::ErrnoToStatus(errno, "no name for a socket of gRPC");
  }
  for (const int fd : fds) {
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kPairBytes, sizeof(kPairBytes));
  }
  return pair;
}

// The reason, for a client that still reads: a GOAWAY frame with ENHANCE_YOUR_CALM.
std::string GoAway(absl::string_view why) {
  constexpr size_t kMostText = 200;
  const absl::string_view text = why.substr(0, kMostText);
  return absl::StrCat(absl::string_view("\0\0", 2),
                      std::string(1, static_cast<char>(text.size() + 8)),
                      absl::string_view("\7\0\0\0\0\0\x7f\xff\xff\xff\0\0\0\x0b", 14), text);
}

// Bytes that a socket has not taken yet.
class Rest {
 public:
  bool empty() const { return bytes_.empty(); }
  // Sends them, and then `more`, as far as the socket takes them. A broken socket takes all: its
  // reader hears of it.
  void Send(const StreamSocket& socket, absl::string_view more = "") {
    if (bytes_.empty()) return Keep(SendSome(socket, more));
    bytes_.append(more.data(), more.size());
    const size_t sent = bytes_.size() - SendSome(socket, bytes_).size();
    bytes_.erase(0, sent);
    if (bytes_.empty()) Drop();
  }
  void Drop() { bytes_ = std::string(); }

 private:
  void Keep(absl::string_view rest) { bytes_.append(rest.data(), rest.size()); }
  // Returns what the socket does not take.
  static absl::string_view SendSome(const StreamSocket& socket, absl::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = socket.Send(bytes);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && errno == EAGAIN) break;
      if (sent < 0) return "";
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return bytes;
  }

  std::string bytes_;
};

char* Scratch() {
  static thread_local const std::unique_ptr<char[]> scratch(new char[kPieceBytes]);
  return scratch.get();
}

// One connection. Only its loop's thread uses it, once Begin runs.
class Relay final : public std::enable_shared_from_this<Relay> {
 public:
  Relay(EventLoop& loop, UniqueFd client, UniqueFd grpc, GrpcPeerName name,
        const Http2Limits& limits, ListenerPeer peer)
      : loop_(loop),
        client_(std::move(client)),
        grpc_(std::move(grpc)),
        socket_{client_.get(), peer.tls},
        name_(std::move(name)),
        peer_(std::move(peer)),
        guard_(limits),
        incoming_(peer_.charged()) {}

  void Begin();

 private:
  class Side final : public EventLoop::Handler {
   public:
    Side(std::shared_ptr<Relay> relay, void (Relay::*on_events)(uint32_t))
        : relay_(std::move(relay)), on_events_(on_events) {}
    void OnEvents(uint32_t events) override { (relay_.get()->*on_events_)(events); }

   private:
    const std::shared_ptr<Relay> relay_;
    void (Relay::*const on_events_)(uint32_t);
  };

  void OnClientEvents(uint32_t events);
  void OnGrpcEvents(uint32_t events);
  void ReadClient();
  void ReadGrpc();
  // Whether reading from the client waits.
  bool WaitsForRate();
  void PauseClient(Instant until);
  absl::Status See(absl::string_view bytes);
  // Whether the charge has grown.
  bool ChargeIncoming();
  // Passes bytes on that the guard has seen: of a connection with many open streams only whole
  // frames, so that resets can follow them at any time, unless a frame is long.
  void Forward(absl::string_view bytes);
  void SendToGrpc(absl::string_view bytes);
  void SendHeld();
  // Each direction is read while nothing of it waits.
  void UpdateEvents();

  void OnOffence(const absl::Status& status, absl::string_view bytes);
  // The client has no more to say: gRPC gets what waits, and resets of the streams if they are
  // many.
  void EndClient();
  // Ends streams at their time, or all if gRPC has a part of the client's last frame.
  void AwaitResets();
  Instant TimeOfResets(size_t streams);
  void ResetSome();
  void End();

  EventLoop& loop_;
  UniqueFd client_;
  UniqueFd grpc_;
  const StreamSocket socket_;  // the client's
  const GrpcPeerName name_;
  const ListenerPeer peer_;
  Http2Guard guard_;
  IncomingCharge incoming_;
  Rest to_grpc_, to_client_;
  // The events for which the loop watches.
  uint32_t client_events_ = EPOLLIN, grpc_events_ = EPOLLIN;
  bool paused_ = false;         // reading from the client
  bool paced_ = false;          // the client's tenant began too many streams lately
  std::string held_;            // bytes with streams that gRPC gets after the pause
  std::string begun_;           // the first part of a frame that gRPC gets when it is whole
  bool between_frames_ = true;  // what gRPC gets ends with a whole frame
  bool resets_ = false;         // ResetSome runs when to_grpc_ is empty
  bool grpc_closed_ = false;    // gRPC has closed its end, of which the loop does not tell any more
};

void Relay::Begin() {
  const int on = 1;
  setsockopt(client_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const auto self = shared_from_this();
  if (!loop_.Add(client_.get(), EPOLLIN, std::make_shared<Side>(self, &Relay::OnClientEvents)) ||
      !loop_.Add(grpc_.get(), EPOLLIN, std::make_shared<Side>(self, &Relay::OnGrpcEvents))) {
    return End();
  }
  ReadClient();  // TLS may have bytes that are no longer in the socket
  UpdateEvents();
}

void Relay::OnClientEvents(uint32_t events) {
  if (!client_.is_open()) return;
  if (!to_client_.empty()) {
    to_client_.Send(socket_);
    ReadGrpc();
  }
  ReadClient();
  // A socket that is closed on both sides says so again and again.
  const bool reads = (client_events_ & EPOLLIN) != 0;
  if (client_.is_open() && !reads && (events & (EPOLLHUP | EPOLLERR)) != 0) {
    EndClient();
  }
  UpdateEvents();
}

void Relay::OnGrpcEvents(uint32_t events) {
  if (!grpc_.is_open()) return;
  if (!to_grpc_.empty()) {
    SendToGrpc("");
    ReadClient();
  }
  ReadGrpc();
  if (grpc_.is_open() && !to_client_.empty() && (events & (EPOLLHUP | EPOLLERR)) != 0) {
    grpc_closed_ = true;
    loop_.Remove(grpc_.get());
    loop_.PostAt(Clock::Steady().Now() + kLastBytes, [self = shared_from_this()] { self->End(); });
  }
  UpdateEvents();
}

void Relay::UpdateEvents() {
  const auto watch = [this](const UniqueFd& fd, bool in, bool out, uint32_t* before) {
    const uint32_t events = (in ? EPOLLIN : 0u) | (out ? EPOLLOUT : 0u);
    if (fd.is_open() && events != std::exchange(*before, events)) loop_.Modify(fd.get(), events);
  };
  watch(client_, !paused_ && to_grpc_.empty(), !to_client_.empty(), &client_events_);
  if (!grpc_closed_) watch(grpc_, to_client_.empty(), !to_grpc_.empty(), &grpc_events_);
}

// --- From the client to gRPC.

void Relay::ReadClient() {
  size_t moved = 0;
  while (client_.is_open() && !paused_ && to_grpc_.empty() && !WaitsForRate()) {
    if (moved >= kTurnBytes) {
      return loop_.Post([self = shared_from_this()] {
        self->ReadClient();
        self->UpdateEvents();
      });
    }
    const size_t most = std::min(kPieceBytes, guard_.most_to_read() - (paced_ ? kPacedBytes : 0));
    const ssize_t count = socket_.Receive(Scratch(), most);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) return EndClient();
    const absl::string_view bytes(Scratch(), static_cast<size_t>(count));
    moved += bytes.size();
    if (const absl::Status status = See(bytes); !status.ok()) return OnOffence(status, bytes);
    if (const size_t streams = guard_.TakeNewStreams(); streams > 0 && peer_.count_streams) {
      const Instant now = Clock::Steady().Now();
      const absl::Duration pause = peer_.count_streams(streams, now);
      paced_ = pause > absl::ZeroDuration();
      if (paced_) PauseClient(now + pause);
    }
    Forward(bytes);
    if (paused_) return;
    const absl::Duration pause = guard_.Pause();
    if (pause > absl::ZeroDuration()) PauseClient(Clock::Steady().Now() + pause);
    if (bytes.size() < most && !socket_.HasInput()) return;
  }
}

bool Relay::WaitsForRate() {
  if (peer_.access == nullptr) return false;
  const std::optional<Instant> until = peer_.access->Pause();
  if (until.has_value()) PauseClient(*until);
  return until.has_value();
}

void Relay::PauseClient(Instant until) {
  paused_ = true;
  loop_.PostAt(until, [self = shared_from_this()] {
    self->paused_ = false;
    self->SendHeld();
    self->ReadClient();
    self->UpdateEvents();
  });
}

absl::Status Relay::See(absl::string_view bytes) {
  const bool suspect = peer_.suspect->load(std::memory_order_relaxed);
  absl::Status status = guard_.OnReceived(bytes, Clock::Steady().Now(), suspect);
  if (guard_.has_request()) peer_.NoteRequest();
  if (ChargeIncoming() && status.ok()) status = incoming_.all()->Check();
  return status;
}

bool Relay::ChargeIncoming() {
  // gRPC needs memory for each stream. The coordinator counts those of calls, but not those of a
  // client that it refuses, and not the streams of gRPC's own services.
  const bool is_stranger = peer_.IsStranger();
  const size_t free = is_stranger ? 0 : std::min(kFreeStreams, guard_.open_streams());
  const size_t streams = std::max(guard_.open_streams() - free, guard_.unfinished_streams());
  incoming_.MoveTo(peer_.charged());
  return incoming_.Set(guard_.unfinished_bytes() + static_cast<int64_t>(streams) * kStreamBytes +
                       (is_stranger ? kConnectionBytes : 0));
}

void Relay::Forward(absl::string_view bytes) {
  if (bytes.empty()) return;
  const std::optional<size_t> whole = guard_.whole_bytes();
  const size_t begun = whole.has_value() ? bytes.size() - *whole : begun_.size() + bytes.size();
  const bool holds = guard_.open_streams() > kResetsAtATime && begun <= kMostBegun &&
                     (whole.has_value() || between_frames_);
  const size_t now = holds ? whole.value_or(0) : bytes.size();
  if (now > 0) {
    for (const absl::string_view part : {absl::string_view(begun_), bytes.substr(0, now)}) {
      if (paused_) {
        held_.append(part.data(), part.size());
      } else if (!part.empty()) {
        SendToGrpc(part);
      }
    }
    begun_.clear();
  }
  begun_.append(bytes.data() + now, bytes.size() - now);
  between_frames_ = holds || guard_.between_frames();
}

void Relay::SendHeld() {
  if (!held_.empty() && grpc_.is_open()) SendToGrpc(std::exchange(held_, {}));
}

void Relay::SendToGrpc(absl::string_view bytes) {
  to_grpc_.Send({grpc_.get(), nullptr}, bytes);
  if (resets_ && to_grpc_.empty()) ResetSome();
}

// --- From gRPC to the client.

void Relay::ReadGrpc() {
  size_t moved = 0;
  while (grpc_.is_open() && to_client_.empty()) {
    if (moved >= kTurnBytes && !grpc_closed_) return;  // the loop calls again
    const ssize_t count = StreamSocket{grpc_.get(), nullptr}.Receive(Scratch(), kPieceBytes);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) return End();
    const absl::string_view bytes(Scratch(), static_cast<size_t>(count));
    moved += bytes.size();
    if (client_.is_open()) {
      guard_.OnSent(bytes);
      ChargeIncoming();
      to_client_.Send(socket_, bytes);
    }
    if (bytes.size() < kPieceBytes && !grpc_closed_) return;
  }
}

// --- The end.

void Relay::OnOffence(const absl::Status& status, absl::string_view bytes) {
  (void)socket_.Send(GoAway(status.message()));
  shutdown(client_.get(), SHUT_RDWR);
  peer_.on_offence(status);
  Forward(bytes.substr(0, guard_.whole_bytes().value_or(0)));
  EndClient();
}

void Relay::EndClient() {
  SendHeld();
  // gRPC drops the parts of requests that have arrived, and keeps the streams until they are reset.
  incoming_.Set(static_cast<int64_t>(guard_.open_streams()) * kStreamBytes);
  loop_.Remove(client_.get());
  client_ = UniqueFd();
  to_client_.Drop();
  begun_ = std::string();
  if (guard_.open_streams() <= kResetsAtATime) return End();
  if (!between_frames_ && !peer_.IsStranger()) return End();
  AwaitResets();
}

void Relay::AwaitResets() {
  const size_t streams = between_frames_ ? kResetsAtATime : guard_.open_streams();
  loop_.PostAt(TimeOfResets(streams), [self = shared_from_this()] {
    if (!self->grpc_.is_open()) return;
    if (!self->between_frames_) return self->End();
    self->resets_ = true;
    self->SendToGrpc("");
    self->UpdateEvents();
  });
}

Instant Relay::TimeOfResets(size_t streams) {
  const Instant now = Clock::Steady().Now();
  if (!peer_.IsStranger() || peer_.next_stream_end == nullptr) return now + kBetweenResets;
  const int64_t now_ns = absl::ToUnixNanos(now);
  const int64_t takes = absl::ToInt64Nanoseconds(kForEachStreamWithoutRole * streams);
  int64_t before = peer_.next_stream_end->load(std::memory_order_relaxed), end = 0;
  do {
    end = std::max(before, now_ns) + takes;
  } while (!peer_.next_stream_end->compare_exchange_weak(before, end, std::memory_order_relaxed));
  return absl::FromUnixNanos(end);
}

void Relay::ResetSome() {
  resets_ = false;
  const std::string frames = guard_.ResetStreams(kResetsAtATime);
  incoming_.Set(static_cast<int64_t>(guard_.open_streams()) * kStreamBytes);
  if (frames.empty()) return End();
  SendToGrpc(frames);
  AwaitResets();
}

void Relay::End() {
  incoming_.Set(0);
  for (UniqueFd* const fd : {&client_, &grpc_}) {
    if (!fd->is_open()) continue;
    loop_.Remove(fd->get());
    *fd = UniqueFd();
  }
  to_client_.Drop();
  to_grpc_.Drop();
}

}  // namespace

absl::StatusOr<UniqueFd> RelayToGrpc(UniqueFd fd, const Http2Limits& limits, ListenerPeer peer) {
  EventLoop& loop = NextLoop();
  if (absl::Status started = loop.Start(); !started.ok()) return started;
  GrpcPeerName name({peer.access, peer.address, peer.closing});
  auto pair = MakePair(name.text());
  if (!pair.ok()) return absl::ResourceExhaustedError(pair.status().message());
  const auto relay = std::make_shared<Relay>(loop, std::move(fd), std::move(pair->first),
                                             std::move(name), limits, std::move(peer));
  loop.Post([relay] { relay->Begin(); });
  return std::move(pair->second);
}

}  // namespace cohort
