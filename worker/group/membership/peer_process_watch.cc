#include "worker/group/membership/peer_process_watch.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace cohort::worker {
namespace {

// The message of a rank that leaves; the reason follows, if there is one.
constexpr absl::string_view kBye = "bye";
constexpr size_t kMaxWhy = 500;

}  // namespace

PeerProcessWatch::PeerProcessWatch(std::shared_ptr<WatchThread> watch_thread,
                                   std::vector<HostLink> links, OnGone on_gone)
    : watch_thread_(std::move(watch_thread)), on_gone_(std::move(on_gone)) {
  for (HostLink& link : links) {
    auto watched = std::make_unique<Watched>();
    watched->pid = link.socket.peer().pid;
    watched->link = std::move(link);
    if (watched->pid > 0 && watched->pid != getpid()) {
      watched->process = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, watched->pid, 0)));
    }
    watched_.push_back(std::move(watched));
  }
  for (const auto& watched : watched_) {
    Watched& one = *watched;
    one.socket_watch =
        watch_thread_->Watch(one.link.socket.fd(), [this, &one] { return OnReadable(one, false); });
    if (one.process.get() < 0) continue;
    one.process_watch =
        watch_thread_->Watch(one.process.get(), [this, &one] { return OnReadable(one, true); });
  }
}

PeerProcessWatch::~PeerProcessWatch() {
  for (const auto& watched : watched_) {
    if (watched->process_watch != 0) watch_thread_->Unwatch(watched->process_watch);
    watch_thread_->Unwatch(watched->socket_watch);
    watched->link.socket.Send(kBye, {}, absl::InfinitePast()).IgnoreError();
  }
}

void PeerProcessWatch::SayGoodbye(const std::string& why) {
  const std::string goodbye = absl::StrCat(kBye, why.substr(0, kMaxWhy));
  for (const auto& watched : watched_) {
    watched->link.socket.Send(goodbye, {}, absl::InfinitePast()).IgnoreError();
  }
}

bool PeerProcessWatch::OnReadable(Watched& watched, bool process_ended) {
  if (watched.gone) return false;
  // A rank that says goodbye before its process ends has left, and did not die.
  const absl::StatusOr<shm::LocalSocket::Message> message =
      watched.link.socket.Receive(absl::InfinitePast());
  if (absl::IsDeadlineExceeded(message.status()) && !process_ended) return true;
  watched.gone = true;
  const int rank = watched.link.rank;
  if (message.ok() && absl::StartsWith(message->bytes, kBye)) {
    const absl::string_view why = absl::string_view(message->bytes).substr(kBye.size());
    on_gone_(rank, why.empty(),
             absl::StrCat("rank ", rank, " left the group", why.empty() ? "" : ": ", why));
  } else {
    const std::string pid = watched.pid == 0 ? "" : absl::StrCat(watched.pid, " ");
    on_gone_(rank, false, absl::StrCat("rank ", rank, " is gone: its process ", pid, "ended"));
  }
  return false;
}

}  // namespace cohort::worker
