// The client library's entry points that the tool uses; tests replace them.
#ifndef COHORT_CLIENT_CLI_CLIENTS_CLIENTS_H_
#define COHORT_CLIENT_CLI_CLIENTS_CLIENTS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/collective/remote/worker_client.h"
#include "client/rendezvous/admin_client.h"
#include "client/rendezvous/call/connection.h"
#include "client/rendezvous/process_group/process_group.h"
#include "client/rendezvous/report/report.h"
#include "client/rendezvous/store_client.h"

namespace cohort::cli {

// Each method is the static function of the same meaning in client/rendezvous and
// client/collective.
class Clients {
 public:
  virtual ~Clients() = default;

  virtual absl::StatusOr<std::shared_ptr<client::Connection>> Connect(
      const client::ConnectionOptions& options) = 0;
  virtual std::unique_ptr<client::AdminClient> Admin(std::shared_ptr<client::Connection> connection,
                                                     absl::Duration timeout) = 0;
  virtual std::unique_ptr<client::StoreClient> Store(std::shared_ptr<client::Connection> connection,
                                                     absl::string_view group) = 0;
  virtual absl::StatusOr<std::unique_ptr<client::ProcessGroup>> Join(
      const client::ProcessGroupOptions& options) = 0;
  virtual std::unique_ptr<client::WorkerClient> Worker(const std::string& address,
                                                       absl::Duration timeout) = 0;
  virtual client::ErrorInfo GetErrorInfo(const absl::Status& status) = 0;
};

// The clients of the client library.
std::unique_ptr<Clients> MakeLibraryClients();

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_CLIENTS_CLIENTS_H_
