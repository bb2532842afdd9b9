#include "tests/benchmark/rendezvous/cohort_implementation.h"

#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/rendezvous/call/connection.h"
#include "client/rendezvous/store_client.h"
#include "tests/benchmark/rendezvous/benchmark_group.h"
#include "tests/benchmark/rendezvous/timing.h"

namespace cohort::benchmark {
namespace {

constexpr int kHandoffsPerRun = 20;

absl::StatusOr<Sample> Handoff(BenchmarkGroup& group, const std::string& object) {
  return TimeHandoffs(
      kHandoffsPerRun,
      [&] {
        absl::StatusOr<std::string> received = group.member(1).Receive(0);
        if (received.ok() && *received != object) return absl::InternalError("another object came");
        return received.status();
      },
      [&] { return group.member(0).Send(object, 1); });
}

// While it lives, connections that this process makes have the certificate in `folder`.
class ClientCertificate {
 public:
  explicit ClientCertificate(const std::string& folder) {
    if (folder.empty()) return;
    for (const auto& [variable, file] : kFiles) {
      setenv(variable, absl::StrCat(folder, "/", file).c_str(), 1);
    }
  }
  ~ClientCertificate() {
    for (const auto& [variable, file] : kFiles) unsetenv(variable);
  }
  ClientCertificate(const ClientCertificate&) = delete;
  ClientCertificate& operator=(const ClientCertificate&) = delete;

 private:
  static constexpr std::pair<const char*, const char*> kFiles[] = {
      {"COHORT_TLS_CA", "ca.crt"},
      {"COHORT_TLS_CERTIFICATE", "tls.crt"},
      {"COHORT_TLS_KEY", "tls.key"}};
};

class Cohort final : public Implementation {
 public:
  // `client_certificate`: the folder of its files; empty: plain text.
  Cohort(CoordinatorProcess coordinator, std::string journal, std::string client_certificate)
      : coordinator_(std::move(coordinator)),
        journal_(std::move(journal)),
        client_certificate_(std::move(client_certificate)) {}

  std::string name() const override {
    return client_certificate_.empty() ? "cohort" : "cohort-mutual-tls";
  }
  std::string journal() const override { return journal_; }

  absl::StatusOr<Operation> Prepare(const Config& config) override {
    const ClientCertificate certificate(client_certificate_);
    if (config.kind == OperationKind::kJoin) {
      return Operation([this, config] { return TimeJoin(config); });
    }
    if (config.kind == OperationKind::kPut) return PreparePuts(config);

    COHORT_ASSIGN_OR_RETURN(
        std::shared_ptr<BenchmarkGroup> group,
        BenchmarkGroup::Join(coordinator_.address, config.members, ConnectionCount(config)));
    const std::string object(config.bytes, 'x');
    switch (config.kind) {
      case OperationKind::kBarrier:
        return Operation([group] { return group->TimeBarrier(); });
      case OperationKind::kAllGather:
        return Operation([group, object] { return group->TimeAllGather(object); });
      case OperationKind::kHandoff:
        return Operation([group, object] { return Handoff(*group, object); });
      default:
        return absl::UnimplementedError("not an operation of groups");
    }
  }

 private:
  absl::StatusOr<Sample> TimeJoin(const Config& config) {
    const ClientCertificate certificate(client_certificate_);
    absl::Duration joining;
    COHORT_RETURN_IF_ERROR(BenchmarkGroup::Join(coordinator_.address, config.members,
                                                ConnectionCount(config), &joining)
                               .status());
    Sample sample;
    sample.latencies.push_back(joining);
    return sample;
  }

  absl::StatusOr<Operation> PreparePuts(const Config& config) {
    auto clients = std::make_shared<std::vector<std::unique_ptr<client::StoreClient>>>();
    client::ConnectionOptions options;
    options.address = coordinator_.address;
    for (int i = 0; i < ConnectionCount(config); ++i) {
      COHORT_ASSIGN_OR_RETURN(auto connection, client::Connection::Create(options));
      clients->push_back(client::StoreClient::Create(std::move(connection), ""));
    }
    const std::string value(config.bytes, 'x');
    return Operation([clients, config, value] {
      return TimeCallers(config.members, absl::Milliseconds(500), [&](int caller) {
        return (*clients)[caller % clients->size()]
            ->Put(absl::StrCat("benchmark/caller-", caller), value)
            .status();
      });
    });
  }

  const CoordinatorProcess coordinator_;
  const std::string journal_;
  const std::string client_certificate_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Implementation>> StartCohort(const CoordinatorOptions& options,
                                                            const std::string& certificates) {
  CoordinatorOptions with_tls = options;
  if (!certificates.empty()) {
    const std::string folder = certificates + "/coordinator/";
    for (const auto& [flag, file] :
         {std::pair("--tls-certificate", "tls.crt"), std::pair("--tls-key", "tls.key"),
          std::pair("--tls-client-ca", "ca.crt")}) {
      with_tls.more_arguments.push_back(flag);
      with_tls.more_arguments.push_back(folder + file);
    }
  }
  COHORT_ASSIGN_OR_RETURN(CoordinatorProcess coordinator, StartCoordinator(with_tls));
  return std::make_unique<Cohort>(std::move(coordinator), options.journal,
                                  certificates.empty() ? "" : certificates + "/rank");
}

}  // namespace cohort::benchmark
