#include "worker/communicator/nccl/ras/ras_client.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"

namespace cohort::worker {
namespace {

constexpr char kDefaultAddress[] = "localhost:28028";
// The longest answer before the report.
constexpr size_t kMostLine = 1024;
// The longest text of findings in an error, and the time to get it.
constexpr size_t kMostFindings = 500;
constexpr absl::Duration kFindings = absl::Milliseconds(500);
// The most bytes of a wrong answer that an error quotes.
constexpr size_t kMostQuoted = 80;

std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, kMostQuoted)),
                      text.size() > kMostQuoted ? "...\"" : "\"");
}

// One conversation.
class RasConnection {
 public:
  RasConnection(std::string address, Instant deadline)
      : address_(std::move(address)), deadline_(deadline) {}
  void set_deadline(Instant deadline) { deadline_ = deadline; }

  absl::Status Open() {
    const size_t colon = address_.rfind(':');
    if (colon == std::string::npos) return NoAddress();
    std::string host = address_.substr(0, colon);
    const std::string port = address_.substr(colon + 1);
    if (host.size() > 1 && host.front() == '[' && host.back() == ']') {
      host = host.substr(1, host.size() - 2);
    }
    // Names would be looked up for as long as it takes.
    std::vector<std::string> numbers = {host};
    if (host == "localhost") numbers = {"127.0.0.1", "::1"};
    absl::Status status;
    for (const std::string& number : numbers) {
      status = Connect(number, port);
      if (!absl::IsUnavailable(status)) return status;
    }
    return status;
  }

  // Sends `command` and returns the answer, one line.
  absl::StatusOr<std::string> Ask(absl::string_view command) {
    COHORT_RETURN_IF_ERROR(Send(command));
    while (true) {
      if (const size_t end = unread_.find('\n'); end != std::string::npos) {
        std::string line = unread_.substr(0, end);
        unread_.erase(0, end + 1);
        return line;
      }
      if (unread_.size() > kMostLine) return Strange(command, unread_);
      COHORT_ASSIGN_OR_RETURN(const bool more, Receive(command));
      if (!more) return Error(absl::StatusCode::kUnavailable, command, "it has hung up");
    }
  }
  // Sends `command`, to which "OK" is the answer.
  absl::Status SendCommand(absl::string_view command) {
    COHORT_ASSIGN_OR_RETURN(const std::string answer, Ask(command));
    return answer == "OK" ? absl::OkStatus() : Strange(command, answer);
  }
  // Sends `command` and returns everything until the other end hangs up.
  absl::StatusOr<std::string> AskForAll(absl::string_view command, size_t most_bytes) {
    COHORT_RETURN_IF_ERROR(Send(command));
    while (true) {
      COHORT_ASSIGN_OR_RETURN(const bool more, Receive(command));
      if (unread_.size() > most_bytes) {
        return Error(absl::StatusCode::kResourceExhausted, command,
                     absl::StrCat("the answer has more than ", most_bytes, " bytes"));
      }
      if (!more) return std::move(unread_);
    }
  }

  absl::Status Strange(absl::string_view command, absl::string_view answer) const {
    return Error(absl::StatusCode::kDataLoss, command,
                 absl::StrCat(Quoted(answer), " is no answer of NCCL's"));
  }

 private:
  absl::Status Error(absl::StatusCode code, absl::string_view command,
                     absl::string_view why) const {
    return absl::Status(code, absl::StrCat("NCCL's RAS at ", address_, ", ",
                                           absl::StripTrailingAsciiWhitespace(command), ": ", why));
  }
  absl::Status NoAddress() const {
    return absl::InvalidArgumentError(absl::StrCat(
        Quoted(address_), " is no address of NCCL's RAS: localhost or a number, and a port"));
  }

  absl::Status Connect(const std::string& number, const std::string& port) {
    addrinfo hints = {};
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (getaddrinfo(number.c_str(), port.c_str(), &hints, &found) != 0) return NoAddress();
    socket_ = UniqueFd(socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int result = connect(socket_.get(), found->ai_addr, found->ai_addrlen);
    int error = result == 0 ? 0 : errno;
    freeaddrinfo(found);
    constexpr char kCall[] = "connecting";
    if (error == EINPROGRESS) {
      COHORT_RETURN_IF_ERROR(Await(POLLOUT, kCall));
      socklen_t length = sizeof(error);
      getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    }
    if (error == 0) return absl::OkStatus();
    return Error(absl::StatusCode::kUnavailable, kCall, strerror(error));
  }

  // Waits until the socket is ready for `events`.
  absl::Status Await(int16_t events, absl::string_view command) const {
    while (true) {
      const absl::Duration left = deadline_ - Clock::Steady().Now();
      if (left <= absl::ZeroDuration()) {
        return Error(absl::StatusCode::kDeadlineExceeded, command, "there is no answer");
      }
      pollfd waited = {socket_.get(), events, 0};
      const int64_t ms = absl::ToInt64Milliseconds(left) + 1;
      const int ready = poll(&waited, 1, static_cast<int>(std::min<int64_t>(ms, 60'000)));
      if (ready > 0) return absl::OkStatus();
      if (ready < 0 && errno != EINTR) {
        return Error(absl::StatusCode::kUnavailable, command, strerror(errno));
      }
    }
  }

  absl::Status Send(absl::string_view text) {
    for (absl::string_view left = text; !left.empty();) {
      COHORT_RETURN_IF_ERROR(Await(POLLOUT, text));
      const ssize_t sent = send(socket_.get(), left.data(), left.size(), MSG_NOSIGNAL);
      if (sent > 0) {
        left.remove_prefix(static_cast<size_t>(sent));
      } else if (errno != EINTR && errno != EAGAIN) {
        return Error(absl::StatusCode::kUnavailable, text, strerror(errno));
      }
    }
    return absl::OkStatus();
  }

  // Appends the next bytes to `unread_`. Returns false if the other end has hung up.
  absl::StatusOr<bool> Receive(absl::string_view command) {
    char buffer[16384];
    while (true) {
      COHORT_RETURN_IF_ERROR(Await(POLLIN, command));
      const ssize_t size = recv(socket_.get(), buffer, sizeof(buffer), 0);
      if (size > 0) unread_.append(buffer, static_cast<size_t>(size));
      if (size >= 0) return size > 0;
      if (errno != EINTR && errno != EAGAIN) {
        return Error(absl::StatusCode::kUnavailable, command, strerror(errno));
      }
    }
  }

  const std::string address_;
  Instant deadline_;
  UniqueFd socket_;
  std::string unread_;
};

}  // namespace

absl::StatusOr<NcclRasReport> AskNcclRas(const NcclRasOptions& options, Instant deadline) {
  std::string address = options.address;
  if (const char* const set = std::getenv("NCCL_RAS_ADDR"); address.empty() && set != nullptr) {
    address = set;
  }
  RasConnection connection(address.empty() ? kDefaultAddress : address,
                           std::min(deadline, Clock::Steady().Now() + options.greeting));
  COHORT_RETURN_IF_ERROR(connection.Open());
  // The protocol's version makes no difference: the server reports commands that it does not
  // understand.
  constexpr char kGreeting[] = "CLIENT PROTOCOL 2\n";
  COHORT_ASSIGN_OR_RETURN(const std::string greeted, connection.Ask(kGreeting));
  if (!absl::StartsWith(greeted, "SERVER PROTOCOL ")) {
    return connection.Strange(kGreeting, greeted);
  }
  connection.set_deadline(deadline);
  const int64_t seconds = absl::ToInt64Seconds(deadline - Clock::Steady().Now() - absl::Seconds(1));
  // 0 would be no limit.
  COHORT_RETURN_IF_ERROR(connection.SendCommand(
      absl::StrCat("TIMEOUT ", std::clamp<int64_t>(seconds, 1, 3600), "\n")));
  constexpr char kFormat[] = "SET FORMAT json\n";
  COHORT_ASSIGN_OR_RETURN(const std::string formatted, connection.Ask(kFormat));
  if (absl::StartsWith(formatted, "ERROR: ")) {
    return absl::FailedPreconditionError(
        absl::StrCat("NCCL's RAS has no report that programs can read: that takes NCCL 2.28.7 (",
                     Quoted(formatted), ")"));
  }
  if (formatted != "OK") return connection.Strange(kFormat, formatted);
  COHORT_ASSIGN_OR_RETURN(const std::string report,
                          connection.AskForAll("STATUS\n", options.most_bytes));
  return ParseNcclRasReport(report);
}

absl::Status WithNcclFindings(const absl::Status& error, const NcclRasOptions& options) {
  const absl::StatusOr<NcclRasReport> report =
      AskNcclRas(options, Clock::Steady().Now() + kFindings);
  if (!report.ok()) return error;
  std::string findings;
  for (const NcclRasCommunicator& communicator : report->communicators) {
    for (const std::string& finding : FindingsOf(communicator)) {
      absl::StrAppend(&findings, findings.empty() ? "" : "; ", finding);
    }
  }
  if (findings.empty()) return error;
  if (findings.size() > kMostFindings) {
    findings.resize(kMostFindings);
    absl::StrAppend(&findings, "...");
  }
  return absl::Status(error.code(),
                      absl::StrCat(error.message(), "; NCCL on this host says: ", findings));
}

}  // namespace cohort::worker
