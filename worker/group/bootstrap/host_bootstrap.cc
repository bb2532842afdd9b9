// One file, though long: the first rank and the others are the two sides of one exchange.
#include "worker/group/bootstrap/host_bootstrap.h"

#include <openssl/sha.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/id128.h"
#include "base/peer_user.h"
#include "base/rank_set.h"
#include "base/status_macros.h"
#include "base/threads/wait_hook.h"

namespace cohort::worker {
namespace {

using shm::LocalSocket;

// "COHORT" and the version of the messages.
constexpr uint64_t kMagic = 0x434F484F52540102;

// From each rank to the first, with the rank's heap; without it if the first is another user's
// process.
struct Hello {
  uint64_t magic;
  uint64_t secret[2];
  int32_t rank;
};
// From the first rank to each other, followed by the ranks. The descriptors come with it: the
// space, all heaps, and the further segment. They take as many messages as they need; the further
// messages begin with kMore.
struct Welcome {
  uint64_t magic;
  int32_t count;
  int32_t has_common;
};
// Then each rank sends the first one byte, and the first sends each one byte; a text follows
// kFailed. The first may send kFailed instead of a welcome.
constexpr char kMore = 'm';
constexpr char kReady = 'r';
constexpr char kFailed = 'f';
// From the first rank, instead of a welcome; a text follows.
constexpr char kNotLetIn = 'n';

// How long a new connection may be silent.
constexpr absl::Duration kHelloTimeout = absl::Seconds(1);
// The most silent connections, besides those of missing ranks. If there is one more, the oldest is
// dropped.
constexpr size_t kMaxPending = 64;

absl::string_view BytesOf(const Hello& hello) {
  return {reinterpret_cast<const char*>(&hello), sizeof(hello)};
}

absl::Status With(int rank, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat("sharing memory with rank ", rank, ": ", status.message()));
}

class HostBootstrap {
 public:
  HostBootstrap(const HostBootstrapOptions& options, Instant deadline)
      : options_(options), deadline_(deadline) {}

  absl::StatusOr<HostMembers> Run() {
    const int first = options_.candidates.front().rank;
    if (options_.candidates.size() == 1) return Alone("");
    if (options_.rank == first) return Lead();
    return Follow(first);
  }

 private:
  HostMembers Alone(std::string why_not) {
    HostMembers alone;
    alone.ranks = {options_.rank};
    alone.why_not = std::move(why_not);
    return alone;
  }

  const HostCandidate* Find(int rank) const {
    for (const HostCandidate& candidate : options_.candidates) {
      if (candidate.rank == rank) return &candidate;
    }
    return nullptr;
  }

  bool HasCommon(const HostMembers& members) const {
    return options_.common_bytes > 0 && members.ranks.size() == options_.candidates.size();
  }

  // --- The first rank.

  absl::StatusOr<HostMembers> Lead() {
    HostMembers members;
    std::vector<std::shared_ptr<const shm::Segment>> heaps = AcceptAll(members);
    // Ranks that come later do not wait.
    options_.listener->RejectAll();
    if (members.links.empty()) return Alone(members.why_not);
    std::sort(members.links.begin(), members.links.end(),
              [](const HostLink& a, const HostLink& b) { return a.rank < b.rank; });
    members.ranks = {options_.rank};
    RankHeaps ordered = {options_.heap};
    for (const HostLink& link : members.links) {
      members.ranks.push_back(link.rank);
      ordered.push_back(heaps[IndexOf(link.rank)]);
    }
    const absl::Status handed = HandOut(members, ordered);
    for (const HostLink& link : members.links) {
      const std::string outcome = handed.ok()
                                      ? std::string(1, kReady)
                                      : absl::StrCat(std::string(1, kFailed), handed.message());
      const absl::Status told = With(
          link.rank, link.socket.Send(outcome.substr(0, LocalSocket::kMaxBytes), {}, deadline_));
      // All ranks get the failure, also those after one that has died.
      if (handed.ok() && !told.ok()) return told;
    }
    if (!handed.ok()) return handed;
    return members;
  }

  size_t IndexOf(int rank) const {
    return static_cast<size_t>(Find(rank) - options_.candidates.data());
  }

  // A connection that has not named its rank yet.
  struct PendingConnection {
    LocalSocket socket;
    Instant deadline;
  };
  // The first rank's view of the candidates while they arrive.
  struct Arrivals {
    std::vector<std::shared_ptr<const shm::Segment>> heaps;  // by candidate
    RankSet rejected;
    std::list<PendingConnection> pending;  // oldest first
    absl::Status accepting;   // why it stopped before the window ended
  };

  // Returns the heaps of the accepted ranks, by candidate. Reads all connections at once, because
  // any process of this host may connect and send nothing.
  std::vector<std::shared_ptr<const shm::Segment>> AcceptAll(HostMembers& members) {
    Arrivals arrivals;
    arrivals.heaps.resize(options_.candidates.size());
    const Instant end = std::min(deadline_, Clock::Steady().Now() + options_.window);
    while (arrivals.accepting.ok() && Missing(members, arrivals) > 0 &&
           AwaitPending(arrivals.pending, end)) {
      arrivals.pending.remove_if(
          [&](PendingConnection& connection) { return ReadHello(connection, members, arrivals); });
      AcceptPending(members, arrivals);
    }
    RankSet absent;
    for (size_t i = 1; i < arrivals.heaps.size(); ++i) {
      const int rank = options_.candidates[i].rank;
      if (arrivals.heaps[i] == nullptr && !arrivals.rejected.Contains(rank)) absent.Add(rank);
    }
    if (!absent.empty()) {
      members.why_not =
          arrivals.accepting.ok()
              ? absl::StrCat("rank ", absent.ToString(), " did not come to rank ", options_.rank,
                             " within ", absl::FormatDuration(options_.window))
              : absl::StrCat("rank ", options_.rank, " cannot accept rank ", absent.ToString(),
                             ": ", arrivals.accepting.message());
    }
    return std::move(arrivals.heaps);
  }

  size_t Missing(const HostMembers& members, const Arrivals& arrivals) const {
    return options_.candidates.size() - 1 - members.links.size() -
           static_cast<size_t>(arrivals.rejected.count());
  }

  // Waits for a connection or a message; drops connections that were silent for too long. Returns
  // false at `end`.
  bool AwaitPending(std::list<PendingConnection>& pending, Instant end) const {
    HookedWait hooked;
    while (true) {
      hooked.RunIfDue();
      const Instant now = Clock::Steady().Now();
      while (!pending.empty() && pending.front().deadline <= now) pending.pop_front();
      if (now >= end) return false;
      const Instant until = pending.empty() ? end : std::min(end, pending.front().deadline);
      std::vector<pollfd> polled = {{options_.listener->fd(), POLLIN, 0}};
      for (const PendingConnection& connection : pending)
        polled.push_back({connection.socket.fd(), POLLIN, 0});
      const timespec left = absl::ToTimespec(std::min(until - now, hooked.Shorten(absl::Hours(1))));
      if (ppoll(polled.data(), polled.size(), &left, nullptr) > 0) return true;
    }
  }

  void AcceptPending(HostMembers& members, Arrivals& arrivals) {
    std::list<PendingConnection>& pending = arrivals.pending;
    while (Missing(members, arrivals) > 0) {
      absl::StatusOr<LocalSocket> socket = options_.listener->Accept(absl::InfinitePast());
      if (absl::IsResourceExhausted(socket.status()) && !pending.empty()) {
        pending.pop_front();  // a descriptor for the next one
        continue;
      }
      if (absl::IsDeadlineExceeded(socket.status())) return;  // the queue is empty
      if (!socket.ok()) {
        arrivals.accepting = socket.status();
        return;
      }
      PendingConnection connection = {*std::move(socket), Clock::Steady().Now() + kHelloTimeout};
      if (ReadHello(connection, members, arrivals)) continue;
      if (pending.size() >= kMaxPending + Missing(members, arrivals)) pending.pop_front();
      pending.push_back(std::move(connection));
    }
  }

  // Reads the hello of a connection. Returns true if the hello came or the connection ended: it is
  // no longer pending.
  bool ReadHello(PendingConnection& connection, HostMembers& members, Arrivals& arrivals) {
    absl::StatusOr<LocalSocket::Message> message = connection.socket.Receive(absl::InfinitePast());
    if (absl::IsDeadlineExceeded(message.status())) return false;
    Hello hello;
    if (!message.ok() || message->bytes.size() != sizeof(hello)) return true;
    std::memcpy(&hello, message->bytes.data(), sizeof(hello));
    const HostCandidate* const candidate = Find(hello.rank);
    const Id128 said = {hello.secret[0], hello.secret[1]};
    const bool for_others = said == SecretForOthers(hello.rank);
    if (hello.magic != kMagic || (said != options_.secret && !for_others) || candidate == nullptr ||
        hello.rank == options_.rank || arrivals.heaps[IndexOf(hello.rank)] != nullptr) {
      return true;
    }
    std::string why_not;
    const uid_t user = connection.socket.peer().uid;
    if (for_others || !IsThisUser(user)) {
      why_not = OtherUser(hello.rank, user);
    } else if (message->fds.size() != 1) {
      why_not = absl::StrCat("rank ", hello.rank, " came with ", message->fds.size(),
                             " descriptors, not with that of its memory");
    } else {
      absl::StatusOr<shm::Segment> heap =
          shm::Segment::Map(message->fds[0].release(), candidate->heap_bytes);
      if (heap.ok()) {
        arrivals.heaps[IndexOf(hello.rank)] = std::make_shared<shm::Segment>(*std::move(heap));
        members.links.push_back({hello.rank, std::move(connection.socket)});
        return true;
      }
      why_not = absl::StrCat("rank ", hello.rank, ": ", heap.status().message());
    }
    members.why_not = why_not;
    arrivals.rejected.Add(hello.rank);
    // A connection always has room for its first message.
    connection.socket
        .Send(absl::StrCat(std::string(1, kNotLetIn), why_not), {}, absl::InfinitePast())
        .IgnoreError();
    return true;
  }

  // A stand-in for the secret, in hellos to another user's process.
  Id128 SecretForOthers(int rank) const {
    const uint64_t words[] = {options_.secret.high, options_.secret.low,
                              static_cast<uint64_t>(rank)};
    unsigned char digest[SHA256_DIGEST_LENGTH];
    SHA256(reinterpret_cast<const unsigned char*>(words), sizeof(words), digest);
    return Id128::FromBytes({reinterpret_cast<const char*>(digest), Id128::kBytes});
  }

  std::string OtherUser(int rank, uid_t user) const {
    return absl::StrCat("rank ", rank, " is a process of ", NameOfUser(user), ", rank ",
                        options_.rank, " of ", NameOfUser(geteuid()));
  }

  absl::Status HandOut(HostMembers& members, const RankHeaps& heaps) {
    const int count = static_cast<int>(members.ranks.size());
    COHORT_ASSIGN_OR_RETURN(HostSharedMemory space, HostSharedMemory::Create(count));
    if (HasCommon(members)) {
      COHORT_ASSIGN_OR_RETURN(members.common,
                              shm::Segment::Create("cohort-common", options_.common_bytes));
    }
    const Welcome welcome = {kMagic, count, HasCommon(members) ? 1 : 0};
    std::string bytes(reinterpret_cast<const char*>(&welcome), sizeof(welcome));
    for (const int rank : members.ranks) {
      const auto number = static_cast<int32_t>(rank);
      bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
    }
    std::vector<int> fds = {space.fd()};
    for (const auto& heap : heaps) fds.push_back(heap->fd());
    if (HasCommon(members)) fds.push_back(members.common.fd());
    for (const HostLink& link : members.links) {
      for (size_t at = 0; at < fds.size(); at += LocalSocket::kMaxFds) {
        const absl::Span<const int> some =
            absl::MakeConstSpan(fds).subspan(at, LocalSocket::kMaxFds);
        COHORT_RETURN_IF_ERROR(With(
            link.rank, link.socket.Send(at == 0 ? bytes : std::string(1, kMore), some, deadline_)));
      }
    }
    members.memory = std::make_unique<HostMemory>(HostMemory{std::move(space), heaps});
    for (const HostLink& link : members.links) {
      const absl::StatusOr<LocalSocket::Message> answer = link.socket.Receive(deadline_);
      if (!answer.ok()) return With(link.rank, answer.status());
      if (answer->bytes[0] == kReady) continue;
      return absl::ResourceExhaustedError(
          absl::StrCat("rank ", link.rank, ": ", answer->bytes.substr(1)));
    }
    return absl::OkStatus();
  }

  // --- The other ranks.

  absl::StatusOr<HostMembers> Follow(int first) {
    const std::string& name = options_.candidates.front().local_socket;
    absl::StatusOr<LocalSocket> socket = LocalSocket::Connect(name, deadline_);
    if (!socket.ok()) {
      return Alone(absl::StrCat("rank ", options_.rank, " does not reach rank ", first, ": ",
                                socket.status().message()));
    }
    const int heap = options_.heap->fd();
    const uid_t user = socket->peer().uid;
    // Another user's process gets neither memory nor the secret: any process may listen at the name
    // of a rank that is gone. It gets a hello, so that it does not wait for this rank.
    const bool of_this_user = IsThisUser(user);
    const Id128 secret = of_this_user ? options_.secret : SecretForOthers(options_.rank);
    const Hello hello = {kMagic, {secret.high, secret.low}, options_.rank};
    const absl::Span<const int> fds = absl::MakeConstSpan(&heap, of_this_user ? 1 : 0);
    absl::Status said = socket->Send(BytesOf(hello), fds, deadline_);
    absl::StatusOr<LocalSocket::Message> message =
        said.ok() ? socket->Receive(deadline_) : std::move(said);
    if (!of_this_user) return Alone(OtherUser(first, user));
    if (absl::IsUnavailable(message.status())) {
      // No memory is shared yet, so this rank goes on alone. If the first rank died, the membership
      // reports it.
      return Alone(absl::StrCat("rank ", options_.rank, " came too late to rank ", first,
                                ", or that rank is gone: ", message.status().message()));
    }
    if (!message.ok()) return With(first, message.status());
    if (message->bytes[0] == kNotLetIn) return Alone(message->bytes.substr(1));
    if (message->bytes[0] == kFailed) {
      return absl::UnavailableError(message->bytes.substr(1));
    }
    HostMembers members;
    const absl::Status taken = TakeIn(*socket, *std::move(message), members);
    const std::string answer = taken.ok() ? std::string(1, kReady)
                                          : absl::StrCat(std::string(1, kFailed), taken.message());
    COHORT_RETURN_IF_ERROR(
        With(first, socket->Send(answer.substr(0, LocalSocket::kMaxBytes), {}, deadline_)));
    absl::StatusOr<LocalSocket::Message> outcome = socket->Receive(deadline_);
    if (!outcome.ok()) return With(first, outcome.status());
    if (!taken.ok()) return taken;
    if (outcome->bytes[0] != kReady) return absl::UnavailableError(outcome->bytes.substr(1));
    members.links.push_back({first, *std::move(socket)});
    return members;
  }

  absl::Status TakeIn(const LocalSocket& socket, LocalSocket::Message message,
                      HostMembers& members) {
    Welcome welcome;
    const absl::Status strange = absl::UnavailableError("the first rank's welcome is malformed");
    if (message.bytes.size() < sizeof(welcome)) return strange;
    std::memcpy(&welcome, message.bytes.data(), sizeof(welcome));
    const auto count = static_cast<size_t>(std::max(welcome.count, 0));
    if (welcome.magic != kMagic || count < 2 || count > options_.candidates.size() ||
        message.bytes.size() != sizeof(welcome) + count * sizeof(int32_t)) {
      return strange;
    }
    for (size_t i = 0; i < count; ++i) {
      int32_t rank;
      std::memcpy(&rank, message.bytes.data() + sizeof(welcome) + i * sizeof(rank), sizeof(rank));
      // Ascending order excludes a rank that is listed twice.
      if (Find(rank) == nullptr || (i > 0 && rank <= members.ranks.back())) return strange;
      members.ranks.push_back(rank);
    }
    if (members.ranks.front() != options_.candidates.front().rank ||
        std::find(members.ranks.begin(), members.ranks.end(), options_.rank) ==
            members.ranks.end() ||
        welcome.has_common != (HasCommon(members) ? 1 : 0)) {
      return strange;
    }
    const size_t expected = count + 1 + (HasCommon(members) ? 1 : 0);
    std::vector<UniqueFd> fds = std::move(message.fds);
    while (fds.size() < expected) {
      absl::StatusOr<LocalSocket::Message> more = socket.Receive(deadline_);
      if (!more.ok()) return more.status();
      if (more->fds.empty()) return strange;
      for (UniqueFd& fd : more->fds) fds.push_back(std::move(fd));
    }
    COHORT_ASSIGN_OR_RETURN(HostSharedMemory space,
                            HostSharedMemory::Attach(fds[0].release(), static_cast<int>(count)));
    RankHeaps heaps;
    for (size_t i = 0; i < count; ++i) {
      const int rank = members.ranks[i];
      if (rank == options_.rank) {
        heaps.push_back(options_.heap);
        continue;
      }
      COHORT_ASSIGN_OR_RETURN(shm::Segment heap,
                              shm::Segment::Map(fds[i + 1].release(), Find(rank)->heap_bytes));
      heaps.push_back(std::make_shared<shm::Segment>(std::move(heap)));
    }
    if (HasCommon(members)) {
      COHORT_ASSIGN_OR_RETURN(members.common,
                              shm::Segment::Map(fds[count + 1].release(), options_.common_bytes));
    }
    members.memory = std::make_unique<HostMemory>(HostMemory{std::move(space), std::move(heaps)});
    return absl::OkStatus();
  }

  const HostBootstrapOptions& options_;
  const Instant deadline_;
};

}  // namespace

absl::StatusOr<HostMembers> BootstrapHost(const HostBootstrapOptions& options, Instant deadline) {
  return HostBootstrap(options, deadline).Run();
}

}  // namespace cohort::worker
