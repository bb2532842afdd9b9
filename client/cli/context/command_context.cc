#include "client/cli/context/command_context.h"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "client/cli/output/format.h"

namespace cohort::cli {
namespace {

// Like absl::ParseDuration, but finite and not negative.
bool ParseTimeout(const std::string& text, absl::Duration* duration) {
  return absl::ParseDuration(text, duration) && *duration >= absl::ZeroDuration() &&
         *duration != absl::InfiniteDuration();
}

absl::StatusOr<std::string> ReadAll(std::istream& in, absl::string_view name) {
  std::string bytes;
  std::vector<char> part(1 << 16);
  do {
    in.read(part.data(), static_cast<std::streamsize>(part.size()));
    bytes.append(part.data(), static_cast<size_t>(in.gcount()));
  } while (in.good());
  // A folder can be opened, and fails when it is read.
  if (in.bad()) {
    return absl::InternalError(absl::StrCat("cannot read ", name, ": ", std::strerror(errno)));
  }
  return bytes;
}

}  // namespace

client::ConnectionOptions Context::ConnectionOptions() {
  client::ConnectionOptions options;
  options.address = options_.coordinator;
  options.tenant = options_.tenant;
  options.on_away = [this](const client::AwayReport& away) { OnAway(away); };
  return options;
}

absl::StatusOr<std::shared_ptr<client::Connection>> Context::Connect() {
  if (connection_ == nullptr) {
    COHORT_ASSIGN_OR_RETURN(connection_, environment_.clients->Connect(ConnectionOptions()));
  }
  return connection_;
}

void Context::OnAway(const client::AwayReport& away) {
  // An interrupted command leaves on another thread, in a short time.
  if (std::this_thread::get_id() != thread_) return;
  if (on_away_) return on_away_(away);
  // Reported each second; it is worth a line only if the kind has changed.
  if (std::exchange(remarked_, away.kind) == away.kind) return;
  printer().Remark(absl::StrCat("cohort: ", FormatAway(away)));
}

ExitCode Context::Print(const Json& json, const std::string& text) {
  if (options_.json) {
    printer().PrintJson(json);
  } else {
    printer().PrintText(text);
  }
  return ExitCode::kOk;
}

absl::StatusOr<std::unique_ptr<client::AdminClient>> Context::Admin() {
  COHORT_ASSIGN_OR_RETURN(auto connection, Connect());
  return environment_.clients->Admin(std::move(connection), TimeoutOr(absl::Seconds(10)));
}

absl::StatusOr<std::unique_ptr<client::StoreClient>> Context::Store(absl::string_view group) {
  COHORT_ASSIGN_OR_RETURN(auto connection, Connect());
  return environment_.clients->Store(std::move(connection), group);
}

CLI::App* AddCommand(CLI::App& parent, Context& context, const std::string& name,
                     const std::string& description, const std::string& examples, Action action,
                     const std::string& timeout) {
  CLI::App* command = parent.add_subcommand(name, description);
  std::string footer = "Examples:";
  for (absl::string_view line : absl::StrSplit(examples, '\n', absl::SkipEmpty())) {
    absl::StrAppend(&footer, "\n  ", line);
  }
  absl::StrAppend(&footer, "\n\n--coordinator, --tenant, --json and --timeout (here by default ",
                  timeout, ") go with every command: see 'cohort --help'.");
  command->footer(footer);
  command->callback([&context, action = std::move(action)] { context.set_action(action); });
  return command;
}

CLI::App* AddNoun(CLI::App& parent, const std::string& name, const std::string& description) {
  CLI::App* noun = parent.add_subcommand(name, description);
  noun->require_subcommand(1);
  return noun;
}

CLI::Option* AddDuration(CLI::App& command, const std::string& name,
                         std::optional<absl::Duration>& target, const std::string& description) {
  return command
      .add_option_function<std::string>(
          name,
          [&target](const std::string& text) {
            absl::Duration duration;
            if (ParseTimeout(text, &duration)) target = duration;
          },
          description)
      ->type_name("DURATION")
      ->check([](const std::string& text) {
        absl::Duration duration;
        if (ParseTimeout(text, &duration)) return std::string();
        // If the user forgot the value, the parser takes the next word for it.
        if (absl::StartsWith(text, "--")) {
          return absl::StrCat("a duration such as 500ms, 30s or 5m is missing before ", text);
        }
        return absl::StrCat("'", text, "' is no duration such as 500ms, 30s or 5m");
      });
}

std::function<std::string(const std::string&)> WholeNumber(int64_t least) {
  return [least](const std::string& text) {
    int64_t number = 0;
    // The parser accepts no plus sign and the like; neither does this check.
    if (!absl::SimpleAtoi(text, &number)) {
      return absl::StrCat("'", text, "' is no whole number");
    }
    return number < least ? absl::StrCat(number, " is below ", least) : std::string();
  };
}

absl::StatusOr<std::string> ReadPayload(Context& context, const std::string& file) {
  if (file == "-") return ReadAll(*context.environment().in, "standard input");
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  if (!in.good()) {
    return absl::NotFoundError(absl::StrCat("cannot open ", file, ": ", std::strerror(errno)));
  }
  return ReadAll(in, file);
}

absl::Status WriteFile(const std::string& file, absl::string_view bytes) {
  errno = 0;
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (out.good()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cannot write ", file, ": ", std::strerror(errno)));
}

}  // namespace cohort::cli
