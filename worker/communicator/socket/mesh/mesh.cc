#include "worker/communicator/socket/mesh/mesh.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/fork.h"
#include "base/rank_set.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"
#include "worker/communicator/socket/mesh/handshake.h"
#include "worker/communicator/socket/mesh/incoming.h"
#include "worker/communicator/socket/mesh/poll_until.h"
#include "worker/communicator/socket/mesh/tuning.h"

namespace cohort::worker {
namespace {

// Both messages begin with magic and version.
constexpr size_t kVersionEnds = sizeof(uint64_t) + sizeof(uint32_t);
static_assert(offsetof(Welcome, version) == sizeof(uint64_t));

// The next address of a name is tried if the one before does not answer for this long.
constexpr absl::Duration kNextAddress = absl::Milliseconds(250);

// A rank that was dropped connects again after a pause, which grows.
constexpr absl::Duration kFirstPause = absl::Milliseconds(10);
constexpr absl::Duration kLongestPause = absl::Milliseconds(500);

// A connection to a rank below.
struct Outgoing {
  int rank = 0;
  int stream = 0;
  std::vector<SocketAddress> addresses;
  size_t tried = 0;                // addresses
  Instant next;                    // when the next address is tried
  std::vector<UniqueFd> attempts;  // until one of them is `fd`
  UniqueFd fd;
  bool connected = false;
  bool done = false;
  Hello hello;
  Welcome welcome;
  size_t got = 0;
  int dropped = 0;      // connections, by the other rank
  std::string why_not;  // of the last one

  bool has_next() const { return !connected && tried < addresses.size(); }
  bool IsDue(Instant now) const { return has_next() && next <= now; }
};

class Builder {
 public:
  Builder(const Listener& listener, const MeshOptions& options, Instant deadline)
      : listener_(listener),
        options_(options),
        started_(Clock::Steady().Now()),
        deadline_(deadline),
        self_{options.rank, static_cast<int>(options.addresses.size()), options.streams,
              options.secret},
        incoming_(listener, self_,
                  {[this](const Hello& hello) { return slot(hello).is_open(); },
                   [this](const Hello& hello, UniqueFd fd) { Take(hello, std::move(fd)); }}) {}

  absl::StatusOr<Mesh> Run();

 private:
  // Tries the next address, and those after it while they are refused at once.
  absl::Status TryNext(Outgoing& outgoing, int error);
  absl::Status TryDue();
  absl::Status Advance(Outgoing& outgoing);
  absl::Status AdvanceAttempt(Outgoing& outgoing, int fd);
  absl::Status Say(Outgoing& outgoing);
  // The other rank has dropped the connection before it was let in, as it does when very many come:
  // connects again.
  void TryAgain(Outgoing& outgoing, absl::string_view why);
  void Take(const Hello& hello, UniqueFd fd);
  absl::Status Wait();
  absl::Status GiveUp() const;
  absl::Status Failed(int rank, absl::string_view why) const {
    return absl::UnavailableError(absl::StrCat(
        "rank ", Name(rank), " at ", options_.addresses[static_cast<size_t>(rank)], ": ", why));
  }
  int Name(int rank) const {
    return options_.names.empty() ? rank : options_.names[static_cast<size_t>(rank)];
  }
  RankSocket& slot(int rank, int stream) {
    return mesh_.streams[static_cast<size_t>(rank)][static_cast<size_t>(stream)];
  }
  RankSocket& slot(const Hello& hello) {
    return slot(static_cast<int>(hello.from), static_cast<int>(hello.stream));
  }

  const Listener& listener_;
  const MeshOptions& options_;
  const Instant started_;
  const Instant deadline_;
  const Membership self_;
  Mesh mesh_;
  std::vector<Outgoing> outgoing_;
  int missing_ = 0;  // connections
  Incoming incoming_;
  std::vector<pollfd> polled_;
};

absl::Status Builder::TryNext(Outgoing& outgoing, int error) {
  while (outgoing.tried < outgoing.addresses.size()) {
    const SocketAddress& address = outgoing.addresses[outgoing.tried++];
    UniqueFd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd.is_open() && IsOutOfDescriptors(errno)) {
      error = errno;
      return OutOfDescriptors(absl::StrCat("connecting to rank ", Name(outgoing.rank)), error);
    }
    CloseInChildren(fd.get());
    if (fd.is_open() &&
        (connect(fd.get(), address.get(), address.size) == 0 || errno == EINPROGRESS)) {
      outgoing.attempts.push_back(std::move(fd));
      outgoing.next = Clock::Steady().Now() + kNextAddress;
      return absl::OkStatus();
    }
    error = errno;
  }
  return outgoing.attempts.empty() ? Failed(outgoing.rank, strerror(error)) : absl::OkStatus();
}

absl::Status Builder::TryDue() {
  const Instant now = Clock::Steady().Now();
  for (Outgoing& outgoing : outgoing_) {
    if (outgoing.IsDue(now)) COHORT_RETURN_IF_ERROR(TryNext(outgoing, 0));
  }
  return absl::OkStatus();
}

absl::Status Builder::AdvanceAttempt(Outgoing& outgoing, int fd) {
  const auto attempt =
      std::find_if(outgoing.attempts.begin(), outgoing.attempts.end(),
                   [fd](const UniqueFd& each) { return each.get() == fd; });
  if (attempt == outgoing.attempts.end()) return absl::OkStatus();  // another one has connected
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  if (error == 0) {
    outgoing.fd = std::move(*attempt);
    outgoing.attempts.clear();
    return Say(outgoing);
  }
  outgoing.attempts.erase(attempt);
  if (error != ECONNRESET || !outgoing.attempts.empty()) return TryNext(outgoing, error);
  TryAgain(outgoing, strerror(error));  // it was connected
  return absl::OkStatus();
}

absl::Status Builder::Say(Outgoing& outgoing) {
  TuneConnection(outgoing.fd.get(), outgoing.stream, options_.link_timeout);
  outgoing.hello = MakeHello(self_, outgoing.rank, outgoing.stream);
  outgoing.connected = true;
  if (SendWhole(outgoing.fd.get(), outgoing.hello)) return absl::OkStatus();
  if (errno != ECONNRESET && errno != EPIPE) return Failed(outgoing.rank, strerror(errno));
  TryAgain(outgoing, strerror(errno));
  return absl::OkStatus();
}

void Builder::TryAgain(Outgoing& outgoing, absl::string_view why) {
  outgoing.why_not = std::string(why);
  ++outgoing.dropped;
  outgoing.fd = UniqueFd();
  outgoing.connected = false;
  outgoing.got = 0;
  outgoing.tried = 0;
  outgoing.next = Clock::Steady().Now() + std::min(outgoing.dropped * kFirstPause, kLongestPause);
}

absl::Status Builder::Advance(Outgoing& outgoing) {
  const ssize_t got =
      recv(outgoing.fd.get(), reinterpret_cast<char*>(&outgoing.welcome) + outgoing.got,
           sizeof(Welcome) - outgoing.got, 0);
  if (got == 0) {
    TryAgain(outgoing, "closed the connection without an answer");
    return absl::OkStatus();
  }
  if (got < 0) {
    if (errno == EAGAIN || errno == EINTR) return absl::OkStatus();
    if (errno != ECONNRESET) return Failed(outgoing.rank, strerror(errno));
    TryAgain(outgoing, strerror(errno));
    return absl::OkStatus();
  }
  outgoing.got += static_cast<size_t>(got);
  const bool other = outgoing.got >= kVersionEnds && outgoing.welcome.version != kHandshakeVersion;
  if (outgoing.got < sizeof(Welcome) && !other) return absl::OkStatus();
  const absl::string_view rejection = RejectionOf(outgoing.welcome, self_, outgoing.hello);
  if (!rejection.empty()) return Failed(outgoing.rank, rejection);
  const Proof proof = ProofOf(self_, outgoing.hello, outgoing.welcome);
  if (!SendWhole(outgoing.fd.get(), proof)) return Failed(outgoing.rank, strerror(errno));
  slot(outgoing.rank, outgoing.stream) = RankSocket(std::move(outgoing.fd));
  outgoing.done = true;
  --missing_;
  return absl::OkStatus();
}

void Builder::Take(const Hello& hello, UniqueFd fd) {
  TuneConnection(fd.get(), static_cast<int>(hello.stream), options_.link_timeout);
  slot(hello) = RankSocket(std::move(fd));
  --missing_;
}

absl::Status Builder::GiveUp() const {
  const absl::Duration timeout = deadline_ - started_;
  std::vector<std::string> parts;
  std::string unreached;
  for (const Outgoing& outgoing : outgoing_) {
    if (outgoing.done) continue;
    unreached = options_.addresses[static_cast<size_t>(outgoing.rank)];
    // Most of the ranks below are missed for the same reason; the first is named.
    std::string why = outgoing.connected ? "did not answer" : "cannot be reached";
    if (outgoing.dropped > 0) {
      why = absl::StrCat(outgoing.why_not, ", the last of ", outgoing.dropped, " times");
    }
    parts.push_back(absl::StrCat("rank ", Name(outgoing.rank), " at ", unreached, ": ", why));
    break;
  }
  RankSet absent;
  for (int rank = self_.rank + 1; rank < self_.size; ++rank) {
    for (const RankSocket& socket : mesh_.streams[static_cast<size_t>(rank)]) {
      if (!socket.is_open()) absent.Add(Name(rank));
    }
  }
  if (!absent.empty()) {
    parts.push_back(absl::StrCat("rank ", absent.ToString(), " did not connect"));
  }
  std::string text = absl::StrCat(
      parts.empty() ? "" : parts[0], parts.size() > 1 ? "; " : "", parts.size() > 1 ? parts[1] : "",
      " within ", absl::FormatDuration(absl::Trunc(timeout, absl::Milliseconds(1))));
  absl::StrAppend(&text, incoming_.Rejections());
  // A firewall that drops packets looks like a rank that does not come.
  const std::string& asked = unreached.empty() ? listener_.address() : unreached;
  if (unreached.empty()) {
    absl::StrAppend(&text, "; rank ", Name(self_.rank), " listens at ", asked);
  }
  absl::StrAppend(&text, "; is port ", asked.substr(asked.rfind(':') + 1),
                  " open between the hosts? COHORT_PORT_RANGE sets the ports of ranks");
  return absl::DeadlineExceededError(text);
}

absl::Status Builder::Wait() {
  while (true) {
    // Strangers who never let it sleep must not keep it from either.
    if (Clock::Steady().Now() >= deadline_) return GiveUp();
    COHORT_RETURN_IF_ERROR(TryDue());
    polled_.clear();
    polled_.push_back({options_.interrupt_fd, POLLIN, 0});
    Instant until = deadline_;
    for (const Outgoing& outgoing : outgoing_) {
      if (outgoing.done) continue;
      if (outgoing.connected) polled_.push_back({outgoing.fd.get(), POLLIN, 0});
      for (const UniqueFd& fd : outgoing.attempts) polled_.push_back({fd.get(), POLLOUT, 0});
      if (outgoing.has_next()) until = std::min(until, outgoing.next);
    }
    incoming_.AppendTo(&polled_);
    const bool ready = PollUntil(polled_, until);
    if (polled_[0].revents != 0) return absl::CancelledError("another rank has failed");
    if (ready) return absl::OkStatus();
  }
}

absl::StatusOr<Mesh> Builder::Run() {
  mesh_.streams.resize(static_cast<size_t>(self_.size));
  for (int rank = 0; rank < self_.size; ++rank) {
    if (rank == self_.rank) continue;
    mesh_.streams[static_cast<size_t>(rank)].resize(static_cast<size_t>(self_.streams));
    missing_ += self_.streams;
  }
  for (int rank = 0; rank < self_.rank; ++rank) {
    absl::StatusOr<std::vector<SocketAddress>> addresses =
        ResolveAddresses(options_.addresses[static_cast<size_t>(rank)]);
    if (!addresses.ok()) return Failed(rank, addresses.status().message());
    for (int stream = 0; stream < self_.streams; ++stream) {
      Outgoing outgoing;
      outgoing.rank = rank;
      outgoing.stream = stream;
      outgoing.addresses = *addresses;
      COHORT_RETURN_IF_ERROR(TryNext(outgoing, 0));
      outgoing_.push_back(std::move(outgoing));
    }
  }
  while (missing_ > 0) {
    COHORT_RETURN_IF_ERROR(Wait());
    size_t at = 1;
    for (Outgoing& outgoing : outgoing_) {
      if (outgoing.done) continue;
      const size_t count = outgoing.connected ? 1 : outgoing.attempts.size();
      const bool connected = outgoing.connected;
      for (size_t end = at + count; at < end; ++at) {
        if (polled_[at].revents == 0) continue;
        COHORT_RETURN_IF_ERROR(connected ? Advance(outgoing)
                                         : AdvanceAttempt(outgoing, polled_[at].fd));
      }
    }
    COHORT_RETURN_IF_ERROR(incoming_.Advance(&polled_[at]));
  }
  return std::move(mesh_);
}

}  // namespace

absl::StatusOr<Mesh> ConnectMesh(const Listener& listener, const MeshOptions& options,
                                 Instant deadline) {
  const int size = static_cast<int>(options.addresses.size());
  if (options.rank < 0 || options.rank >= size || options.streams < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", options.rank, " of ", size, " with ", options.streams, " streams"));
  }
  return Builder(listener, options, deadline).Run();
}

}  // namespace cohort::worker
