// Prints docs/methods.md: every method of the coordinator and of workers with the least role that
// it needs, from the descriptors and from what the servers themselves use.
//
//   bazel run //docs:print_methods > docs/methods.md
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/access/role.h"
#include "cohort/v1/admin.pb.h"
#include "cohort/v1/group.pb.h"
#include "cohort/v1/messaging.pb.h"
#include "cohort/v1/store.pb.h"
#include "cohort/v1/unique_id.pb.h"
#include "cohort/v1/worker.pb.h"
#include "coordinator/service/dispatch/method_table.h"
#include "coordinator/service/framed_rpc/framed_rpc_handler.h"
#include "coordinator/service/tcpstore/tcpstore_calls.h"
#include "coordinator/service/tcpstore/tcpstore_request.h"
#include "google/protobuf/descriptor.h"
#include "torchft/lighthouse.pb.h"
#include "worker/daemon/access/caller.h"

namespace cohort::coordinator {
namespace {

using google::protobuf::FileDescriptor;
using google::protobuf::ServiceDescriptor;
using tcpstore::Operation;

constexpr char kIntroduction[] =
    "# Methods and roles\n\n"
    "`bazel run //docs:print_methods > docs/methods.md` writes this page; `docs/methods_test.sh` "
    "compares them. [security.md](security.md)\n"
    "explains roles and tenants. A method needs the least role of its row, in the tenant of its "
    "request. Each role may do what the roles\n"
    "before it may: none, observer, member, operator.\n";

struct Row {
  std::string method;
  std::string least_role;
  std::string where;
  std::string protocols;
};

void Print(const std::string& title, const std::vector<Row>& rows) {
  std::printf("\n## %s\n\n| method | least role | where | protocols |\n|---|---|---|---|\n",
              title.c_str());
  for (const Row& row : rows) {
    std::printf("| %s | %s | %s | %s |\n", row.method.c_str(), row.least_role.c_str(),
                row.where.c_str(), row.protocols.c_str());
  }
}

Row RowOf(const MethodInfo& info) {
  // The other methods without a call of the state machine concern the whole coordinator.
  const bool has_tenant = info.decode != nullptr || info.method == Method::kUpload;
  Row row{info.name, RoleName(info.role), has_tenant ? "its tenant" : "all tenants",
          IsFramedMethod(info.method) ? "gRPC, framed RPC" : "gRPC"};
  if (info.method == Method::kCheckAccess) {
    row.where = "any tenant; for other clients operator in all tenants";
  }
  if (info.method == Method::kCloseGroup) {
    row.least_role = absl::StrCat("member of the group, or ", RoleName(Role::kOperator));
  }
  return row;
}

void PrintServices(const FileDescriptor* file) {
  for (int i = 0; i < file->service_count(); ++i) {
    const ServiceDescriptor& service = *file->service(i);
    std::vector<Row> rows;
    for (int j = 0; j < service.method_count(); ++j) {
      // A method without a row in the table ends the program.
      rows.push_back(RowOf(GetMethod(
          FindMethod(absl::StrCat(service.full_name(), "/", service.method(j)->name())).value())));
    }
    Print(service.full_name(), rows);
  }
}

void PrintTcpStore() {
  std::vector<Row> rows;
  for (int i = 0; i <= static_cast<int>(Operation::kBarrier); ++i) {
    const auto operation = static_cast<Operation>(i);
    Row row{tcpstore::OperationName(operation), RoleName(Role::kNone), "", "TCPStore"};
    if (tcpstore::HasCall(operation) || operation == Operation::kBarrier) {
      const Method method =
          operation == Operation::kBarrier ? Method::kBarrier : tcpstore::MethodOf(operation);
      row.least_role = RoleName(GetMethod(method).role);
      row.where = "`tcpstore-PORT`";
    }
    rows.push_back(std::move(row));
  }
  Print("PyTorch's TCPStore", rows);
}

void PrintTorchft() {
  const ServiceDescriptor& service =
      *torchft::LighthouseQuorumRequest::descriptor()->file()->service(0);
  std::vector<Row> rows;
  for (int i = 0; i < service.method_count(); ++i) {
    // The service has its calls admitted as Join and KeepAlive.
    rows.push_back({service.method(i)->name(), RoleName(GetMethod(Method::kJoin).role),
                    "`torchft-PORT`", "gRPC"});
  }
  Print(service.full_name(), rows);
}

void PrintWorker() {
  const ServiceDescriptor& service =
      *v1::JoinGroupRequest::descriptor()->file()->FindServiceByName("WorkerService");
  std::vector<Row> rows;
  for (int i = 0; i < service.method_count(); ++i) {
    const std::string& name = service.method(i)->name();
    rows.push_back({name, RoleName(worker::RoleOfMethod(name)), "the tenants of its groups",
                    name == "RunCollective" ? "gRPC, framed RPC" : "gRPC"});
  }
  Print(absl::StrCat(service.full_name(), ", of a worker"), rows);
}

void PrintOthers() {
  const std::string none = RoleName(Role::kNone);
  Print("gRPC's own services",
        {{"grpc.health.v1.Health: Check, Watch", none, "", "gRPC"},
         {"grpc.reflection.v1alpha.ServerReflection, with `--reflection`", none, "", "gRPC"}});
}

void PrintAll() {
  std::fputs(kIntroduction, stdout);
  for (const FileDescriptor* const file :
       {v1::JoinRequest::descriptor()->file(), v1::SendRequest::descriptor()->file(),
        v1::PutRequest::descriptor()->file(), v1::PublishRequest::descriptor()->file(),
        v1::EvictRequest::descriptor()->file()}) {
    PrintServices(file);
  }
  PrintTcpStore();
  PrintTorchft();
  PrintWorker();
  PrintOthers();
}

}  // namespace
}  // namespace cohort::coordinator

int main() {
  cohort::coordinator::PrintAll();
  return 0;
}
