// Open MPI as people start it, and with the settings that were ever found to be faster on one host.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/benchmark/collective/implementations.h"

namespace cohort::benchmark {
namespace {

struct Setting {
  std::string label;
  std::vector<std::string> flags;
};

// Each call allocates temporaries of 64 MiB. Unless glibc is set to keep freed pages, they go back
// to the system, which clears them again for the next call.
const std::vector<std::string> kKeepMemory = {"-x", "MALLOC_TRIM_THRESHOLD_=68719476736", "-x",
                                              "MALLOC_MMAP_MAX_=0"};

std::vector<Setting> BestSettings(const ImplementationOptions& options) {
  std::vector<Setting> settings = {
      {"kept-memory", {}},
      {"ucx",
       {"--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any",
        "-x", "UCX_TLS=self,sm"}},
      {"vader-copy", {"--mca", "btl_vader_single_copy_mechanism", "none"}},
      {"coll-sm", {"--mca", "coll_sm_priority", "100"}},
  };
  if (options.members > options.cores) {
    settings.push_back({"yield", {"--mca", "mpi_yield_when_idle", "1"}});
    settings.push_back({"coll-sm-yield",
                        {"--mca", "coll_sm_priority", "100", "--mca", "mpi_yield_when_idle", "1"}});
  }
  for (Setting& setting : settings) {
    setting.flags.insert(setting.flags.end(), kKeepMemory.begin(), kKeepMemory.end());
  }
  return settings;
}

// Its files go where they end with the run even if it is killed, and lie in memory as those that it
// shares do by default.
Command Mpirun(const ImplementationOptions& options, const Setting& setting) {
  Command command = {options.mpirun, "--allow-run-as-root", "-np", absl::StrCat(options.members)};
  if (options.members > options.cores) command.push_back("--oversubscribe");
  if (!options.memory_scratch.empty()) {
    const std::string& folder = options.memory_scratch;
    command.insert(command.end(),
                   {"--mca", "orte_tmpdir_base", folder, "--mca", "btl_vader_backing_directory",
                    folder, "-x", absl::StrCat("UCX_POSIX_DIR=", folder)});
  }
  command.insert(command.end(), setting.flags.begin(), setting.flags.end());
  command.push_back(absl::StrCat(options.programs, "/members/openmpi_member"));
  return command;
}

MemberProcesses* AddMpiProcesses(const ImplementationOptions& options, const Setting& setting,
                                 Implementations& implementations) {
  Command mpirun = Mpirun(options, setting);
  return AddMemberProcesses(
      options, absl::StrCat("openmpi-", setting.label),
      [mpirun = std::move(mpirun)](const Command& arguments) {
        Command command = mpirun;
        command.insert(command.end(), arguments.begin(), arguments.end());
        return std::vector<Command>{std::move(command)};
      },
      implementations);
}

}  // namespace

void AddOpenMpi(const ImplementationOptions& options, Implementations& implementations) {
  MemberProcesses* processes = AddMpiProcesses(options, {"default", {}}, implementations);
  Variant variant;
  variant.rows = {"openmpi", "openmpi-best"};
  variant.label = "default";
  variant.processes = processes;
  variant.collectives = AllCollectives();
  implementations.variants.push_back(variant);

  variant.rows = {"openmpi-best"};
  std::vector<Setting> settings = BestSettings(options);
  for (const Setting& setting : settings) {
    variant.label = setting.label;
    variant.processes = AddMpiProcesses(options, setting, implementations);
    variant.collectives = AllCollectives();
    variant.algorithm.clear();
    implementations.variants.push_back(variant);
    // Other code than the call for equal blocks.
    variant.label = absl::StrCat(setting.label, "/uneven");
    variant.collectives = {Collective::kReduceScatter};
    variant.algorithm = "uneven";
    implementations.variants.push_back(variant);
  }
}

}  // namespace cohort::benchmark
