#include "client/cli/output/report_json.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/text/printable.h"

namespace cohort::cli {
namespace {

void SetSeconds(Json& json, const char* name, absl::Duration duration) {
  if (duration != absl::InfiniteDuration()) json[name] = Seconds(duration);
}

void SetNonEmpty(Json& json, const char* name, const std::string& text) {
  if (!text.empty()) json[name] = text;
}

// nlohmann's own check of UTF-8: strict dumping of a malformed string throws.
bool IsUtf8(absl::string_view text) {
  try {
    Json(std::string(text)).dump();
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

void SetProgress(Json& json, int64_t progress, const std::string& operation, absl::Duration age) {
  if (progress == 0 && operation.empty()) return;
  json["progress"] = progress;
  SetNonEmpty(json, "progress_operation", operation);
  SetSeconds(json, "progress_age_seconds", age);
}

}  // namespace

std::string Dump(const Json& json) {
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (IsPrintable(text)) return text;
  // JSON has escapes for characters that steer a terminal.
  return json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

double Seconds(absl::Duration duration) {
  // Whole microseconds, without the tails of binary fractions.
  return static_cast<double>(absl::ToInt64Microseconds(duration)) / 1e6;
}

Json ToJson(const std::vector<RankRange>& ranges) {
  Json json = Json::array();
  for (const RankRange& range : ranges) json.push_back(Json::array({range.first, range.last}));
  return json;
}

Json ToJson(const client::Cause& cause) {
  Json json = {{"kind", client::CauseKindName(cause.kind)}};
  SetNonEmpty(json, "member", cause.member);
  if (cause.rank.has_value()) json["rank"] = *cause.rank;
  SetNonEmpty(json, "host", cause.host);
  SetNonEmpty(json, "detail", cause.detail);
  if (cause.generation != 0) json["generation"] = cause.generation;
  SetSeconds(json, "age_seconds", cause.age);
  return json;
}

Json ToJson(const client::MissingMember& member) {
  Json json = {{"rank", member.rank}};
  SetNonEmpty(json, "member", member.member);
  SetNonEmpty(json, "host", member.host);
  if (member.last_heard.has_value()) {
    SetSeconds(json, "last_heard_seconds", *member.last_heard);
    json["attached"] = member.attached;
  }
  if (!member.last_operation.empty()) {
    json["last_operation"] = member.last_operation;
    SetSeconds(json, "last_operation_age_seconds", member.last_operation_age);
  }
  SetProgress(json, member.progress, member.progress_operation, member.progress_age);
  return json;
}

Json ToJson(const client::InitStatus& status) {
  Json ranks = Json::array();
  for (const client::InitRank& rank : status.ranks) {
    Json json = {{"rank", rank.rank}, {"member", rank.member}, {"phase", rank.phase}};
    SetNonEmpty(json, "detail", rank.detail);
    SetSeconds(json, "age_seconds", rank.age);
    ranks.push_back(std::move(json));
  }
  return {{"name", status.name}, {"ranks", std::move(ranks)}};
}

Json ToJson(const client::OpenWait& wait) {
  Json json = {{"operation", wait.operation}};
  SetSeconds(json, "age_seconds", wait.age);
  SetSeconds(json, "remaining_seconds", wait.remaining);
  json["missing"] = ToJson(wait.missing);
  return json;
}

Json ToJson(const client::MissingReport& report) {
  Json json = {{"expected_count", report.expected_count},
               {"arrived_count", report.arrived_count},
               {"arrived", ToJson(report.arrived)},
               {"missing", ToJson(report.missing)},
               {"details", ToArray(report.details)}};
  if (report.first_rank.has_value()) json["first_rank"] = *report.first_rank;
  if (report.last_rank.has_value()) json["last_rank"] = *report.last_rank;
  SetSeconds(json, "since_first_seconds", report.since_first);
  SetSeconds(json, "skew_seconds", report.skew);
  return json;
}

Json ToJson(const client::Member& member) {
  Json json = {{"name", member.name},
               {"incarnation_hash", member.incarnation_hash},
               {"state", client::MemberStateName(member.state)}};
  if (member.rank >= 0) json["rank"] = member.rank;
  SetNonEmpty(json, "host", member.host);
  if (!member.addresses.empty()) json["addresses"] = member.addresses;
  if (!member.labels.empty()) json["labels"] = member.labels;
  SetSeconds(json, "last_heard_seconds", member.last_heard);
  json["attached"] = member.attached;
  SetProgress(json, member.progress, member.progress_operation, member.progress_age);
  return json;
}

Json ToJson(const client::ViewProposal& proposal) {
  return {{"id", proposal.id},
          {"proposer", proposal.proposer},
          {"base_generation", proposal.base_generation},
          {"remove", ToJson(proposal.remove)},
          {"add", proposal.add},
          {"world_size", proposal.world_size}};
}

Json ToJson(const client::GroupInfo& group) {
  Json json = {{"name", group.name},
               {"generation", group.generation},
               {"state", client::GroupStateName(group.state)},
               {"min_members", group.min_members},
               {"max_members", group.max_members},
               {"world_size", group.world_size},
               {"revision", group.revision}};
  SetSeconds(json, "lease_seconds", group.lease);
  json["bytes_held"] = group.bytes_held;
  json["waiter_count"] = group.waiter_count;
  if (group.cause.kind != client::CauseKind::kNone) json["cause"] = ToJson(group.cause);
  if (group.proposal.has_value()) json["proposal"] = ToJson(*group.proposal);
  if (!group.members.empty()) json["members"] = ToArray(group.members);
  return json;
}

Json ToJson(const client::GroupEvent& event) {
  Json json = {{"revision", event.revision},
               {"event", client::EventKindName(event.kind)},
               {"generation", event.generation}};
  SetNonEmpty(json, "member", event.member);
  if (event.rank.has_value()) json["rank"] = *event.rank;
  if (event.cause.kind != client::CauseKind::kNone) json["cause"] = ToJson(event.cause);
  if (event.proposal.has_value()) json["proposal"] = ToJson(*event.proposal);
  return json;
}

Json ToJson(const client::TensorOperation& operation) {
  Json json = {{"generation", operation.generation},
               {"number", operation.number},
               {"collective", std::string(NameOf(operation.collective))},
               {"state", operation.state},
               {"begun_seconds", Seconds(operation.begun)}};
  if (operation.peer >= 0) json["peer"] = operation.peer;
  if (operation.ended.has_value()) json["ended_seconds"] = Seconds(*operation.ended);
  return json;
}

Json ToJson(const client::RankReport& rank) {
  Json json = {{"rank", rank.rank}};
  SetNonEmpty(json, "member", rank.member);
  SetNonEmpty(json, "host", rank.host);
  if (rank.last_heard.has_value()) json["last_heard_seconds"] = Seconds(*rank.last_heard);
  if (!rank.reported.has_value()) return json;
  json["reported_seconds"] = Seconds(*rank.reported);
  json["moves_tensors"] = rank.tensors.moves_tensors;
  if (rank.tensors.last.has_value()) json["last"] = ToJson(*rank.tensors.last);
  if (rank.tensors.open.has_value()) json["open"] = ToJson(*rank.tensors.open);
  if (!rank.tensors.waits_for.empty()) json["waits_for"] = ToJson(rank.tensors.waits_for);
  return json;
}

Json ToJson(const client::TensorWait& wait) {
  Json json = {{"operation", wait.operation},
               {"age_seconds", Seconds(wait.age)},
               {"missing", ToJson(wait.missing)},
               {"inside", ToJson(wait.inside)},
               {"waited_for", ToJson(wait.waited_for)}};
  SetNonEmpty(json, "mismatch", wait.mismatch);
  return json;
}

Json ToJson(const client::WhoIsMissingReport& report) {
  Json json = {{"group", report.group},
               {"generation", report.generation},
               {"state", client::GroupStateName(report.state)},
               {"world_size", report.world_size}};
  if (report.cause.kind != client::CauseKind::kNone) json["cause"] = ToJson(report.cause);
  json["waits"] = ToArray(report.waits);
  json["inits"] = ToArray(report.inits);
  json["tensor_waits"] = ToArray(report.tensor_waits);
  json["ranks"] = ToArray(report.ranks);
  json["unanswered"] = ToJson(report.unanswered);
  json["unknown"] = ToJson(report.unknown);
  json["covers_tensors"] = report.covers_tensors;
  return json;
}

Json ToJson(const client::ParkedCall& call) {
  Json json = {{"group", call.group}, {"member", call.member}};
  if (call.rank >= 0) json["rank"] = call.rank;
  json["operation"] = call.operation;
  SetSeconds(json, "age_seconds", call.age);
  SetSeconds(json, "remaining_seconds", call.remaining);
  json["waits_on"] = ToJson(call.waits_on);
  return json;
}

Json ToJson(const client::ServerStats& stats) {
  Json json = {{"version", stats.version},
               {"server_incarnation", stats.server_incarnation},
               {"draining", stats.draining},
               {"journal", stats.journal}};
  SetSeconds(json, "uptime_seconds", stats.uptime);
  json["group_count"] = stats.group_count;
  json["member_count"] = stats.member_count;
  json["waiter_count"] = stats.waiter_count;
  json["bytes_held"] = stats.bytes_held;
  json["calls_total"] = stats.calls_total;
  for (const auto& [kind, bytes] : stats.memory) json["memory"][kind] = bytes;
  json["charged_bytes"] = stats.charged_bytes;
  json["max_bytes_held"] = stats.max_bytes_held;
  for (const client::TenantUse& use : stats.tenants) {
    json["tenants"].push_back({{"tenant", use.tenant},
                               {"bytes", use.bytes},
                               {"group_count", use.group_count},
                               {"member_count", use.member_count},
                               {"waiter_count", use.waiter_count},
                               {"stream_count", use.stream_count}});
  }
  json["tenant_count"] = stats.tenant_count;
  return json;
}

Json ToJson(const client::KeyValue& key_value) {
  Json json = {{"key", key_value.key}};
  SetText(json, "value", key_value.value);
  json["revision"] = key_value.revision;
  json["created_revision"] = key_value.created_revision;
  if (key_value.expires_in.has_value()) {
    SetSeconds(json, "expires_in_seconds", *key_value.expires_in);
  }
  return json;
}

Json ToJson(const client::KeyEvent& event) {
  if (!event.deleted) {
    Json json = {{"event", "put"}};
    json.update(ToJson(event.key_value));
    return json;
  }
  return {{"event", event.expired ? "expired" : "deleted"},
          {"key", event.key_value.key},
          {"revision", event.key_value.revision}};
}

void SetText(Json& json, const std::string& name, absl::string_view text) {
  if (IsUtf8(text)) {
    json[name] = std::string(text);
  } else {
    json[absl::StrCat(name, "_base64")] = absl::Base64Escape(text);
  }
}

Json ToJson(const NcclRasSummary& summary) {
  Json communicators = Json::array();
  for (const NcclRasSummary::Communicator& communicator : summary.communicators) {
    communicators.push_back({{"hash", communicator.hash},
                             {"size", communicator.size},
                             {"findings", communicator.findings}});
  }
  return {{"version", summary.version},
          {"timeout_count", summary.timeouts},
          {"communicators", std::move(communicators)}};
}

}  // namespace cohort::cli
