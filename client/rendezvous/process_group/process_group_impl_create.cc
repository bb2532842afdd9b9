// Joins a group, for the first time and in later generations.
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/host_name.h"
#include "base/incarnation_hash.h"
#include "base/rpc/random_bits.h"
#include "client/rendezvous/process_group/process_group_impl.h"

namespace cohort::client {
namespace {

constexpr absl::Duration kGiveUp = absl::Seconds(1);

std::string MemberName(const ProcessGroupOptions& options) {
  if (!options.member.empty()) return options.member;
  if (options.rank.has_value()) return absl::StrCat("rank-", *options.rank);
  // Containers may have one host name, and the same numbers of processes.
  static const uint64_t of_this_process = RandomBits().low;
  return absl::StrCat(HostName(), "-", getpid(), "-",
                      absl::Hex(of_this_process & 0xffffffff, absl::kZeroPad8));
}

absl::Status Check(const ProcessGroupOptions& options) {
  if (options.group.empty()) return absl::InvalidArgumentError("the group has no name");
  if (options.world_size < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("group ", options.group, ": world_size ", options.world_size, " is below 1"));
  }
  if (options.min_world_size < 0 || options.min_world_size > options.world_size) {
    return absl::InvalidArgumentError(absl::StrCat("group ", options.group, ": min_world_size ",
                                                   options.min_world_size, " is not in 0..",
                                                   options.world_size));
  }
  if (options.rank.has_value() && (*options.rank < 0 || *options.rank >= options.world_size)) {
    return absl::InvalidArgumentError(absl::StrCat("group ", options.group, ": rank ",
                                                   *options.rank, " is not in 0..",
                                                   options.world_size - 1));
  }
  return absl::OkStatus();
}

int64_t NewIncarnation() { return static_cast<int64_t>(RandomBits().low >> 1) | 1; }

struct Joining {
  ProcessGroupOptions options;  // with defaults for unset fields
  std::shared_ptr<GroupSession> session;
  v1::JoinRequest request;
  CallSpec spec;
};

absl::StatusOr<std::unique_ptr<Joining>> Prepare(const ProcessGroupOptions& options) {
  COHORT_RETURN_IF_ERROR(Check(options));
  std::shared_ptr<Connection> connection = options.shared_connection;
  if (connection == nullptr) {
    COHORT_ASSIGN_OR_RETURN(connection, Connection::Create(options.connection));
  }
  ConnectionImpl::Of(connection)->framed_channel().ExpectCalls();
  auto joining = std::make_unique<Joining>();
  joining->options = options;
  if (options.incarnation == 0) joining->options.incarnation = NewIncarnation();
  joining->session = std::make_shared<GroupSession>(
      ConnectionImpl::Of(connection), options.group, MemberName(options), options.on_event,
      options.progress_timeout > absl::ZeroDuration() ? options.progress_timeout
                                                      : absl::InfiniteDuration(),
      options.report_tensors);
  joining->request =
      MakeJoinRequest(joining->options, joining->session->member(), joining->options.incarnation);
  joining->spec = JoinSpec(joining->options, options.join_timeout);
  return joining;
}

// Ends a cancelled join with the reason, after this member has left. The coordinator gives up a
// membership whose join was cancelled, but the group may have become complete meanwhile. Without
// this the others would wait until the lease ends.
class GivingUp : public std::enable_shared_from_this<GivingUp> {
 public:
  // `done` runs once, in a call of this or on a thread of the library.
  GivingUp(std::shared_ptr<Joining> joining, std::function<void()> done)
      : joining_(std::move(joining)), done_(std::move(done)) {}

  // `status` and `response` are the answer to the join.
  void Start(CallMode mode, const absl::Status& status, const v1::JoinResponse& response) {
    if (status.ok()) return LeaveAfter(mode, status, response);
    CallSpec spec;
    spec.what = "get_group";
    spec.deadline = Clock::Steady().Now() + kGiveUp;
    spec.read = spec.any_generation = true;
    joining_->session->Run(mode, method::kGetGroup, v1::GetGroupRequest(), spec,
                           [self = shared_from_this(), mode](const absl::Status& asked,
                                                             v1::GetGroupResponse& group) {
                             if (asked.ok() && self->HasJoined(group.group())) {
                               self->AskAgain(mode);
                             } else {
                               self->done_();
                             }
                           });
  }

 private:
  bool HasJoined(const v1::Group& group) const {
    if (group.state() != v1::GROUP_STATE_ACTIVE) return false;
    return std::any_of(
        group.members().begin(), group.members().end(), [this](const v1::Member& member) {
          return member.name() == joining_->session->member() &&
                 member.incarnation_hash() == IncarnationHash(joining_->options.incarnation);
        });
  }

  // Asks for the lost answer.
  void AskAgain(CallMode mode) {
    CallSpec spec = JoinSpec(joining_->options, kGiveUp);
    spec.cancellation = nullptr;
    spec.on_waiting = nullptr;
    joining_->session->Run(mode, method::kJoin, joining_->request, spec,
                           [self = shared_from_this(), mode](const absl::Status& status,
                                                             v1::JoinResponse& response) {
                             self->LeaveAfter(mode, status, response);
                           });
  }

  void LeaveAfter(CallMode mode, const absl::Status& status, const v1::JoinResponse& response) {
    GroupSession& session = *joining_->session;
    if (!ReadJoin(status, response, session).ok()) return done_();
    v1::LeaveRequest request;
    request.set_reason(
        std::string(joining_->options.cancellation->reason().message().substr(0, 512)));
    CallSpec spec;
    spec.what = "leave";
    spec.deadline = Clock::Steady().Now() + kGiveUp;
    spec.in_any_state = true;
    session.Run(mode, method::kLeave, std::move(request), spec,
                [self = shared_from_this()](const absl::Status&, v1::LeaveResponse&) {
                  self->joining_->session->End(self->joining_->options.cancellation->reason());
                  self->done_();
                });
  }

  const std::shared_ptr<Joining> joining_;
  const std::function<void()> done_;
};

bool IsCancelled(const ProcessGroupOptions& options) {
  return options.cancellation != nullptr && !options.cancellation->reason().ok();
}

}  // namespace

v1::JoinRequest MakeJoinRequest(const ProcessGroupOptions& options, const std::string& member,
                                int64_t incarnation) {
  v1::JoinRequest request;
  request.set_member(member);
  request.set_incarnation(incarnation);
  if (options.rank.has_value()) request.set_rank(*options.rank);
  request.set_host(options.host.empty() ? HostName() : options.host);
  for (const std::string& address : options.addresses) request.add_addresses(address);
  request.mutable_labels()->insert(options.labels.begin(), options.labels.end());

  v1::GroupSpec* spec = request.mutable_spec();
  spec->set_min_members(options.min_world_size != 0 ? options.min_world_size : options.world_size);
  spec->set_max_members(options.world_size);
  spec->set_fate(options.share_fate ? v1::FATE_SHARE : v1::FATE_REPORT);
  ToProto(options.lease, spec->mutable_lease());
  if (options.attached_lease > absl::ZeroDuration()) {
    ToProto(options.attached_lease, spec->mutable_attached_lease());
  }
  ToProto(options.disconnect_grace, spec->mutable_disconnect_grace());
  ToProto(options.data_expiration, spec->mutable_data_expiration());
  if (options.progress_timeout > absl::ZeroDuration()) {
    ToProto(options.progress_timeout, spec->mutable_progress_timeout());
  }
  ToProto(options.join_window, spec->mutable_join_window());
  spec->set_parameters_digest(options.parameters_digest);
  return request;
}

CallSpec JoinSpec(const ProcessGroupOptions& options, absl::Duration timeout) {
  CallSpec spec;
  spec.what = "join";
  spec.deadline =
      Clock::Steady().Now() + (timeout > absl::ZeroDuration() ? timeout : options.join_timeout);
  spec.in_any_state = true;
  spec.any_generation = true;
  spec.on_waiting = &options.on_waiting;
  spec.cancellation = options.cancellation;
  return spec;
}

absl::Status ReadJoin(const absl::Status& status, const v1::JoinResponse& response,
                      GroupSession& session) {
  COHORT_RETURN_IF_ERROR(status);
  if (response.outcome() != v1::JOIN_OUTCOME_JOINED) {
    return TimedOut(session.group(), response.generation(), "join", response.missing());
  }
  Membership membership;
  membership.generation = response.generation();
  membership.rank = response.rank();
  membership.world_size = response.world_size();
  membership.session = response.session();
  membership.revision = response.revision();
  if (const absl::Duration lease = FromProto(response.lease()); lease > absl::ZeroDuration()) {
    membership.lease = lease;
  }
  if (response.max_inline_bytes() > 0) membership.max_inline_bytes = response.max_inline_bytes();
  session.Adopt(std::move(membership));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> ProcessGroup::Create(
    const ProcessGroupOptions& options) {
  COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<Joining> joining, Prepare(options));
  v1::JoinResponse response;
  const absl::Status status =
      joining->session->Call(method::kJoin, joining->request, &response, joining->spec);
  if (IsCancelled(options)) {
    std::make_shared<GivingUp>(joining, [] {})->Start(CallMode::kBlocking, status, response);
    return options.cancellation->reason();
  }
  COHORT_RETURN_IF_ERROR(ReadJoin(status, response, *joining->session));
  return std::unique_ptr<ProcessGroup>(
      std::make_unique<ProcessGroupImpl>(std::move(joining->options), joining->session));
}

void ProcessGroup::CreateAsync(
    const ProcessGroupOptions& options,
    std::function<void(absl::StatusOr<std::unique_ptr<ProcessGroup>>)> done) {
  absl::StatusOr<std::unique_ptr<Joining>> prepared = Prepare(options);
  if (!prepared.ok()) {
    // Without a connection this is the only thread.
    if (options.shared_connection == nullptr) {
      done(prepared.status());
    } else {
      ConnectionImpl::Of(options.shared_connection)
          ->timers()
          .Post([done = std::move(done), status = prepared.status()] { done(status); });
    }
    return;
  }
  const std::shared_ptr<Joining> joining = *std::move(prepared);
  joining->spec.on_waiting = nullptr;
  joining->session->CallAsync(
      method::kJoin, joining->request, joining->spec,
      [joining, done = std::move(done)](const absl::Status& answer, v1::JoinResponse& response) {
        const auto end = [joining, done](const absl::Status& status) {
          joining->session->connection()->timers().Post([joining, status, done] {
            if (!status.ok()) {
              done(status);
            } else {
              done(std::unique_ptr<ProcessGroup>(std::make_unique<ProcessGroupImpl>(
                  std::move(joining->options), joining->session)));
            }
          });
        };
        if (IsCancelled(joining->options)) {
          std::make_shared<GivingUp>(joining, [joining, end] {
            end(joining->options.cancellation->reason());
          })->Start(CallMode::kAsync, answer, response);
        } else {
          end(ReadJoin(answer, response, *joining->session));
        }
      });
}

void ProcessGroupImpl::RunRejoin(CallMode mode, const AsyncOptions& options, StatusDone done) {
  CallSpec spec = JoinSpec(*options_, options.timeout);
  if (options.cancellation != nullptr) spec.cancellation = options.cancellation;
  if (mode == CallMode::kAsync) spec.on_waiting = nullptr;

  // A surviving member keeps its membership by its session, even if its rank has changed.
  v1::JoinRequest request = MakeJoinRequest(*options_, session_->member(), *incarnation_);
  if (options_->rank != session_->position().rank) request.clear_rank();
  session_->Run(
      mode, method::kJoin, std::move(request), spec,
      [mode, options = options_, session = session_, incarnation = incarnation_, spec,
       done = std::move(done)](absl::Status status, v1::JoinResponse& response) mutable {
        if (!absl::IsNotFound(status) && !absl::IsAborted(status)) {
          return done(ReadJoin(status, response, *session));
        }
        // The session is gone: this member was lost, or the coordinator lost its state. It joins as
        // a new incarnation.
        *incarnation = NewIncarnation();
        spec.new_life = true;
        session->Run(mode, method::kJoin,
                     MakeJoinRequest(*options, session->member(), *incarnation), spec,
                     [session, done](const absl::Status& second, v1::JoinResponse& answer) {
                       done(ReadJoin(second, answer, *session));
                     });
      });
}

absl::Status ProcessGroupImpl::Rejoin(absl::Duration timeout) {
  return ResultOf<absl::Status>(
      [&](auto done) { RunRejoin(CallMode::kBlocking, {timeout, nullptr}, done); });
}

void ProcessGroupImpl::Rejoin(const AsyncOptions& options, StatusDone done) {
  RunRejoin(CallMode::kAsync, options, std::move(done));
}

}  // namespace cohort::client
