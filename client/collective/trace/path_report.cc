#include "client/collective/trace/path_report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/rank_set.h"
#include "nlohmann/json.hpp"

namespace cohort::client {

std::string EncodePathReport(const PathReport& report) {
  const nlohmann::json json = {
      {"generation", report.generation}, {"hosts", report.hosts}, {"why_not", report.why_not}};
  // Texts of other ranks may not be UTF-8.
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::optional<PathReport> DecodePathReport(absl::string_view bytes) {
  const auto json = nlohmann::json::parse(bytes.begin(), bytes.end(), nullptr, false);
  if (!json.is_object()) return std::nullopt;
  try {
    PathReport report;
    json.at("generation").get_to(report.generation);
    json.at("hosts").get_to(report.hosts);
    json.at("why_not").get_to(report.why_not);
    return report;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::string FormatPathReport(const PathReport& report) {
  std::vector<std::string> sharing;
  size_t ranks = 0;
  for (const std::vector<int>& host : report.hosts) {
    ranks += host.size();
    if (host.size() < 2) continue;
    RankSet set;
    for (const int rank : host) set.Add(rank);
    sharing.push_back(absl::StrCat("ranks ", set.ToString()));
  }
  if (ranks < 2) return "one rank alone";
  if (sharing.empty()) return "TCP between all ranks";
  const std::string memory = absl::StrCat("shared memory: ", absl::StrJoin(sharing, "; "));
  return report.hosts.size() == 1 ? memory : absl::StrCat(memory, ". TCP between all others");
}

}  // namespace cohort::client
