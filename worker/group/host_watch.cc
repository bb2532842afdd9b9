#include "worker/group/host_watch.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace cohort::worker {
namespace {

constexpr absl::string_view kBye = "bye";

}  // namespace

HostWatch::HostWatch(std::shared_ptr<Supervisor> supervisor, std::vector<HostLink> links,
                     std::function<void(const std::string&)> on_gone)
    : supervisor_(std::move(supervisor)), on_gone_(std::move(on_gone)) {
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
        supervisor_->Watch(one.link.socket.fd(), [this, &one] { return OnReadable(one, false); });
    if (one.process.get() < 0) continue;
    one.process_watch =
        supervisor_->Watch(one.process.get(), [this, &one] { return OnReadable(one, true); });
  }
}

HostWatch::~HostWatch() {
  for (const auto& watched : watched_) {
    if (watched->process_watch != 0) supervisor_->Unwatch(watched->process_watch);
    supervisor_->Unwatch(watched->socket_watch);
    watched->link.socket.Send(kBye, {}, absl::InfinitePast()).IgnoreError();
  }
}

bool HostWatch::OnReadable(Watched& watched, bool process_ended) {
  if (watched.gone) return false;
  // Whoever says good-bye before it ends has not died.
  const absl::StatusOr<shm::LocalSocket::Message> message =
      watched.link.socket.Receive(absl::InfinitePast());
  if (absl::IsDeadlineExceeded(message.status()) && !process_ended) return true;
  watched.gone = true;
  const bool left = message.ok() && message->bytes == kBye;
  on_gone_(left ? absl::StrCat("rank ", watched.link.rank, " left the group")
                : absl::StrCat("rank ", watched.link.rank, " is gone: its process ",
                               watched.pid == 0 ? std::string("") : absl::StrCat(watched.pid, " "),
                               "ended"));
  return false;
}

}  // namespace cohort::worker
