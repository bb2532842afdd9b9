#include "coordinator/options.h"

#include <algorithm>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/rpc/listener/incoming_bytes.h"
#include "base/rpc/listener/listen_address.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "coordinator/core/interface/limit_names.h"

namespace cohort::coordinator {
namespace {

// gRPC takes message sizes as int.
constexpr int64_t kMaxMessageBytes = int64_t{1} << 30;
constexpr int kMostCounted = 1 << 24;

// The values that CLI11 fills, before they are checked.
struct Raw {
  std::string journal = "memory";
  std::string log_format = "text";
  std::string drain_grace = "10s";
  std::string ping_timeout = "40s";
  std::string max_wait = "1h";
  std::vector<std::string> limits;
};

absl::Status Invalid(absl::string_view flag, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", why));
}

absl::Status ParseFlagDuration(absl::string_view flag, const std::string& text, absl::Duration min,
                               absl::Duration max, absl::Duration* duration) {
  if (!absl::ParseDuration(text, duration)) {
    return Invalid(flag, absl::StrCat("\"", text, "\" is no duration; write 10s, 500ms or 1h"));
  }
  if (*duration < min || *duration > max) {
    return Invalid(flag, absl::StrCat("must be from ", absl::FormatDuration(min), " to ",
                                      absl::FormatDuration(max)));
  }
  return absl::OkStatus();
}

absl::Status ParseLimits(const std::vector<std::string>& texts, Limits* limits) {
  for (const std::string& text : texts) {
    const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
    int64_t value = 0;
    if (parts.size() != 2 || !absl::SimpleAtoi(parts[1], &value)) {
      return Invalid("--limit", absl::StrCat("\"", text, "\" is not NAME=VALUE"));
    }
    const absl::Status status = SetLimit(parts[0], value, limits);
    if (!status.ok()) return Invalid("--limit", status.message());
  }
  return absl::OkStatus();
}

absl::Status Resolve(const Raw& raw, Options* options) {
  for (const std::string& text : options->listen) {
    COHORT_ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress(text));
    if (!address.is_loopback() && !options->insecure) {
      return Invalid("--listen",
                     absl::StrCat(text,
                                  " can be reached from other machines, and neither callers "
                                  "nor traffic are protected: add --insecure to accept that"));
    }
  }
  if (!options->metrics_listen.empty()) {
    COHORT_ASSIGN_OR_RETURN(const ListenAddress address,
                            ParseListenAddress(options->metrics_listen));
    if (address.is_unix()) return Invalid("--metrics-listen", "must be host:port");
  }
  if (raw.journal == "memory") {
    options->journal = JournalKind::kMemory;
    if (!options->journal_path.empty()) {
      return Invalid("--journal-path", "is of no use with --journal memory");
    }
  } else if (raw.journal == "sqlite") {
    options->journal = JournalKind::kSqlite;
    if (options->journal_path.empty()) {
      return Invalid("--journal-path", "is needed with --journal sqlite");
    }
  } else {
    return Invalid("--journal", "must be memory or sqlite");
  }
  if (raw.log_format == "text") {
    options->log.format = LogFormat::kText;
  } else if (raw.log_format == "json") {
    options->log.format = LogFormat::kJson;
  } else {
    return Invalid("--log-format", "must be text or json");
  }
  constexpr const char* kLevels[] = {"debug", "info", "warning", "error", "off"};
  if (std::find(std::begin(kLevels), std::end(kLevels), options->log.level) == std::end(kLevels)) {
    return Invalid("--log-level", "must be debug, info, warning, error or off");
  }
  if (options->shards < 1 || options->shards > 256) return Invalid("--shards", "must be 1 to 256");
  if (options->max_message_bytes < 1024 || options->max_message_bytes > kMaxMessageBytes) {
    return Invalid("--max-message-bytes", absl::StrCat("must be 1024 to ", kMaxMessageBytes));
  }
  if (options->listener.max_incoming_bytes < 0) {
    return Invalid("--max-incoming-bytes", "must not be negative");
  }
  const int64_t incoming = MaxIncomingBytes(options->listener.max_incoming_bytes);
  if (options->max_message_bytes > incoming / 2) {
    return Invalid("--max-message-bytes",
                   absl::StrCat(options->max_message_bytes, " is over half of --max-incoming-bytes (",
                                incoming, "): raise that, which is by default an eighth of the "
                                "memory that the process may use"));
  }
  if (options->framed_rpc_threads < 0 || options->framed_rpc_threads > 64) {
    return absl::InvalidArgumentError("--framed-rpc-threads must be from 0 to 64");
  }
  for (const auto& [flag, value] :
       {std::pair<const char*, int>{"--max-connections", options->listener.max_connections},
        std::pair<const char*, int>{"--max-connections-per-peer",
                                    options->listener.max_connections_per_peer},
        std::pair<const char*, int>{"--max-concurrent-streams",
                                    options->listener.http2.max_concurrent_streams}}) {
    if (value < 0) return Invalid(flag, "must not be negative");
    if (value > kMostCounted) return Invalid(flag, absl::StrCat("must be at most ", kMostCounted));
  }
  if (options->listener.http2.max_resets_per_second < 1) {
    return Invalid("--max-resets-per-second", "must be positive");
  }
  COHORT_RETURN_IF_ERROR(ParseFlagDuration("--drain-grace", raw.drain_grace, absl::ZeroDuration(),
                                           absl::Hours(1), &options->drain_grace));
  COHORT_RETURN_IF_ERROR(ParseFlagDuration("--ping-timeout", raw.ping_timeout, absl::ZeroDuration(),
                                           absl::Hours(1), &options->ping_timeout));
  COHORT_RETURN_IF_ERROR(ParseFlagDuration("--max-wait", raw.max_wait, absl::Milliseconds(1),
                                           absl::Hours(24), &options->max_wait));
  COHORT_RETURN_IF_ERROR(ParseLimits(raw.limits, &options->limits));
  for (const auto& [name, bytes] :
       {std::pair<const char*, int64_t>{"max_inline_bytes", options->limits.max_inline_bytes},
        std::pair<const char*, int64_t>{"max_value_bytes", options->limits.max_value_bytes}}) {
    if (bytes >= options->max_message_bytes) {
      return Invalid("--limit",
                     absl::StrCat(name, "=", bytes, " must be below --max-message-bytes (",
                                  options->max_message_bytes, ")"));
    }
  }
  return absl::OkStatus();
}

void AddFlags(CLI::App& app, Options& options, Raw& raw) {
  app.add_option("--listen", options.listen,
                 "address to serve on: host:port, [ipv6]:port or unix:/path; port 0 picks one; "
                 "0.0.0.0 means IPv4, [::] IPv6 and IPv4; repeatable (127.0.0.1:7700)");
  app.add_flag("--insecure", options.insecure,
               "accept that a --listen address of other than this machine is unprotected");
  app.add_option("--metrics-listen", options.metrics_listen,
                 "address for Prometheus, host:port; empty: off (127.0.0.1:7701)");
  app.add_option("--journal", raw.journal,
                 "durable state: memory (none survives a restart) or sqlite (memory)");
  app.add_option("--journal-path", options.journal_path, "file of the sqlite journal");
  app.add_option("--shards", options.shards,
                 "parts of the state with a lock each; a group lives in one (4)");
  app.add_option("--log-level", options.log.level, "debug, info, warning, error or off (info)");
  app.add_option("--log-format", raw.log_format, "text or json (text)");
  app.add_flag("--reflection", options.reflection, "serve gRPC reflection");
  app.add_option("--framed-rpc-threads", options.framed_rpc_threads,
                 "threads for calls in plain frames, on the same addresses; 0: gRPC alone (1)");
  app.add_option("--drain-grace", raw.drain_grace,
                 "time between SIGTERM and the end for calls to be answered (10s)");
  app.add_option("--ping-timeout", raw.ping_timeout,
                 "a gRPC connection whose peer answers no ping for so long is closed; pings go "
                 "out after half of it without data; 0s: no pings (40s)");
  app.add_option("--max-wait", raw.max_wait, "no call is parked longer (1h)");
  app.add_option("--max-message-bytes", options.max_message_bytes,
                 "largest request, in bytes (4194304)");
  app.add_option("--max-incoming-bytes", options.listener.max_incoming_bytes,
                 "bytes of requests that are not complete, over all connections, of which those of "
                 "one address may have three quarters; 0: an eighth of the memory that the process "
                 "may use, and 16777216 at least (0)");
  app.add_option("--max-connections", options.listener.max_connections,
                 "connections at once; 0: the rest of the limit of open files, at most 65536 (0)");
  app.add_option("--max-connections-per-peer", options.listener.max_connections_per_peer,
                 "connections at once of one address; 0: three quarters of all (0)");
  app.add_option("--max-concurrent-streams", options.listener.http2.max_concurrent_streams,
                 "gRPC calls at once on one connection, parked ones included; more wait in the "
                 "client; plain frames carry 16 times as many; 0: no limit (2048)");
  app.add_option("--max-resets-per-second", options.listener.http2.max_resets_per_second,
                 "gRPC calls that one connection may cancel in a second, within a second of their "
                 "begin; more close the connection (1000)");
  std::vector<std::string> names;
  for (const LimitName& limit : LimitNames()) {
    names.push_back(absl::StrCat(limit.name, "=", options.limits.*limit.field, " (",
                                 CountedBy(limit.name), ")"));
  }
  app.add_option("--limit", raw.limits,
                 absl::StrCat("NAME=VALUE, repeatable; names, defaults, and counted things: ",
                              absl::StrJoin(names, ", ")));
  app.add_option("--port-file", options.port_file,
                 "file to write the bound addresses to, one in a line, once ready");
  // The flags below make no sense inside a file.
  app.add_flag("--check-config", options.check_config, "check the configuration and exit")
      ->configurable(false);
}

// A flag's name, and its value as a file has it.
using Setting = std::pair<std::string, std::string>;
constexpr char kLimitSetting[] = "limit";

std::vector<Setting> SettingsOf(const Options& options) {
  std::vector<Setting> settings;
  const auto add = [&settings](absl::string_view name, const auto& value) {
    settings.emplace_back(name, absl::StrCat(value));
  };
  const auto quote = [](absl::string_view value) { return absl::StrCat("\"", value, "\""); };
  std::vector<std::string> listen;
  for (const std::string& address : options.listen) listen.push_back(quote(address));
  add("listen", absl::StrCat("[", absl::StrJoin(listen, ", "), "]"));
  add("insecure", options.insecure ? "true" : "false");
  add("metrics-listen", quote(options.metrics_listen));
  add("journal", options.journal == JournalKind::kSqlite ? "\"sqlite\"" : "\"memory\"");
  if (!options.journal_path.empty()) add("journal-path", quote(options.journal_path));
  add("shards", options.shards);
  add("log-level", quote(options.log.level));
  add("log-format", options.log.format == LogFormat::kJson ? "\"json\"" : "\"text\"");
  add("reflection", options.reflection ? "true" : "false");
  add("framed-rpc-threads", options.framed_rpc_threads);
  add("drain-grace", quote(absl::FormatDuration(options.drain_grace)));
  add("ping-timeout", quote(absl::FormatDuration(options.ping_timeout)));
  add("max-wait", quote(absl::FormatDuration(options.max_wait)));
  add("max-message-bytes", options.max_message_bytes);
  add("max-incoming-bytes", options.listener.max_incoming_bytes);
  add("max-connections", options.listener.max_connections);
  add("max-connections-per-peer", options.listener.max_connections_per_peer);
  add("max-concurrent-streams", options.listener.http2.max_concurrent_streams);
  add("max-resets-per-second", options.listener.http2.max_resets_per_second);
  std::vector<std::string> limits;
  for (const LimitName& limit : LimitNames()) {
    limits.push_back(quote(absl::StrCat(limit.name, "=", options.limits.*limit.field)));
  }
  add(kLimitSetting, absl::StrCat("[", absl::StrJoin(limits, ", "), "]"));
  if (!options.port_file.empty()) add("port-file", quote(options.port_file));
  return settings;
}

}  // namespace

Limits DefaultLimits(int64_t memory_bytes) {
  // A name of a closed group takes up to 1 KiB, and stays.
  constexpr int64_t kClosedNameBytes = 1024;
  Limits limits;
  limits.max_bytes_held = std::max<int64_t>(memory_bytes / 2, 1);
  limits.max_group_bytes_held = std::min(limits.max_group_bytes_held, limits.max_bytes_held);
  limits.max_closed_names = std::clamp<int64_t>(limits.max_bytes_held / 8 / kClosedNameBytes, 1,
                                                limits.max_closed_names);
  return limits;
}

absl::StatusOr<ParsedOptions> ParseOptions(int argc, const char* const* argv) {
  ParsedOptions parsed;
  Raw raw;
  CLI::App app("Cohort's coordinator: process groups over gRPC", "cohort-coordinator");
  app.set_version_flag("--version", absl::StrCat("cohort-coordinator ", kVersion));
  app.set_config("--config", "", "file with flags as name = value (ini or toml)");
  AddFlags(app, parsed.options, raw);
  // CLI11 throws exceptions; none may leave this function.
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    parsed.message = app.help();
    return parsed;
  } catch (const CLI::CallForVersion&) {
    parsed.message = absl::StrCat(app.version(), "\n");
    return parsed;
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(error.what());
  }
  COHORT_RETURN_IF_ERROR(Resolve(raw, &parsed.options));
  return parsed;
}

std::string FormatOptions(const Options& options) {
  std::string text;
  for (const auto& [name, value] : SettingsOf(options)) {
    absl::StrAppend(&text, name, " = ", value, "\n");
  }
  return text;
}

std::string FormatChanges(const Options& options) {
  const Options defaults;
  const std::vector<Setting> usual = SettingsOf(defaults);
  std::vector<std::string> changes;
  for (const Setting& setting : SettingsOf(options)) {
    if (std::find(usual.begin(), usual.end(), setting) != usual.end()) continue;
    if (setting.first == kLimitSetting) {
      for (const LimitName& limit : LimitNames()) {
        if (options.limits.*limit.field == defaults.limits.*limit.field) continue;
        changes.push_back(absl::StrCat(limit.name, "=", options.limits.*limit.field));
      }
    } else {
      changes.push_back(
          absl::StrCat(setting.first, "=", absl::StrReplaceAll(setting.second, {{"\"", ""}})));
    }
  }
  return absl::StrJoin(changes, " ");
}

}  // namespace cohort::coordinator
