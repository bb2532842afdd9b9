#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"
#include "worker/communicator/nccl/ras/ras_client.h"

namespace cohort::worker {
namespace {

using Json = nlohmann::json;

constexpr int kMostRanks = 1 << 20;
constexpr size_t kMostText = 256;
// Nothing of a report lies deeper, so that one of brackets alone makes no large tree.
constexpr int kMostDepth = 8;

absl::Status Wrong(absl::string_view where, absl::string_view what) {
  return absl::DataLossError(absl::StrCat("NCCL's RAS report: ", where, " ", what));
}

// A part of the report, and where it is: fields of it are read with the type they must have.
class Part {
 public:
  Part(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  const std::string& where() const { return where_; }

  absl::StatusOr<int64_t> Number(const char* name, int64_t least, int64_t most) const {
    COHORT_ASSIGN_OR_RETURN(const Json* const field, Field(name));
    const bool is_large =
        field->is_number_unsigned() && field->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
    if (!field->is_number_integer() || is_large) return Wrong(Name(name), "is no whole number");
    const auto number = field->get<int64_t>();
    if (number >= least && number <= most) return number;
    return Wrong(Name(name), absl::StrCat("is ", number, ", not in ", least, "..", most));
  }
  absl::StatusOr<int> Int(const char* name, int least, int most) const {
    COHORT_ASSIGN_OR_RETURN(const int64_t number, Number(name, least, most));
    return static_cast<int>(number);
  }
  absl::StatusOr<bool> Bool(const char* name) const {
    COHORT_ASSIGN_OR_RETURN(const Json* const field, Field(name));
    if (!field->is_boolean()) return Wrong(Name(name), "is neither true nor false");
    return field->get<bool>();
  }
  absl::StatusOr<std::string> Text(const char* name) const {
    COHORT_ASSIGN_OR_RETURN(const Json* const field, Field(name));
    if (!field->is_string()) return Wrong(Name(name), "is no text");
    const auto& text = field->get_ref<const std::string&>();
    if (text.size() > kMostText) return Wrong(Name(name), "is too long");
    for (const char character : text) {
      if (character < ' ' || character > '~') {
        return Wrong(Name(name), "has other than printable ASCII characters");
      }
    }
    return text;
  }
  absl::StatusOr<Part> Object(const char* name) const {
    COHORT_ASSIGN_OR_RETURN(const Json* const field, Field(name));
    if (!field->is_object()) return Wrong(Name(name), "is no object");
    return Part(*field, Name(name));
  }
  absl::StatusOr<std::vector<Part>> Objects(const char* name) const {
    COHORT_ASSIGN_OR_RETURN(const Json* const field, Field(name));
    if (!field->is_array()) return Wrong(Name(name), "is no list");
    std::vector<Part> parts;
    for (const Json& element : *field) {
      Part part(element, absl::StrCat(Name(name), "[", parts.size(), "]"));
      if (!element.is_object()) return Wrong(part.where(), "is no object");
      parts.push_back(std::move(part));
    }
    return parts;
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& [name, value] : json_.items()) names.push_back(name);
    return names;
  }

 private:
  std::string Name(absl::string_view name) const {
    return where_.empty() ? std::string(name) : absl::StrCat(where_, ".", name);
  }
  absl::StatusOr<const Json*> Field(const char* name) const {
    const auto found = json_.find(name);
    if (found == json_.end()) return Wrong(Name(name), "is missing");
    return &*found;
  }

  const Json& json_;
  const std::string where_;
};

absl::StatusOr<NcclRasProcess> ReadProcess(const Part& part) {
  NcclRasProcess process;
  COHORT_ASSIGN_OR_RETURN(process.host, part.Text("host"));
  COHORT_ASSIGN_OR_RETURN(process.pid, part.Int("pid", -1, INT32_MAX));
  COHORT_ASSIGN_OR_RETURN(process.device, part.Int("cuda_dev", -1, INT32_MAX));
  return process;
}

absl::StatusOr<NcclRasRank> ReadRank(const Part& part, int size) {
  NcclRasRank rank;
  COHORT_ASSIGN_OR_RETURN(rank.rank, part.Int("rank", 0, size - 1));
  COHORT_ASSIGN_OR_RETURN(rank.process, ReadProcess(part));
  COHORT_ASSIGN_OR_RETURN(const Part status, part.Object("status"));
  COHORT_ASSIGN_OR_RETURN(rank.init_state, status.Int("init_state", 0, INT32_MAX));
  COHORT_ASSIGN_OR_RETURN(rank.async_error, status.Int("async_error", 0, INT32_MAX));
  COHORT_ASSIGN_OR_RETURN(rank.finalizes, status.Bool("finalize_called"));
  COHORT_ASSIGN_OR_RETURN(rank.is_destroyed, status.Bool("destroy_flag"));
  COHORT_ASSIGN_OR_RETURN(rank.is_aborted, status.Bool("abort_flag"));
  COHORT_ASSIGN_OR_RETURN(const Part counts, part.Object("collective_counts"));
  for (const std::string& name : counts.Names()) {
    if (name.size() > kMostText) return Wrong(counts.where(), "has too long a name");
    COHORT_ASSIGN_OR_RETURN(const int64_t count, counts.Number(name.c_str(), 0, INT64_MAX));
    rank.operations[name] = static_cast<uint64_t>(count);
  }
  return rank;
}

absl::StatusOr<NcclRasMissingRank> ReadMissing(const Part& part, int size) {
  NcclRasMissingRank rank;
  COHORT_ASSIGN_OR_RETURN(rank.rank, part.Int("rank", 0, size - 1));
  COHORT_ASSIGN_OR_RETURN(rank.process, ReadProcess(part));
  COHORT_ASSIGN_OR_RETURN(const Part status, part.Object("status"));
  COHORT_ASSIGN_OR_RETURN(rank.is_unresponsive, status.Bool("unresponsive"));
  COHORT_ASSIGN_OR_RETURN(rank.is_dead, status.Bool("considered_dead"));
  return rank;
}

absl::StatusOr<NcclRasCommunicator> ReadCommunicator(const Part& part) {
  NcclRasCommunicator communicator;
  COHORT_ASSIGN_OR_RETURN(communicator.hash, part.Text("hash"));
  COHORT_ASSIGN_OR_RETURN(const std::string second, part.Text("secondary_hash"));
  absl::StrAppend(&communicator.hash, ":", second);
  COHORT_ASSIGN_OR_RETURN(communicator.size, part.Int("size", 1, kMostRanks));
  std::set<int> told;
  COHORT_ASSIGN_OR_RETURN(const std::vector<Part> ranks, part.Objects("ranks"));
  for (const Part& one : ranks) {
    COHORT_ASSIGN_OR_RETURN(NcclRasRank rank, ReadRank(one, communicator.size));
    if (!told.insert(rank.rank).second) return Wrong(one.where(), "is there twice");
    communicator.ranks.push_back(std::move(rank));
  }
  COHORT_ASSIGN_OR_RETURN(const std::vector<Part> missing, part.Objects("missing_ranks"));
  for (const Part& one : missing) {
    COHORT_ASSIGN_OR_RETURN(NcclRasMissingRank rank, ReadMissing(one, communicator.size));
    if (!told.insert(rank.rank).second) return Wrong(one.where(), "is there twice");
    communicator.missing.push_back(std::move(rank));
  }
  return communicator;
}

std::string Describe(int rank, const NcclRasProcess& process) {
  std::string text = absl::StrCat("rank ", rank);
  if (process.pid >= 0) {
    absl::StrAppend(&text, " (process ", process.pid, " on ", process.host, ", device ",
                    process.device, ")");
  }
  return text;
}

}  // namespace

absl::StatusOr<NcclRasReport> ParseNcclRasReport(absl::string_view json) {
  const auto keep = [](int depth, Json::parse_event_t, Json&) { return depth <= kMostDepth; };
  const Json parsed = Json::parse(json.begin(), json.end(), keep, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return Wrong("it", "is no JSON object");
  const Part part(parsed, "");
  NcclRasReport report;
  COHORT_ASSIGN_OR_RETURN(report.nccl_version, part.Text("nccl_version"));
  COHORT_ASSIGN_OR_RETURN(const Part ras, part.Object("ras"));
  COHORT_ASSIGN_OR_RETURN(report.timeouts, ras.Int("timeouts_count", 0, INT32_MAX));
  COHORT_ASSIGN_OR_RETURN(const std::vector<Part> communicators, part.Objects("communicators"));
  for (const Part& one : communicators) {
    COHORT_ASSIGN_OR_RETURN(NcclRasCommunicator communicator, ReadCommunicator(one));
    report.communicators.push_back(std::move(communicator));
  }
  return report;
}

std::vector<std::string> FindingsOf(const NcclRasCommunicator& communicator) {
  // ncclSuccess and ncclInProgress, which are no errors.
  const auto is_error = [](int result) { return result != 0 && result != 7; };
  std::vector<std::string> findings;
  for (const NcclRasMissingRank& rank : communicator.missing) {
    findings.push_back(absl::StrCat(Describe(rank.rank, rank.process),
                                    rank.is_dead           ? " is dead"
                                    : rank.is_unresponsive ? " does not answer"
                                                           : " does not know of the communicator"));
  }
  std::map<std::string, uint64_t> most;
  for (const NcclRasRank& rank : communicator.ranks) {
    for (const auto& [name, count] : rank.operations) most[name] = std::max(most[name], count);
  }
  for (const NcclRasRank& rank : communicator.ranks) {
    std::vector<std::string> has;
    if (is_error(rank.init_state)) has.push_back(absl::StrCat("failed with ", rank.init_state));
    if (is_error(rank.async_error)) has.push_back(absl::StrCat("failed with ", rank.async_error));
    if (rank.is_aborted) has.push_back("aborted");
    for (const auto& [name, count] : most) {
      const auto found = rank.operations.find(name);
      const uint64_t launched = found == rank.operations.end() ? 0 : found->second;
      if (launched < count) {
        has.push_back(absl::StrCat("launched ", launched, " ", name, ", others ", count));
      }
    }
    if (has.empty()) continue;
    findings.push_back(
        absl::StrCat(Describe(rank.rank, rank.process), " has ", absl::StrJoin(has, ", and ")));
  }
  return findings;
}

}  // namespace cohort::worker
