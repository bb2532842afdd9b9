#include "client/collective/trace/path_report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/rank_set.h"
#include "nlohmann/json.hpp"

namespace cohort::client {

std::string EncodePathReport(const PathReport& report) {
  const nlohmann::json json = {{"generation", report.generation},
                               {"hosts", report.hosts},
                               {"why_not", report.why_not},
                               {"tls", report.tls}};
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
    report.tls = json.value("tls", false);  // older releases do not store it
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
  const char* const socket = report.tls ? "TCP with TLS" : "TCP";
  if (sharing.empty()) return absl::StrCat(socket, " between all ranks");
  const std::string memory = absl::StrCat("shared memory: ", absl::StrJoin(sharing, "; "));
  if (report.hosts.size() == 1) return memory;
  return absl::StrCat(memory, ". ", socket, " between all others");
}

}  // namespace cohort::client
