// A coordinator of the test's making: records what the tool asked, answers what the test put there.
#ifndef COHORT_CLIENT_CLI_TESTING_FAKE_CLIENTS_H_
#define COHORT_CLIENT_CLI_TESTING_FAKE_CLIENTS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/threads/mutex.h"
#include "client/cli/clients/clients.h"

namespace cohort::cli {

// The statistics of a coordinator that knows all members.
inline client::ServerStats LongUp() {
  client::ServerStats stats;
  stats.uptime = absl::Hours(1);
  return stats;
}

// The report of a coordinator that covers operations on tensors.
inline client::WhoIsMissingReport OfThisVersion() {
  client::WhoIsMissingReport report;
  report.covers_tensors = true;
  return report;
}

class FakeClients : public Clients {
 public:
  // The requests, in order, such as "Evict(g, rank-3, dead)".
  std::vector<std::string> calls;
  client::ConnectionOptions connection;
  client::ProcessGroupOptions join_options;
  absl::Duration admin_timeout;

  // When not OK, the answer to every call but Leave.
  absl::Status error;
  // The answers to the next calls of GetGroup, WatchGroup, Range and Watch, one each. An OK entry,
  // or the end of the list, leaves the usual answer. Streams bring their events before the answer.
  std::deque<absl::Status> next;
  // When not OK, the answer to joins.
  absl::Status join_error;
  client::ErrorInfo error_info;
  // Reported while joins and rounds wait, if members are missing in them.
  client::MissingReport waiting_to_join;
  std::function<void()> on_join;
  client::MissingReport waiting;

  // Reported by these methods before they answer.
  std::map<std::string, client::AwayReport> away;

  std::vector<client::GroupInfo> groups;
  std::vector<client::GroupEvent> group_events;
  client::WhoIsMissingReport who_is_missing = OfThisVersion();
  // By group, where the answer differs.
  std::map<std::string, client::WhoIsMissingReport> who_is_missing_of;
  absl::Status who_is_missing_error;
  std::vector<client::ParkedCall> parked;
  std::map<std::string, int64_t> limits;
  client::DrainResult drain;
  client::ServerStats stats = LongUp();
  absl::Status stats_error;
  client::AccessAnswer access;

  client::RoundReport round;
  std::vector<std::string> objects;
  client::ReceivedObject received;

  client::PutResult put;
  client::GetResult get;
  std::vector<client::RangeResult> pages;
  int64_t number = 0;  // of Delete, Add, Append, QueuePush
  std::optional<client::QueueItem> item;
  std::vector<client::KeyEvent> key_events;

  client::WorkerInfo worker;
  std::vector<client::FlightRecord> flights;
  // The records of other workers, by address; or the error of asking them.
  std::map<std::string, absl::StatusOr<std::vector<client::FlightRecord>>> flights_at;
  // Several threads ask workers; it guards `calls` meanwhile.
  Mutex mutex;

  absl::StatusOr<std::shared_ptr<client::Connection>> Connect(
      const client::ConnectionOptions& options) override;
  std::unique_ptr<client::AdminClient> Admin(std::shared_ptr<client::Connection> connection,
                                             absl::Duration timeout) override;
  std::unique_ptr<client::StoreClient> Store(std::shared_ptr<client::Connection> connection,
                                             absl::string_view group) override;
  absl::StatusOr<std::unique_ptr<client::ProcessGroup>> Join(
      const client::ProcessGroupOptions& options) override;
  std::unique_ptr<client::WorkerClient> Worker(const std::string& address,
                                               absl::Duration timeout) override;
  client::ErrorInfo GetErrorInfo(const absl::Status& status) override;
};

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_TESTING_FAKE_CLIENTS_H_
