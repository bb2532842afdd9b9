// The client library's values as JSON, for programs that read what the tool prints.
//
// Names follow the protos: counts end in _count, bytes in _bytes. Durations are seconds as a
// number, with names that end in _seconds. Values that are absent, unknown or never happened are
// left out, so that 0 always means 0.
#ifndef COHORT_CLIENT_CLI_OUTPUT_REPORT_JSON_H_
#define COHORT_CLIENT_CLI_OUTPUT_REPORT_JSON_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/rank_set.h"
#include "client/cli/clients/nccl_ras_client.h"
#include "client/rendezvous/admin_client.h"
#include "client/rendezvous/report/report.h"
#include "client/rendezvous/store_client.h"
#include "nlohmann/json.hpp"

namespace cohort::cli {

// Keys keep the order in which they were added.
using Json = nlohmann::ordered_json;

// One line, without the newline; bytes that are no UTF-8 become U+FFFD.
std::string Dump(const Json& json);

double Seconds(absl::Duration duration);
// [[first,last],...], both included.
Json ToJson(const std::vector<RankRange>& ranges);
Json ToJson(const client::Cause& cause);
Json ToJson(const client::MissingMember& member);
Json ToJson(const client::MissingReport& report);
Json ToJson(const client::Member& member);
Json ToJson(const client::ViewProposal& proposal);
// Without "members" if the group has no members.
Json ToJson(const client::GroupInfo& group);
Json ToJson(const client::GroupEvent& event);
Json ToJson(const client::OpenWait& wait);
Json ToJson(const client::InitStatus& status);
Json ToJson(const client::TensorOperation& operation);
Json ToJson(const client::RankReport& rank);
Json ToJson(const client::TensorWait& wait);
Json ToJson(const client::WhoIsMissingReport& report);
Json ToJson(const client::ParkedCall& call);
Json ToJson(const client::ServerStats& stats);
Json ToJson(const client::KeyValue& key_value);
Json ToJson(const client::KeyEvent& event);
Json ToJson(const NcclRasSummary& summary);

// The values in their order; `Values` is a container of any of the types above.
template <typename Values>
Json ToArray(const Values& values) {
  Json json = Json::array();
  for (const auto& value : values) json.push_back(ToJson(value));
  return json;
}

// Sets `name` to the text, or, when that is no UTF-8, `name`_base64 to its base64.
void SetText(Json& json, const std::string& name, absl::string_view text);

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_OUTPUT_REPORT_JSON_H_
