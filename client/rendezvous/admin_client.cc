#include "client/rendezvous/admin_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "client/rendezvous/call/connection/stubs.h"
#include "client/rendezvous/call/stream_reader.h"
#include "client/rendezvous/call/unary_call.h"
#include "client/rendezvous/report/report_codec.h"

namespace cohort::client {
namespace {

constexpr int kGroupsPerPage = 1000;
// The time between two requests whether the members have answered.
constexpr absl::Duration kAnswerPoll = absl::Milliseconds(50);

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
    const auto open = [&](grpc::ClientContext* context, int64_t from) {
      v1::WatchGroupRequest request;
      FillScope(group, request.mutable_scope());
      request.set_from_revision(from);
      return connection_->stubs().Get<v1::GroupService>().WatchGroup(context, request);
    };
    const auto take = [&](const v1::WatchGroupResponse& response) {
      for (const v1::GroupEvent& event : response.events()) {
        if (!on_event(FromProto(event))) return false;
      }
      return true;
    };
    return ReadChanges<v1::WatchGroupResponse>(*connection_, absl::StrCat("watch_group ", group),
                                               from_revision, timeout, interruption_, open, take);
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
    return stats;
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
