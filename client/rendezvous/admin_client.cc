#include "client/rendezvous/admin_client.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/threads/mutex.h"
#include "client/rendezvous/call/cancellation.h"
#include "client/rendezvous/call/change_stream.h"
#include "client/rendezvous/call/change_watcher.h"
#include "client/rendezvous/call/connection/stubs.h"
#include "client/rendezvous/call/unary_call.h"
#include "client/rendezvous/report/report_codec.h"

namespace cohort::client {
namespace {

constexpr int kGroupsPerPage = 1000;
// The time between two requests whether the members have answered.
constexpr absl::Duration kAnswerPoll = absl::Milliseconds(50);

// Events of a group, for ChangeStream.
struct GroupChanges {
  using Event = GroupEvent;
  using Request = v1::WatchGroupRequest;
  using Response = v1::WatchGroupResponse;
  static void Open(Stubs& stubs, grpc::ClientContext* context, const Request* request,
                   grpc::ClientReadReactor<Response>* reactor) {
    stubs.Get<v1::GroupService>().async()->WatchGroup(context, request, reactor);
  }
  static std::vector<Event> Read(const Response& response) {
    std::vector<Event> events;
    events.reserve(response.events_size());
    for (const v1::GroupEvent& event : response.events()) events.push_back(FromProto(event));
    return events;
  }
};

// The group when a watch began.
struct FirstInfo {
  Mutex mutex;
  std::optional<GroupInfo> info ABSL_GUARDED_BY(mutex);
};

class GroupWatcherImpl final : public ChangeWatcher<GroupChanges, GroupWatcher> {
 public:
  GroupWatcherImpl(std::shared_ptr<Stream> stream, std::shared_ptr<FirstInfo> first)
      : ChangeWatcher(std::move(stream)), first_(std::move(first)) {}

  std::optional<GroupInfo> info() const override {
    MutexLock lock(&first_->mutex);
    return first_->info;
  }

 private:
  const std::shared_ptr<FirstInfo> first_;
};

// Asks for a group, keeps the answer, and returns its revision.
void FindGroup(const std::shared_ptr<ConnectionImpl>& connection, const v1::Scope& scope,
               Instant deadline, const std::shared_ptr<Cancellation>& cancellation,
               const std::shared_ptr<FirstInfo>& first,
               const std::function<void(absl::StatusOr<int64_t>)>& done) {
  v1::GetGroupRequest request;
  *request.mutable_scope() = scope;
  auto on_cancel = std::make_shared<std::optional<Cancellation::Listener>>();
  auto call = std::make_shared<AsyncCall<decltype(method::kGetGroup)>>(
      connection, method::kGetGroup, CallLimits{"get_group", deadline}, std::move(request),
      [on_cancel, cancellation, first, done](absl::Status status, v1::GetGroupResponse& response) {
        on_cancel->reset();
        if (!status.ok()) return done(std::move(status));
        GroupInfo info = FromProto(response);
        const int64_t revision = info.revision;
        {
          MutexLock lock(&first->mutex);
          first->info = std::move(info);
        }
        done(revision);
      });
  on_cancel->emplace(*cancellation, [call](const absl::Status& /*reason*/) { call->Cancel(); });
  call->Start();
}

class AdminClientImpl final : public AdminClient {
 public:
  AdminClientImpl(std::shared_ptr<ConnectionImpl> connection, absl::Duration timeout)
      : connection_(std::move(connection)), timeout_(timeout) {}

  absl::StatusOr<std::vector<GroupInfo>> ListGroups() override {
    std::vector<GroupInfo> groups;
    std::string page_token;
    do {
      v1::ListGroupsRequest request;
      FillScope("", request.mutable_scope());
      request.set_page_size(kGroupsPerPage);
      request.set_page_token(page_token);
      v1::ListGroupsResponse response;
      COHORT_RETURN_IF_ERROR(Call(method::kListGroups, request, &response));
      for (const v1::Group& group : response.groups()) groups.push_back(FromProto(group));
      page_token = response.next_page_token();
    } while (!page_token.empty());
    return groups;
  }

  absl::StatusOr<GroupInfo> GetGroup(absl::string_view group) override {
    v1::GetGroupRequest request;
    FillScope(group, request.mutable_scope());
    v1::GetGroupResponse response;
    COHORT_RETURN_IF_ERROR(Call(method::kGetGroup, request, &response));
    return FromProto(response);
  }

  absl::Status WatchGroup(absl::string_view group, int64_t from_revision,
                          const std::function<bool(const GroupEvent&)>& on_event,
                          absl::Duration timeout) override {
    const std::unique_ptr<GroupWatcher> watcher =
        NewGroupWatcher(group, UntilTimeout(from_revision, timeout));
    return ForEachEvent(*watcher, on_event);
  }

  std::unique_ptr<GroupWatcher> NewGroupWatcher(absl::string_view group,
                                                const WatcherOptions& options) override {
    v1::WatchGroupRequest request;
    FillScope(group, request.mutable_scope());
    auto first = std::make_shared<FirstInfo>();
    auto find = [connection = connection_, scope = request.scope(), first](
                    Instant deadline, const std::shared_ptr<Cancellation>& cancellation,
                    const std::function<void(absl::StatusOr<int64_t>)>& done) {
      FindGroup(connection, scope, deadline, cancellation, first, done);
    };
    return std::make_unique<GroupWatcherImpl>(std::make_shared<ChangeStream<GroupChanges>>(
                                                  connection_, absl::StrCat("watch_group ", group),
                                                  std::move(request), options, std::move(find)),
                                              std::move(first));
  }

  absl::StatusOr<WhoIsMissingReport> WhoIsMissing(absl::string_view group,
                                                  absl::Duration answer_timeout) override {
    const Instant deadline = Clock::Steady().Now() + std::min(answer_timeout, timeout_);
    v1::WhoIsMissingRequest request;
    FillScope(group, request.mutable_scope());
    request.set_ask(answer_timeout > absl::ZeroDuration());
    while (true) {
      v1::WhoIsMissingResponse response;
      COHORT_RETURN_IF_ERROR(Call(method::kWhoIsMissing, request, &response));
      const absl::Duration left = deadline - Clock::Steady().Now();
      if (response.unanswered().empty() || left <= absl::ZeroDuration()) return FromProto(response);
      request.set_ask(false);
      absl::SleepFor(std::min(left, kAnswerPoll));
    }
  }

  absl::StatusOr<std::vector<ParkedCall>> DumpWaits(absl::string_view group) override {
    v1::DumpWaitsRequest request;
    FillScope(group, request.mutable_scope());
    v1::DumpWaitsResponse response;
    COHORT_RETURN_IF_ERROR(Call(method::kDumpWaits, request, &response));
    std::vector<ParkedCall> calls;
    calls.reserve(response.calls_size());
    for (const v1::ParkedCall& call : response.calls()) calls.push_back(FromProto(call));
    return calls;
  }

  absl::StatusOr<std::map<std::string, int64_t>> Limits(
      const std::map<std::string, int64_t>& set) override {
    v1::LimitsRequest request;
    request.mutable_set()->insert(set.begin(), set.end());
    v1::LimitsResponse response;
    COHORT_RETURN_IF_ERROR(Call(method::kLimits, request, &response));
    return std::map<std::string, int64_t>(response.limits().begin(), response.limits().end());
  }

  absl::StatusOr<DrainResult> Drain(bool release_waiters, bool resume) override {
    v1::DrainRequest request;
    request.set_release_waiters(release_waiters);
    request.set_resume(resume);
    v1::DrainResponse response;
    COHORT_RETURN_IF_ERROR(Call(method::kDrain, request, &response));
    return DrainResult{response.released_count(), response.waiter_count(), response.group_count()};
  }

  absl::Status Evict(absl::string_view group, absl::string_view member,
                     absl::string_view reason) override {
    v1::EvictRequest request;
    FillScope(group, request.mutable_scope());
    request.mutable_scope()->set_operation_id(connection_->NewOperationId());
    request.set_member(std::string(member));
    request.set_reason(std::string(reason));
    v1::EvictResponse response;
    return Call(method::kEvict, request, &response);
  }

  absl::Status CloseGroup(absl::string_view group, absl::string_view reason) override {
    v1::CloseGroupRequest request;
    FillScope(group, request.mutable_scope());
    request.mutable_scope()->set_operation_id(connection_->NewOperationId());
    request.set_reason(std::string(reason));
    v1::CloseGroupResponse response;
    return Call(method::kCloseGroup, request, &response);
  }

  absl::StatusOr<ServerStats> Stats() override {
    v1::ServerStatsRequest request;
    v1::ServerStatsResponse response;
    COHORT_RETURN_IF_ERROR(Call(method::kServerStats, request, &response));
    ServerStats stats;
    stats.server_incarnation = response.server_incarnation();
    stats.uptime = FromProto(response.uptime());
    stats.group_count = response.group_count();
    stats.member_count = response.member_count();
    stats.waiter_count = response.waiter_count();
    stats.bytes_held = response.bytes_held();
    stats.calls_total = response.calls_total();
    stats.draining = response.draining();
    stats.journal = response.journal();
    stats.version = response.version();
    for (const v1::MemoryUse& use : response.memory()) {
      stats.memory.emplace_back(use.kind(), use.bytes());
    }
    stats.charged_bytes = response.charged_bytes();
    stats.max_bytes_held = response.max_bytes_held();
    for (const v1::TenantUse& use : response.tenants()) {
      stats.tenants.push_back({use.tenant(), use.bytes(), use.group_count(), use.member_count(),
                               use.waiter_count(), use.stream_count()});
    }
    stats.tenant_count = response.tenant_count();
    return stats;
  }

  absl::StatusOr<AccessAnswer> CheckAccess(absl::string_view method,
                                           const std::vector<std::string>& names) override {
    v1::CheckAccessRequest request;
    request.set_method(std::string(method));
    request.set_tenant(connection_->options().tenant);
    for (const std::string& name : names) request.add_names(name);
    v1::CheckAccessResponse response;
    COHORT_RETURN_IF_ERROR(Call(method::kCheckAccess, request, &response));
    return AccessAnswer{response.allowed(), response.method(), response.identity(),
                        response.tenant(),  response.needs(),  response.role()};
  }

 private:
  void FillScope(absl::string_view group, v1::Scope* scope) const {
    scope->set_tenant(connection_->options().tenant);
    scope->set_group(std::string(group));
  }
  template <typename M>
  absl::Status Call(const M& method, typename M::Request& request, typename M::Response* response) {
    CallLimits limits{method.name, Clock::Steady().Now() + timeout_};
    return CallMonitored(*connection_, method, std::move(limits), interruption_, request, response);
  }

  const std::shared_ptr<ConnectionImpl> connection_;
  const absl::Duration timeout_;
  Interruption interruption_;  // never raised: these calls end by their timeouts
};

}  // namespace

std::unique_ptr<AdminClient> AdminClient::Create(std::shared_ptr<Connection> connection,
                                                 absl::Duration timeout) {
  return std::make_unique<AdminClientImpl>(ConnectionImpl::Of(connection), timeout);
}

}  // namespace cohort::client
