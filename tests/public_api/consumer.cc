// A program outside of this tree: it sees only the public headers and links only the public
// targets.
#include "client/rendezvous/admin_client.h"
#include "client/rendezvous/call/connection.h"
#include "client/rendezvous/process_group/object_list.h"
#include "client/rendezvous/process_group/process_group.h"
#include "client/rendezvous/report/report.h"
#include "client/rendezvous/store_client.h"

int main() {
  cohort::client::ConnectionOptions options;
  options.address = "no port";
  if (cohort::client::Connection::Create(options).ok()) return 1;
  options.address = "127.0.0.1:1";
  auto connection = cohort::client::Connection::Create(options);
  if (!connection.ok()) return 2;

  const auto store = cohort::client::StoreClient::Create(*connection, "");
  const auto admin = cohort::client::AdminClient::Create(*connection, absl::Milliseconds(50));
  if (admin->Stats().ok()) return 3;
  if (store->Add("counter", 1, absl::Milliseconds(50)).ok()) return 4;

  cohort::client::ProcessGroupOptions group;
  group.shared_connection = *connection;
  group.group = "g";
  group.rank = 0;
  group.world_size = 1;
  group.join_timeout = absl::Milliseconds(50);
  const auto joined = cohort::client::ProcessGroup::Create(group);
  if (joined.ok()) return 5;
  return cohort::client::GetErrorInfo(joined.status()).cause.kind ==
                 cohort::client::CauseKind::kNone
             ? 0
             : 6;
}
