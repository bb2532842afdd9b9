#include "base/daemon/flags.h"

#include <algorithm>
#include <limits>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/access/peer_names.h"
#include "base/port/peer/ip_network.h"
#include "base/port/socket/listen_address.h"
#include "base/status_macros.h"
#include "base/tls/trust_domains.h"
#include "base/version.h"

namespace cohort {
namespace {

std::string Quoted(absl::string_view value) { return absl::StrCat("\"", value, "\""); }

std::string Dashed(const std::string& name) { return absl::StrCat("--", name); }

// Whether an address that other machines reach has TLS and clients that prove who they are, unless
// the user accepts less.
absl::Status CheckProtection(absl::string_view flag, const ListenAddress& address,
                             const DaemonOptions& options) {
  if (address.is_loopback() || options.insecure) return absl::OkStatus();
  if (!options.tls.certificate.empty()) {
    // Metrics are for reading alone.
    const bool knows_clients = options.tls.has_ca() || !options.access_policy.empty();
    if (flag == "metrics-listen" || knows_clients) return absl::OkStatus();
    return InvalidFlag(flag, absl::StrCat(address.text,
                                          " can be reached from other machines, and clients do not "
                                          "prove who they are: add --tls-client-ca, or "
                                          "--access-policy with tokens or with the identity "
                                          "anonymous-tls, or --insecure to accept that"));
  }
  return InvalidFlag(flag, absl::StrCat(address.text,
                                        " can be reached from other machines, and neither callers "
                                        "nor traffic are protected: add --tls-certificate, "
                                        "--tls-key and --tls-client-ca, or --insecure to accept "
                                        "that"));
}

absl::Status CheckAddresses(const DaemonOptions& options) {
  if (options.listen.empty()) return InvalidFlag("listen", "no address");
  for (const std::string& text : options.listen) {
    const AddressAndProtocols split = SplitProtocols(text);
    for (const std::string& protocol : split.protocols) {
      const auto& known = options.protocols;
      if (std::find(known.begin(), known.end(), protocol) != known.end()) continue;
      return InvalidFlag(
          "listen",
          absl::StrCat(text, ": there is no protocol ", Quoted(protocol),
                       known.empty() ? ", and an address names none"
                                     : absl::StrCat("; there are ", absl::StrJoin(known, ", "))));
    }
    COHORT_ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress(split.address));
    COHORT_RETURN_IF_ERROR(CheckProtection("listen", address, options));
  }
  if (options.metrics_listen.empty()) return absl::OkStatus();
  COHORT_ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress(options.metrics_listen));
  if (address.is_unix()) return InvalidFlag("metrics-listen", "must be host:port");
  return CheckProtection("metrics-listen", address, options);
}

}  // namespace

absl::Status InvalidFlag(absl::string_view name, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("--", name, ": ", why));
}

DaemonOptions::DaemonOptions(int port)
    : listen({absl::StrCat("127.0.0.1:", port)}),
      metrics_listen(absl::StrCat("127.0.0.1:", port + 1)) {}

Flags::Flags(std::string program, const std::string& description)
    : program_(std::move(program)), app_(std::make_unique<CLI::App>(description, program_)) {
  app_->set_version_flag("--version", absl::StrCat(program_, " ", kVersion));
  app_->set_config("--config", "", "file with flags as name = value (ini or toml)");
  // It makes no sense inside a file.
  app_->add_flag("--check-config", *check_config_, "check the configuration and exit")
      ->configurable(false);
}

Flags::~Flags() = default;
Flags::Flags(Flags&&) noexcept = default;

void Flags::AddFlag(const std::string& name, std::function<std::vector<std::string>()> read,
                    bool is_list, bool is_pairs) {
  std::vector<std::string> usual = read();
  flags_.push_back({name, std::move(read), std::move(usual), is_list, is_pairs});
}

void Flags::Add(const std::string& name, std::string& field, const std::string& help) {
  app_->add_option(Dashed(name), field, help);
  AddFlag(name, [&field] { return std::vector<std::string>{Quoted(field)}; });
}

void Flags::Add(const std::string& name, std::vector<std::string>& field, const std::string& help) {
  app_->add_option(Dashed(name), field, help);
  const auto read = [&field] {
    std::vector<std::string> values;
    for (const std::string& value : field) values.push_back(Quoted(value));
    return values;
  };
  AddFlag(name, read, /*is_list=*/true);
}

void Flags::Add(const std::string& name, bool& field, const std::string& help) {
  app_->add_flag(Dashed(name), field, help);
  AddFlag(name, [&field] { return std::vector<std::string>{field ? "true" : "false"}; });
}

template <typename Number>
void Flags::AddNumber(const std::string& name, Number& field, Number min, Number max,
                      const std::string& help) {
  app_->add_option(Dashed(name), field, help);
  AddFlag(name, [&field] { return std::vector<std::string>{absl::StrCat(field)}; });
  AddCheck([name, &field, min, max] {
    if (field >= min && field <= max) return absl::OkStatus();
    const bool has_end = max != std::numeric_limits<Number>::max();
    return InvalidFlag(name, has_end ? absl::StrCat("must be from ", min, " to ", max)
                                     : absl::StrCat("must be at least ", min));
  });
}

void Flags::Add(const std::string& name, int& field, int min, int max, const std::string& help) {
  AddNumber(name, field, min, max, help);
}

void Flags::Add(const std::string& name, int64_t& field, int64_t min, int64_t max,
                const std::string& help) {
  AddNumber(name, field, min, max, help);
}

void Flags::Add(const std::string& name, absl::Duration& field, absl::Duration min,
                absl::Duration max, const std::string& help) {
  const auto text = std::make_shared<std::string>(absl::FormatDuration(field));
  app_->add_option(Dashed(name), *text, help);
  AddFlag(name, [&field] { return std::vector<std::string>{Quoted(absl::FormatDuration(field))}; });
  AddCheck([name, text, &field, min, max] {
    if (!absl::ParseDuration(*text, &field)) {
      return InvalidFlag(name,
                         absl::StrCat(Quoted(*text), " is no duration; write 10s, 500ms or 1h"));
    }
    if (field >= min && field <= max) return absl::OkStatus();
    return InvalidFlag(name, absl::StrCat("must be from ", absl::FormatDuration(min), " to ",
                                          absl::FormatDuration(max)));
  });
}

void Flags::AddWord(const std::string& name, const std::vector<std::string>& words,
                    std::function<size_t()> read, std::function<void(size_t)> set,
                    const std::string& help) {
  const auto text = std::make_shared<std::string>(words[read()]);
  app_->add_option(Dashed(name), *text, help);
  AddFlag(name, [words, read] { return std::vector<std::string>{Quoted(words[read()])}; });
  AddCheck([name, text, words, set] {
    const auto found = std::find(words.begin(), words.end(), *text);
    if (found == words.end()) {
      return InvalidFlag(name, absl::StrCat("must be ", absl::StrJoin(words, " or ")));
    }
    set(static_cast<size_t>(found - words.begin()));
    return absl::OkStatus();
  });
}

void Flags::Add(const std::string& name, std::string& field, const std::vector<std::string>& words,
                const std::string& help) {
  const auto read = [&field, words] {
    return static_cast<size_t>(std::find(words.begin(), words.end(), field) - words.begin());
  };
  AddWord(
      name, words, read, [&field, words](size_t index) { field = words[index]; }, help);
}

void Flags::AddMode(const std::string& name, mode_t& field, const std::string& help) {
  const auto read = [&field] { return absl::StrFormat("%04o", field); };
  const auto text = std::make_shared<std::string>(read());
  app_->add_option(Dashed(name), *text, help);
  AddFlag(name, [read] { return std::vector<std::string>{Quoted(read())}; });
  AddCheck([name, text, &field] {
    const bool is_mode = !text->empty() && text->size() <= 4 &&
                         text->find_first_not_of("01234567") == std::string::npos;
    const mode_t mode = is_mode ? static_cast<mode_t>(std::stoul(*text, nullptr, 8)) : 0;
    if (!is_mode || mode > 0777) {
      return InvalidFlag(name, absl::StrCat(Quoted(*text), " is not a mode from 0000 to 0777"));
    }
    field = mode;
    return absl::OkStatus();
  });
}

void Flags::AddPairs(const std::string& name,
                     std::function<absl::Status(const std::string& name, int64_t value)> set,
                     std::function<std::vector<std::string>()> read, const std::string& help) {
  const auto texts = std::make_shared<std::vector<std::string>>();
  app_->add_option(Dashed(name), *texts, help);
  const auto quoted = [read = std::move(read)] {
    std::vector<std::string> values = read();
    for (std::string& value : values) value = Quoted(value);
    return values;
  };
  AddFlag(name, quoted, /*is_list=*/true, /*is_pairs=*/true);
  AddCheck([name, texts, set = std::move(set)] {
    for (const std::string& text : *texts) {
      const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
      int64_t value = 0;
      if (parts.size() != 2 || !absl::SimpleAtoi(parts[1], &value)) {
        return InvalidFlag(name, absl::StrCat(Quoted(text), " is not NAME=VALUE"));
      }
      const absl::Status status = set(parts[0], value);
      if (!status.ok()) return InvalidFlag(name, status.message());
    }
    return absl::OkStatus();
  });
}

void Flags::Add(DaemonOptions& options) {
  Add("listen", options.listen,
      absl::StrCat("address to serve on: host:port, [ipv6]:port, unix:/path, or fd://N, a socket "
                   "that listens already as descriptor N; port 0 picks one; 0.0.0.0 means IPv4, "
                   "[::] IPv6 and IPv4; repeatable",
                   options.protocols.empty() ? ""
                                             : "; the protocols of its port may follow, as in "
                                               "[::]:7700,rpc,tcpstore,torchft: without them "
                                               "it serves all, and with TLS rpc alone",
                   " (", options.listen[0], ")"));
  AddMode("unix-socket-mode", options.unix_socket_mode,
          "mode of the files of Unix sockets: 0600 admits this user alone, 0660 its group (0600)");
  Add("insecure", options.insecure,
      "accept that addresses that other machines reach serve plain connections and clients that do "
      "not prove who they are");
  Add("proxy-protocol-from", options.proxies,
      "address or network of load balancers, such as 10.0.0.0/8: each connection from there begins "
      "with a header of the "
      "PROXY protocol, version 1 or 2, and limits and logs use the client's address in it; "
      "repeatable");
  AddCheck([&options] {
    const absl::Status status = ParseIpNetworks(options.proxies).status();
    return status.ok() ? status : InvalidFlag("proxy-protocol-from", status.message());
  });
  Add("metrics-listen", options.metrics_listen,
      absl::StrCat("address for Prometheus, host:port, with TLS if other machines reach it; empty: "
                   "off (",
                   options.metrics_listen, ")"));
  Add("log-level", options.log.level, {"debug", "info", "warning", "error", "off"},
      "debug, info, warning, error or off (info)");
  Add("log-format", options.log.format, {"text", "json"}, "text or json (text)");
  Add("core-dumps", options.core_dumps,
      "write a core dump at a crash, as far as the system's limit allows; it holds keys and values "
      "of clients");
  Add("reflection", options.reflection, "serve gRPC reflection");
  Add("drain-grace", options.drain_grace, absl::ZeroDuration(), absl::Hours(1),
      "time between SIGTERM and the end for calls to be answered (10s)");
  Add("port-file", options.port_file,
      "file to write the bound addresses to, one in a line, once ready");
  Add("until-stdin-closes", options.until_stdin_closes,
      "end as by SIGTERM when standard input closes: a parent's pipe closes when the parent ends");
  AddCheck([&options] { return CheckAddresses(options); });
}

void Flags::AddAccess(DaemonOptions& options) {
  Add("tls-certificate", options.tls.certificate,
      "PEM file with the server's certificate and those between it and the CA; with it, plain "
      "connections are served on this machine only, unless --insecure is set; files are read again "
      "when they change");
  Add("tls-key", options.tls.key, "PEM file with the key of --tls-certificate");
  Add("tls-client-ca", options.tls.client_cas,
      "PEM file with the CA certificates of clients; with it, a client needs a certificate; "
      "DOMAIN=FILE: the CAs sign SPIFFE ids of that trust domain alone; repeatable");
  Add("tls-client-certificate-optional", options.tls.client_certificate_optional,
      "with --tls-client-ca, also take clients without a certificate, such as those with a "
      "bearer token");
  Add("tls-client-crl", options.tls.crl,
      "PEM file with the lists of revoked certificates of all CAs that sign for clients; a client "
      "whose CA has no list here, or an outdated one, is refused");
  Add("access-policy", options.access_policy,
      "JSON file with the roles of clients (docs/security.md), read again when it changes");
  AddCheck([&options] {
    std::vector<std::string>& cas = options.tls.client_cas;
    cas.erase(std::remove(cas.begin(), cas.end(), ""), cas.end());
    const TlsFiles& tls = options.tls;
    if (tls.any() && tls.certificate.empty()) return InvalidFlag("tls-certificate", "is missing");
    if (tls.any() && tls.key.empty()) return InvalidFlag("tls-key", "is missing");
    for (const std::string& text : tls.client_cas) {
      const std::string domain = ParseCaFile(text).trust_domain;
      if (ParseCaFile(text).path == text || IsSpiffeId(absl::StrCat("spiffe://", domain))) continue;
      return InvalidFlag("tls-client-ca", absl::StrCat(Quoted(domain), " is no trust domain"));
    }
    if (!tls.crl.empty() && !tls.has_ca()) {
      return InvalidFlag("tls-client-crl", "needs --tls-client-ca");
    }
    if (!tls.client_certificate_optional) return absl::OkStatus();
    if (!tls.has_ca()) {
      return InvalidFlag("tls-client-certificate-optional", "needs --tls-client-ca");
    }
    if (!options.access_policy.empty()) return absl::OkStatus();
    return InvalidFlag("tls-client-certificate-optional",
                       "needs --access-policy: without it, each client has all rights");
  });
}

absl::StatusOr<std::string> Flags::Parse(int argc, const char* const* argv) {
  // CLI11 takes an empty value as an argument of its own alone.
  std::vector<const char*> arguments;
  std::list<std::string> names;
  for (int i = 0; i < argc; ++i) {
    absl::string_view name = argv[i];
    if (absl::StartsWith(name, "--") && absl::ConsumeSuffix(&name, "=")) {
      arguments.push_back(names.emplace_back(name).c_str());
      arguments.push_back("");
    } else {
      arguments.push_back(argv[i]);
    }
  }
  // CLI11 throws exceptions; none may leave this function.
  try {
    app_->parse(static_cast<int>(arguments.size()), arguments.data());
  } catch (const CLI::CallForHelp&) {
    return app_->help();
  } catch (const CLI::CallForVersion&) {
    return absl::StrCat(app_->version(), "\n");
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(error.what());
  }
  for (const auto& check : checks_) COHORT_RETURN_IF_ERROR(check());
  return *check_config_ ? ToString() : "";
}

std::string Flags::ToString() const {
  std::string text;
  for (const Flag& flag : flags_) {
    const std::vector<std::string> values = flag.read();
    if (flag.is_list && values.empty()) continue;  // CLI11 reads no empty list
    const std::string value = absl::StrJoin(values, ", ");
    absl::StrAppend(&text, flag.name, " = ", flag.is_list ? absl::StrCat("[", value, "]") : value,
                    "\n");
  }
  return text;
}

std::string Flags::Changes() const {
  std::vector<std::string> changes;
  for (const Flag& flag : flags_) {
    const std::vector<std::string> values = flag.read();
    if (flag.is_pairs) {
      for (size_t i = 0; i < values.size(); ++i) {
        if (values[i] != flag.usual[i]) changes.push_back(values[i]);
      }
    } else if (values != flag.usual) {
      const std::string value = absl::StrJoin(values, ", ");
      changes.push_back(
          absl::StrCat(flag.name, "=", flag.is_list ? absl::StrCat("[", value, "]") : value));
    }
  }
  return absl::StrReplaceAll(absl::StrJoin(changes, " "), {{"\"", ""}});
}

}  // namespace cohort
