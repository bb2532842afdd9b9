// `cohort can-i` and `cohort policy`: who may call what, by the coordinator's access policy or by a
// file.
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/access/access_policy.h"
#include "base/access/role.h"
#include "base/status_macros.h"
#include "client/cli/commands/commands.h"
#include "client/cli/output/table.h"

namespace cohort::cli {
namespace {

struct Flags {
  std::string method;
  std::string path;
  std::vector<std::string> names;
};

std::string Where(const std::string& tenant) {
  return tenant == kAllTenants ? "all tenants" : absl::StrCat("tenant ", tenant);
}

absl::StatusOr<ExitCode> CanI(Context& context, const Flags& flags) {
  COHORT_ASSIGN_OR_RETURN(auto admin, context.Admin());
  COHORT_ASSIGN_OR_RETURN(const client::AccessAnswer answer,
                          admin->CheckAccess(flags.method, flags.names));
  std::string text = "yes: the coordinator has no access policy\n";
  if (!answer.identity.empty()) {
    text = absl::StrCat(
        answer.allowed ? "yes: " : "no: ", answer.method, " needs the role ", answer.needs,
        ", and ", answer.identity,
        answer.role == RoleName(Role::kNone) ? " has no role" : absl::StrCat(" is ", answer.role),
        " in ", Where(answer.tenant), "\n");
  }
  const ExitCode printed = context.Print({{"allowed", answer.allowed},
                                          {"method", answer.method},
                                          {"identity", answer.identity},
                                          {"tenant", answer.tenant},
                                          {"needs", answer.needs},
                                          {"role", answer.role}},
                                         text);
  return answer.allowed ? printed : ExitCode::kConditionNotMet;
}

absl::StatusOr<ExitCode> CheckPolicy(Context& context, const Flags& flags) {
  COHORT_ASSIGN_OR_RETURN(const auto policy, AccessPolicy::Load(flags.path));
  if (flags.names.empty()) {
    return context.Print({{"path", flags.path}, {"usable", true}},
                         absl::StrCat(flags.path, " can be used\n"));
  }
  const Rights rights = policy->RightsOf(flags.names);
  Table table({"TENANT", "ROLE"});
  Json grants = Json::array();
  for (const Rights::Grant& grant : rights.grants) {
    table.AddRow({grant.tenant, RoleName(grant.role)});
    grants.push_back({{"tenant", grant.tenant}, {"role", RoleName(grant.role)}});
  }
  return context.Print({{"path", flags.path}, {"usable", true}, {"grants", grants}},
                       rights.grants.empty() ? absl::StrCat(flags.names.front(), " has no role\n")
                                             : table.ToString());
}

void AddNames(CLI::App& command, Flags& flags) {
  command
      .add_option("--as", flags.names,
                  "a name of the client, such as spiffe://example/a, dns:NAME, token:NAME, "
                  "uid:1000 or anonymous; "
                  "its identity first")
      ->type_name("NAME");
}

}  // namespace

void AddCanICommand(CLI::App& parent, Context& context) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* command =
      AddCommand(parent, context, "can-i",
                 "Whether a client may call a method, by the coordinator's access policy; exits "
                 "with 8 if it may not",
                 "cohort can-i Join --tenant team-a\n"
                 "cohort can-i Evict --tenant team-a --as spiffe://example/ns/team-a/sa/trainer",
                 [&context, flags] { return CanI(context, *flags); });
  command
      ->add_option("METHOD", flags->method,
                   "the method, such as Join, Put or Drain (docs/methods.md)")
      ->required();
  AddNames(*command, *flags);
}

void AddPolicyCommand(CLI::App& parent, Context& context) {
  const auto flags = std::make_shared<Flags>();
  CLI::App& noun =
      *AddNoun(parent, "policy", "Files with an access policy, before a server reads them");
  CLI::App* check = AddCommand(
      noun, context, "check",
      "Whether a server can use the file and, with --as, the roles that it gives to a client",
      "cohort policy check policy.json\n"
      "cohort policy check policy.json --as spiffe://example/ns/team-a/sa/trainer",
      [&context, flags] { return CheckPolicy(context, *flags); });
  check->add_option("FILE", flags->path, "the file")->required();
  AddNames(*check, *flags);
}

}  // namespace cohort::cli
