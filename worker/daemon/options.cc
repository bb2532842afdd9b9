#include "worker/daemon/options.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/rpc/listener/listen_address.h"
#include "base/status_macros.h"
#include "base/version.h"

namespace cohort::worker {
namespace {

// A part of a tensor and its envelope must fit.
constexpr int64_t kMinMessageBytes = int64_t{64} << 10;
// gRPC takes message sizes as int.
constexpr int64_t kMaxMessageBytes = int64_t{1} << 30;
constexpr int kMaxCalls = 65536;

// The texts that CLI11 fills, before they are checked.
struct Raw {
  std::string log_format = "text";
  std::string drain_grace = "10s";
  std::string stream_idle_limit = "30s";
};

absl::Status Invalid(absl::string_view flag, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", why));
}

absl::Status ReadDuration(absl::string_view flag, const std::string& text, absl::Duration* to) {
  if (absl::ParseDuration(text, to)) return absl::OkStatus();
  return Invalid(flag, absl::StrCat("\"", text, "\" is no duration; write 10s, 500ms or 1h"));
}

absl::Status CheckListen(const Options& options) {
  if (options.listen.empty()) return Invalid("--listen", "no address");
  for (const std::string& text : options.listen) {
    COHORT_ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress(text));
    if (!address.is_loopback() && !options.insecure) {
      return Invalid("--listen",
                     absl::StrCat(text,
                                  " can be reached from other machines, and neither callers "
                                  "nor traffic are protected: add --insecure to accept that"));
    }
  }
  if (options.metrics_listen.empty()) return absl::OkStatus();
  COHORT_ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress(options.metrics_listen));
  if (address.is_unix()) return Invalid("--metrics-listen", "must be host:port");
  return absl::OkStatus();
}

absl::Status Resolve(const Raw& raw, Options* options) {
  COHORT_RETURN_IF_ERROR(CheckListen(*options));
  if (options->coordinator.empty()) return Invalid("--coordinator", "no address");
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
  if (options->max_calls < 1 || options->max_calls > kMaxCalls) {
    return Invalid("--max-calls", absl::StrCat("must be 1 to ", kMaxCalls));
  }
  if (options->max_calls_per_session < 1 || options->max_calls_per_session > kMaxCalls) {
    return Invalid("--max-calls-per-session", absl::StrCat("must be 1 to ", kMaxCalls));
  }
  if (options->max_descriptors < 0) return Invalid("--max-descriptors", "must not be negative");
  if (options->max_descriptors_per_session < 0) {
    return Invalid("--max-descriptors-per-session", "must not be negative");
  }
  if (options->max_message_bytes < kMinMessageBytes ||
      options->max_message_bytes > kMaxMessageBytes) {
    return Invalid("--max-message-bytes",
                   absl::StrCat("must be ", kMinMessageBytes, " to ", kMaxMessageBytes));
  }
  COHORT_RETURN_IF_ERROR(ReadDuration("--drain-grace", raw.drain_grace, &options->drain_grace));
  COHORT_RETURN_IF_ERROR(
      ReadDuration("--stream-idle-limit", raw.stream_idle_limit, &options->stream_idle_limit));
  if (options->drain_grace < absl::ZeroDuration() || options->drain_grace > absl::Hours(1)) {
    return Invalid("--drain-grace", "must be from 0 to 1h");
  }
  if (options->stream_idle_limit < absl::Milliseconds(100) ||
      options->stream_idle_limit > absl::Hours(24)) {
    return Invalid("--stream-idle-limit", "must be from 100ms to 24h");
  }
  return absl::OkStatus();
}

void AddFlags(CLI::App& app, Options& options, Raw& raw) {
  app.add_option("--coordinator", options.coordinator,
                 "of groups whose clients name none: host:port, [ipv6]:port or unix:/path "
                 "(127.0.0.1:7700)");
  app.add_option("--listen", options.listen,
                 "address to serve on: host:port, [ipv6]:port or unix:/path; port 0 picks one; "
                 "0.0.0.0 means IPv4, [::] IPv6 and IPv4; repeatable (127.0.0.1:7800)");
  app.add_flag("--insecure", options.insecure,
               "accept that a --listen address of other than this machine is unprotected");
  app.add_option("--metrics-listen", options.metrics_listen,
                 "address for Prometheus, host:port; empty: off (127.0.0.1:7801)");
  app.add_option("--advertise", options.advertise,
                 "host by which workers of other machines reach this one; empty: the address that "
                 "leads to the coordinator");
  app.add_option("--host-identity", options.host_identity,
                 "workers with different ones share no memory; empty: this machine and its network "
                 "namespace");
  app.add_option("--log-level", options.log.level, "debug, info, warning, error or off (info)");
  app.add_option("--log-format", raw.log_format, "text or json (text)");
  app.add_flag("--reflection", options.reflection, "serve gRPC reflection");
  app.add_option("--drain-grace", raw.drain_grace,
                 "time between SIGTERM and the end for calls to finish (10s)");
  app.add_option("--max-calls", options.max_calls,
                 "calls that block at once, each of which has a thread (1024)");
  app.add_option("--max-calls-per-session", options.max_calls_per_session,
                 "of --max-calls, those of one client's session; its WriteTensor and "
                 "ReadTensor streams count (256)");
  app.add_option("--stream-idle-limit", raw.stream_idle_limit,
                 "time without a part after which a WriteTensor or ReadTensor stream is ended (30s)");
  app.add_option("--max-descriptors", options.max_descriptors,
                 "descriptors that sessions keep open here: memory, attached clients, groups; "
                 "0: three eighths of the limit of open files (0)");
  app.add_option("--max-descriptors-per-session", options.max_descriptors_per_session,
                 "of --max-descriptors, those of one client's session; 0: half of them (0)");
  app.add_option("--max-message-bytes", options.max_message_bytes,
                 "largest request, in bytes (16777216)");
  app.add_option("--port-file", options.port_file,
                 "file to write the bound addresses to, one in a line, once ready");
  // The flags below make no sense inside a file.
  app.add_flag("--check-config", options.check_config, "check the configuration and exit")
      ->configurable(false);
}

// A flag's name, and its value in the form of a configuration file.
using Setting = std::pair<std::string, std::string>;

std::vector<Setting> SettingsOf(const Options& options) {
  std::vector<Setting> settings;
  const auto add = [&settings](absl::string_view name, const auto& value) {
    settings.emplace_back(name, absl::StrCat(value));
  };
  const auto quote = [](absl::string_view value) { return absl::StrCat("\"", value, "\""); };
  std::vector<std::string> listen;
  for (const std::string& address : options.listen) listen.push_back(quote(address));
  add("coordinator", quote(options.coordinator));
  add("listen", absl::StrCat("[", absl::StrJoin(listen, ", "), "]"));
  add("insecure", options.insecure ? "true" : "false");
  add("metrics-listen", quote(options.metrics_listen));
  add("advertise", quote(options.advertise));
  add("host-identity", quote(options.host_identity));
  add("log-level", quote(options.log.level));
  add("log-format", options.log.format == LogFormat::kJson ? "\"json\"" : "\"text\"");
  add("reflection", options.reflection ? "true" : "false");
  add("drain-grace", quote(absl::FormatDuration(options.drain_grace)));
  add("max-calls", options.max_calls);
  add("max-calls-per-session", options.max_calls_per_session);
  add("stream-idle-limit", quote(absl::FormatDuration(options.stream_idle_limit)));
  add("max-descriptors", options.max_descriptors);
  add("max-descriptors-per-session", options.max_descriptors_per_session);
  add("max-message-bytes", options.max_message_bytes);
  if (!options.port_file.empty()) add("port-file", quote(options.port_file));
  return settings;
}

}  // namespace

absl::StatusOr<ParsedOptions> ParseOptions(int argc, const char* const* argv) {
  ParsedOptions parsed;
  Raw raw;
  CLI::App app("Cohort's worker: ranks of groups, on behalf of clients", "cohort-worker");
  app.set_version_flag("--version", absl::StrCat("cohort-worker ", kVersion));
  app.set_config("--config", "", "file with flags as name = value (ini or toml)");
  AddFlags(app, parsed.options, raw);
  // CLI11 throws exceptions; they end here.
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
  const std::vector<Setting> usual = SettingsOf(Options());
  std::vector<std::string> changes;
  for (const Setting& setting : SettingsOf(options)) {
    if (std::find(usual.begin(), usual.end(), setting) != usual.end()) continue;
    changes.push_back(
        absl::StrCat(setting.first, "=", absl::StrReplaceAll(setting.second, {{"\"", ""}})));
  }
  return absl::StrJoin(changes, " ");
}

}  // namespace cohort::worker
