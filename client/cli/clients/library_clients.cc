#include <utility>

#include "client/cli/clients/clients.h"

namespace cohort::cli {
namespace {

class LibraryClients : public Clients {
 public:
  absl::StatusOr<std::shared_ptr<client::Connection>> Connect(
      const client::ConnectionOptions& options) override {
    return client::Connection::Create(options);
  }
  std::unique_ptr<client::AdminClient> Admin(std::shared_ptr<client::Connection> connection,
                                             absl::Duration timeout) override {
    return client::AdminClient::Create(std::move(connection), timeout);
  }
  std::unique_ptr<client::StoreClient> Store(std::shared_ptr<client::Connection> connection,
                                             absl::string_view group) override {
    return client::StoreClient::Create(std::move(connection), group);
  }
  absl::StatusOr<std::unique_ptr<client::ProcessGroup>> Join(
      const client::ProcessGroupOptions& options) override {
    return client::ProcessGroup::Create(options);
  }
  std::unique_ptr<client::WorkerClient> Worker(const std::string& address,
                                               absl::Duration timeout) override {
    return client::WorkerClient::Create(address, timeout);
  }
  client::ErrorInfo GetErrorInfo(const absl::Status& status) override {
    return client::GetErrorInfo(status);
  }
};

}  // namespace

std::unique_ptr<Clients> MakeLibraryClients() { return std::make_unique<LibraryClients>(); }

}  // namespace cohort::cli
