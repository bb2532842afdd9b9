#include "worker/communicator/socket/mesh/secure_mesh.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/rank_set.h"
#include "base/status_macros.h"
#include "base/tls/tls_session.h"
#include "worker/communicator/socket/mesh/link_proof.h"
#include "worker/communicator/socket/mesh/poll_until.h"
#include "worker/communicator/socket/mesh/rank_socket.h"

namespace cohort::worker {
namespace {

// The server proves itself first. So nothing of the client is on its way when the server refuses
// the client's certificate, and the alert about that arrives.
enum class Step { kHandshake, kSend, kReceive, kDone };

struct Handshake {
  int rank = 0;
  int stream = 0;
  bool is_server = false;
  RankSocket* socket = nullptr;
  std::shared_ptr<TlsSession> tls;
  Step step = Step::kHandshake;
  short awaited = 0;     // events of the socket
  Proof sent;            // of this rank
  Proof expected;        // of the other
  Proof received;
  size_t got = 0;  // bytes of it
};

class Handshakes {
 public:
  Handshakes(Mesh& mesh, const SecureMeshOptions& options, Instant deadline)
      : options_(options), started_(Clock::Steady().Now()), deadline_(deadline) {
    for (size_t rank = 0; rank < mesh.streams.size(); ++rank) {
      for (size_t stream = 0; stream < mesh.streams[rank].size(); ++stream) {
        Add(static_cast<int>(rank), static_cast<int>(stream), mesh.streams[rank][stream]);
      }
    }
  }

  absl::Status Run() {
    for (Handshake& handshake : all_) {
      const absl::Status status = Advance(handshake);
      if (!status.ok()) return ReasonOf(handshake.rank, status);
    }
    while (Wait()) {
      for (size_t i = 0; i < polled_.size(); ++i) {
        if (polled_[i].revents == 0) continue;
        const absl::Status status = Advance(*waiting_[i]);
        if (!status.ok()) return ReasonOf(waiting_[i]->rank, status);
      }
    }
    for (Handshake& handshake : all_) {
      if (handshake.step != Step::kDone) return Late();
    }
    for (Handshake& handshake : all_) handshake.socket->set_tls(std::move(handshake.tls));
    return absl::OkStatus();
  }

 private:
  void Add(int rank, int stream, RankSocket& socket) {
    Handshake& handshake = all_.emplace_back();
    handshake.rank = rank;
    handshake.stream = stream;
    handshake.is_server = options_.rank < rank;
    handshake.socket = &socket;
    handshake.tls = handshake.is_server ? TlsSession::Accept(options_.context, socket.fd())
                                        : TlsSession::ConnectToAny(options_.context, socket.fd());
  }

  void MakeProofs(Handshake& handshake) const {
    const std::string binding = handshake.tls->ChannelBinding();
    const int rank = handshake.rank;
    handshake.sent =
        LinkProof(options_.secret, binding, options_.rank, rank, handshake.stream);
    handshake.expected =
        LinkProof(options_.secret, binding, rank, options_.rank, handshake.stream);
  }

  // Waits for one of the sockets. Returns false if no handshake is left, or at the deadline.
  bool Wait() {
    polled_.clear();
    waiting_.clear();
    for (Handshake& handshake : all_) {
      if (handshake.step == Step::kDone) continue;
      polled_.push_back({handshake.socket->fd(), handshake.awaited, 0});
      waiting_.push_back(&handshake);
    }
    return !polled_.empty() && PollUntil(polled_, deadline_);
  }

  // Goes on until the handshake is done or has to wait.
  absl::Status Advance(Handshake& handshake) {
    while (true) {
      const Step before = handshake.step;
      COHORT_RETURN_IF_ERROR(TakeStep(handshake));
      if (handshake.step == before || handshake.step == Step::kDone) return absl::OkStatus();
    }
  }

  // A rank that fails tells the reason on one connection, and then closes all of them.
  absl::Status ReasonOf(int rank, const absl::Status& status) {
    if (!absl::IsUnavailable(status)) return status;
    for (Handshake& handshake : all_) {
      if (handshake.rank != rank || handshake.step == Step::kDone) continue;
      const absl::Status other = Advance(handshake);
      if (!other.ok() && !absl::IsUnavailable(other)) return other;
    }
    return status;
  }

  absl::Status TakeStep(Handshake& handshake) {
    switch (handshake.step) {
      case Step::kHandshake:
        switch (handshake.tls->Handshake()) {
          case TlsSession::Progress::kDone:
            MakeProofs(handshake);
            handshake.step = handshake.is_server ? Step::kSend : Step::kReceive;
            break;
          case TlsSession::Progress::kWantInput:
            handshake.awaited = POLLIN;
            break;
          case TlsSession::Progress::kWantOutput:
            handshake.awaited = POLLOUT;
            break;
          case TlsSession::Progress::kFailed:
            return Failed(handshake);
        }
        return absl::OkStatus();
      case Step::kSend:
        return Send(handshake);
      case Step::kReceive:
        return Receive(handshake);
      case Step::kDone:
        break;
    }
    return absl::OkStatus();
  }

  absl::Status Send(Handshake& handshake) {
    handshake.awaited = POLLOUT;
    // One record, which is sent as a whole.
    if (handshake.tls->Send({handshake.sent.data(), handshake.sent.size()}) < 0) {
      return errno == EAGAIN ? absl::OkStatus() : Failed(handshake);
    }
    handshake.step = handshake.is_server ? Step::kReceive : Step::kDone;
    return absl::OkStatus();
  }

  absl::Status Receive(Handshake& handshake) {
    handshake.awaited = POLLIN;
    // The other end may send more at once; that is left for the communicator.
    const ssize_t got = handshake.tls->Receive(handshake.received.data() + handshake.got,
                                               handshake.received.size() - handshake.got);
    if (got < 0 && errno == EAGAIN) return absl::OkStatus();
    if (got <= 0) return Failed(handshake);
    handshake.got += static_cast<size_t>(got);
    if (handshake.got < handshake.received.size()) return absl::OkStatus();
    if (!Equal(handshake.received, handshake.expected)) {
      return With(handshake.rank, absl::FailedPreconditionError(
                                        "another group or generation, or a relay between the ranks"));
    }
    handshake.step = handshake.is_server ? Step::kDone : Step::kSend;
    return absl::OkStatus();
  }

  absl::Status Failed(const Handshake& handshake) const {
    const absl::Status error = handshake.tls->error();
    // The other end learns the reason from an alert. It would be lost if the socket were closed
    // while it has unread bytes.
    const int fd = handshake.socket->fd();
    shutdown(fd, SHUT_WR);
    char unread[4096];
    while (recv(fd, unread, sizeof(unread), MSG_DONTWAIT) > 0) {
    }
    return With(handshake.rank,
                error.ok() ? absl::UnavailableError("it closed the connection") : error);
  }

  absl::Status Late() const {
    RankSet late;
    for (const Handshake& handshake : all_) {
      if (handshake.step != Step::kDone) late.Add(Name(handshake.rank));
    }
    return absl::DeadlineExceededError(absl::StrCat(
        "rank ", late.ToString(), " did not finish the TLS handshake within ",
        absl::FormatDuration(absl::Trunc(deadline_ - started_, absl::Milliseconds(1)))));
  }

  int Name(int rank) const {
    return options_.names.empty() ? rank : options_.names[static_cast<size_t>(rank)];
  }

  absl::Status With(int rank, const absl::Status& status) const {
    const std::string place =
        options_.places.empty() ? ""
                                : absl::StrCat(" at ", options_.places[static_cast<size_t>(rank)]);
    return absl::Status(status.code(), absl::StrCat("rank ", Name(rank), place,
                                                    ": TLS handshake: ", status.message()));
  }

  const SecureMeshOptions& options_;
  const Instant started_;
  const Instant deadline_;
  std::vector<Handshake> all_;
  std::vector<pollfd> polled_;
  std::vector<Handshake*> waiting_;  // by socket of polled_
};

}  // namespace

absl::Status SecureMesh(Mesh& mesh, const SecureMeshOptions& options, Instant deadline) {
  return Handshakes(mesh, options, deadline).Run();
}

}  // namespace cohort::worker
