#include "tests/failure/testing/host_network.h"

#include <unistd.h>

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/strings/substitute.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "tests/testing/coordinator_process.h"

namespace cohort::testing {
namespace {

// A command of `ip` or `tc` takes milliseconds.
constexpr absl::Duration kCommandTimeout = absl::Seconds(30);

// Root needs no user namespace, and may run where user namespaces do not exist.
bool IsRoot() { return geteuid() == 0; }

std::string LinkOf(int host) { return absl::StrCat("host", host); }

std::vector<std::string> Inside(pid_t holder, std::vector<std::string> command) {
  std::vector<std::string> words = {"/usr/bin/nsenter", absl::StrCat("--target=", holder), "--net"};
  if (!IsRoot()) words.insert(words.end(), {"--user", "--preserve-credentials"});
  words.push_back("--");
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

}  // namespace

absl::StatusOr<std::unique_ptr<HostNetwork>> HostNetwork::Create(int hosts) {
  for (const char* const tool : {"/usr/bin/nsenter", "/usr/bin/unshare", "/usr/bin/setpriv"}) {
    if (access(tool, X_OK) != 0) return absl::UnavailableError(absl::StrCat("there is no ", tool));
  }
  auto network = absl::WrapUnique(new HostNetwork());
  COHORT_ASSIGN_OR_RETURN(network->switch_, network->NewNamespace());
  const absl::StatusOr<std::string> made =
      network->Run(*network->switch_, "ip link add switch type bridge && ip link set switch up");
  if (!made.ok()) return absl::UnavailableError(made.status().message());
  for (int host = 0; host < hosts; ++host) {
    COHORT_ASSIGN_OR_RETURN(Namespace added, network->NewNamespace());
    network->hosts_.push_back(std::move(added));
    COHORT_RETURN_IF_ERROR(network->Connect(host));
  }
  return network;
}

std::string HostNetwork::Address(int host) { return absl::StrCat("10.77.0.", host + 1); }

std::vector<std::string> HostNetwork::On(int host, std::vector<std::string> command) const {
  command[0] = ProgramPath(command[0]);
  command.insert(command.begin(), {"/usr/bin/setpriv", "--pdeathsig=KILL", "--"});
  return Inside(hosts_[static_cast<size_t>(host)]->pid(), std::move(command));
}

absl::Status HostNetwork::Cut(int host) {
  return Run(*switch_, absl::StrCat("ip link set ", LinkOf(host), " down")).status();
}

absl::Status HostNetwork::Mend(int host) {
  return Run(*switch_, absl::StrCat("ip link set ", LinkOf(host), " up")).status();
}

absl::Status HostNetwork::Block(int host, int other) {
  return Run(*hosts_[static_cast<size_t>(host)],
             absl::StrCat("ip route add unreachable ", Address(other), "/32"))
      .status();
}

absl::Status HostNetwork::Shape(int host, const std::string& discipline) {
  const std::string command = absl::StrCat(" root ", discipline);
  absl::Status status =
      Run(*switch_, absl::StrCat("tc qdisc replace dev ", LinkOf(host), command)).status();
  if (status.ok()) {
    status = Run(*hosts_[static_cast<size_t>(host)],
                 absl::StrCat("tc qdisc replace dev uplink", command))
                 .status();
  }
  if (absl::StrContains(status.message(), "qdisc kind is unknown")) {
    return absl::UnimplementedError(
        absl::StrCat("this kernel has no \"tc qdisc ", discipline, "\""));
  }
  return status;
}

absl::StatusOr<int64_t> HostNetwork::Dropped(int host) {
  COHORT_ASSIGN_OR_RETURN(const std::string text,
                          Run(*switch_, absl::StrCat("tc -s qdisc show dev ", LinkOf(host))));
  // Such as: Sent 5446 bytes 33 pkt (dropped 2, overlimits 8 requeues 0)
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits("(dropped ", 1));
  const std::vector<std::string> words = absl::StrSplit(parts.back(), absl::MaxSplits(',', 1));
  int64_t count = 0;
  if (parts.size() != 2 || !absl::SimpleAtoi(words[0], &count)) {
    return absl::InternalError(absl::StrCat("tc counts no dropped packets: ", text));
  }
  return count;
}

absl::StatusOr<HostNetwork::Namespace> HostNetwork::NewNamespace() {
  // cat ends when its input closes, which this process holds. All namespaces but the first belong
  // to the first one's user namespace, in which this user is root.
  const std::vector<std::string> shell = {"/bin/sh", "-c", "echo ready; exec cat"};
  std::vector<std::string> command = {"/usr/bin/unshare", "--net"};
  if (switch_ == nullptr && !IsRoot()) command.push_back("--map-root-user");
  command.insert(command.end(), shell.begin(), shell.end());
  if (switch_ != nullptr) command = Inside(switch_->pid(), std::move(command));
  auto holder = std::make_unique<ChildProcess>(std::move(command));
  if (!holder->ReadLine(kCommandTimeout).ok()) {
    return absl::UnavailableError(
        absl::StrCat("no network namespaces here, neither by being root nor by a user namespace: ",
                     absl::StripAsciiWhitespace(holder->ErrorText())));
  }
  return holder;
}

absl::Status HostNetwork::Connect(int host) {
  const ChildProcess& holder = *hosts_[static_cast<size_t>(host)];
  COHORT_RETURN_IF_ERROR(
      Run(*switch_, absl::Substitute("ip link add $0 type veth peer name uplink netns $1; "
                                     "ip link set $0 master switch; ip link set $0 up",
                                     LinkOf(host), holder.pid()))
          .status());
  return Run(holder, absl::Substitute("ip address add $0/24 dev uplink; ip link set uplink up; "
                                      "ip link set lo up",
                                      Address(host)))
      .status();
}

absl::StatusOr<std::string> HostNetwork::Run(const ChildProcess& holder,
                                             const std::string& script) {
  ChildProcess shell(Inside(
      holder.pid(), {"/bin/sh", "-ec", absl::StrCat("PATH=$PATH:/usr/sbin:/sbin\n", script)}));
  COHORT_ASSIGN_OR_RETURN(const int exit, shell.Wait(kCommandTimeout));
  if (exit != 0) {
    return absl::InternalError(absl::StrCat(script, ": exit status ", exit, ": ",
                                            absl::StripAsciiWhitespace(shell.ErrorText())));
  }
  std::string text;
  for (absl::StatusOr<std::string> line; (line = shell.ReadLine(kCommandTimeout)).ok();) {
    absl::StrAppend(&text, *line, "\n");
  }
  return text;
}

}  // namespace cohort::testing
