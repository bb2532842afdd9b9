#include "worker/communicator/socket/mesh/incoming.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/fork.h"

namespace cohort::worker {
namespace {

// How many connections may have said nothing. One more, and the oldest is dropped.
constexpr size_t kMostUnknown = 256;
// How many may have the hello of one rank's stream, and owe its proof: of one at most it is true.
constexpr size_t kMostAlike = 16;
// Then those that have come before are read. Fewer than kMostAlike: a proof that has come is read
// before its connection is the oldest of so many.
constexpr int kAcceptsAtATime = 8;
static_assert(kAcceptsAtATime < static_cast<int>(kMostAlike));

// Both messages begin with magic and version.
constexpr size_t kVersionEnds = sizeof(uint64_t) + sizeof(uint32_t);
static_assert(offsetof(Hello, version) == sizeof(uint64_t));

// Whether the rest of a proof has come, which was not read yet: the connection's next turn ends its
// wait. Part of a proof keeps no connection, because a stranger can send as much.
bool HasRest(int fd, size_t bytes) {
  Proof rest;
  return recv(fd, rest.data(), bytes, MSG_PEEK | MSG_DONTWAIT) == static_cast<ssize_t>(bytes);
}

}  // namespace

bool IsOutOfDescriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

absl::Status OutOfDescriptors(absl::string_view operation, int error) {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  return absl::ResourceExhaustedError(absl::StrCat(operation, ": ", strerror(error),
                                                   "; the limit of open files (RLIMIT_NOFILE) is ",
                                                   limit.rlim_cur));
}

void Incoming::AppendTo(std::vector<pollfd>* polled) const {
  polled->push_back({listener_.fd(), POLLIN, 0});
  for (const Pending& pending : pending_) polled->push_back({pending.fd.get(), POLLIN, 0});
}

absl::Status Incoming::Advance(const pollfd* polled) {
  const bool knocked = polled++->revents != 0;
  for (auto it = pending_.begin(); it != pending_.end();) {
    const bool ready = polled++->revents != 0;
    it = ready && Advance(*it) ? pending_.erase(it) : std::next(it);
  }
  return knocked ? Accept() : absl::OkStatus();
}

std::string Incoming::Rejections() const {
  if (rejected_ == 0) return "";
  return absl::StrCat(" (", rejected_, " others were rejected; the last: ", last_rejection_, ")");
}

absl::Status Incoming::Accept() {
  for (int i = 0; i < kAcceptsAtATime; ++i) {
    const int fd = accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == ECONNABORTED || errno == EINTR) continue;
      // The connection stays in the queue, so a wait for the next one would end at once.
      if (!IsOutOfDescriptors(errno)) return absl::OkStatus();
      const int error = errno;
      if (DropSilent()) continue;
      return OutOfDescriptors("accepting the connections of ranks", error);
    }
    CloseInChildren(fd);
    pending_.emplace_back().fd = UniqueFd(fd);
    ++unknown_;
    if (Advance(pending_.back())) pending_.pop_back();
    if (unknown_ > kMostUnknown) DropSilent();
  }
  return absl::OkStatus();
}

bool Incoming::DropSilent() {
  const auto silent = std::find_if(pending_.begin(), pending_.end(),
                                   [](const Pending& pending) { return !pending.welcomed; });
  if (silent == pending_.end()) return false;
  pending_.erase(silent);
  --unknown_;
  return true;
}

void Incoming::DropOldestLike(const Pending& pending) {
  size_t alike = 0;
  auto oldest = pending_.end();
  for (auto it = pending_.begin(); it != pending_.end(); ++it) {
    if (!it->welcomed || it->closed || &*it == &pending || it->hello.from != pending.hello.from ||
        it->hello.stream != pending.hello.stream ||
        HasRest(it->fd.get(), it->proof.size() - it->proof_got)) {
      continue;
    }
    if (alike++ == 0) oldest = it;
  }
  if (alike < kMostAlike) return;
  // Closed, and erased when its end is seen: the caller walks through the list. Until then it does
  // not count, because many hellos may be read before that.
  shutdown(oldest->fd.get(), SHUT_RDWR);
  oldest->closed = true;
}

bool Incoming::Advance(Pending& pending) {
  if (pending.closed) return true;
  if (pending.welcomed) return ReadProof(pending);
  const bool is_over = ReadHello(pending);
  if (is_over || pending.welcomed) --unknown_;
  return is_over;
}

void Incoming::Reject(Answer answer) {
  ++rejected_;
  last_rejection_ = std::string(Describe(answer));
}

bool Incoming::ReadHello(Pending& pending) {
  const ssize_t got = recv(pending.fd.get(), reinterpret_cast<char*>(&pending.hello) + pending.got,
                           sizeof(Hello) - pending.got, 0);
  if (got == 0) return true;
  if (got < 0) return errno != EAGAIN && errno != EINTR;
  pending.got += static_cast<size_t>(got);
  // A peer that is not a rank, or one of another version, may never send as many bytes.
  const bool other = (pending.got >= kVersionEnds && pending.hello.version != kHandshakeVersion) ||
                     (pending.got >= sizeof(uint64_t) && pending.hello.magic != kHandshakeMagic);
  if (pending.got < sizeof(Hello) && !other) return false;
  Answer answer = Judge(pending.hello, self_);
  if (answer == Answer::kWelcome && places_.is_taken(pending.hello)) answer = Answer::kDuplicate;
  pending.welcome = MakeWelcome(self_, answer, pending.hello);
  const bool sent = SendWhole(pending.fd.get(), pending.welcome);
  if (answer != Answer::kWelcome) Reject(answer);
  if (!sent || answer != Answer::kWelcome) return true;
  pending.welcomed = true;
  DropOldestLike(pending);
  return false;
}

bool Incoming::ReadProof(Pending& pending) {
  const ssize_t got = recv(pending.fd.get(), pending.proof.data() + pending.proof_got,
                           pending.proof.size() - pending.proof_got, 0);
  if (got == 0) return true;
  if (got < 0) return errno != EAGAIN && errno != EINTR;
  pending.proof_got += static_cast<size_t>(got);
  if (pending.proof_got < pending.proof.size()) return false;
  if (!Equal(pending.proof, ProofOf(self_, pending.hello, pending.welcome))) {
    Reject(Answer::kOtherGroup);
    return true;
  }
  if (places_.is_taken(pending.hello)) {
    Reject(Answer::kDuplicate);
    return true;
  }
  places_.take(pending.hello, std::move(pending.fd));
  return true;
}

}  // namespace cohort::worker
