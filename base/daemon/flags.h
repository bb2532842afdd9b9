// The flags of a daemon, from its command line and from the file that --config names (ini or toml;
// the command line wins). A daemon declares each flag once, with the field that it sets:
//
//   Options options;
//   Flags flags("cohort-worker", "Cohort's worker: ranks of groups, on behalf of clients");
//   flags.Add("max-calls", options.max_calls, 1, 65536, "calls that block at once (1024)");
//   COHORT_ASSIGN_OR_RETURN(const std::string text, flags.Parse(argc, argv));
#ifndef COHORT_BASE_DAEMON_FLAGS_H_
#define COHORT_BASE_DAEMON_FLAGS_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/text/logging.h"
#include "base/tls/tls_context.h"

namespace CLI {
class App;
}  // namespace CLI

namespace cohort {

// The options that all daemons have.
struct DaemonOptions {
  // Listens on this port of the loopback address, and serves metrics on the next one.
  explicit DaemonOptions(int port);

  std::vector<std::string> listen;
  // Those that a text of `listen` may name behind its address, as in "[::]:7700,rpc". Empty: none.
  std::vector<std::string> protocols;
  mode_t unix_socket_mode = 0600;
  bool insecure = false;
  TlsFiles tls;                      // see AddAccess
  std::vector<std::string> proxies;  // networks: see ListenerOptions
  std::string access_policy;         // empty: there is no file
  std::string metrics_listen;        // empty: off
  LogOptions log;
  bool core_dumps = false;
  bool reflection = false;
  absl::Duration drain_grace = absl::Seconds(10);
  std::string port_file;
  bool until_stdin_closes = false;
};

// Fields hold the defaults when they are added, and outlive the flags. Thread-compatible.
class Flags {
 public:
  Flags(std::string program, const std::string& description);
  ~Flags();
  Flags(Flags&&) noexcept;

  void Add(const std::string& name, std::string& field, const std::string& help);
  void Add(const std::string& name, std::vector<std::string>& field, const std::string& help);
  void Add(const std::string& name, bool& field, const std::string& help);
  // Limits include both ends.
  void Add(const std::string& name, int& field, int min, int max, const std::string& help);
  void Add(const std::string& name, int64_t& field, int64_t min, int64_t max,
           const std::string& help);
  void Add(const std::string& name, absl::Duration& field, absl::Duration min, absl::Duration max,
           const std::string& help);
  // One of `words`. An enum has the values 0, 1, and so on, in the order of the words.
  void Add(const std::string& name, std::string& field, const std::vector<std::string>& words,
           const std::string& help);
  template <typename Enum>
  void Add(const std::string& name, Enum& field, const std::vector<std::string>& words,
           const std::string& help) {
    AddWord(
        name, words, [&field] { return static_cast<size_t>(field); },
        [&field](size_t index) { field = static_cast<Enum>(index); }, help);
  }
  // The mode of a file in octal digits, as of chmod.
  void AddMode(const std::string& name, mode_t& field, const std::string& help);
  // Several NAME=VALUE: `set` is called with each; `read` returns all that there are.
  void AddPairs(const std::string& name,
                std::function<absl::Status(const std::string& name, int64_t value)> set,
                std::function<std::vector<std::string>()> read, const std::string& help);
  void Add(DaemonOptions& options);
  // The flags about TLS and the rights of clients.
  void AddAccess(DaemonOptions& options);
  // Parse calls it at the end, to check what no range says.
  void AddCheck(std::function<absl::Status()> check) { checks_.push_back(std::move(check)); }

  // Sets the fields. Returns the text of --help, --version or --check-config, which the daemon
  // prints before it exits with 0; else an empty text. Errors: INVALID_ARGUMENT, for the user.
  absl::StatusOr<std::string> Parse(int argc, const char* const* argv);

  const std::string& program() const { return program_; }
  // Returns `name = value` lines, which --config reads back.
  std::string ToString() const;
  // Returns the fields that no longer have their defaults, for people: "coordinator=c:7700
  // max-calls=8". Empty: all have them.
  std::string Changes() const;

 private:
  struct Flag {
    std::string name;
    std::function<std::vector<std::string>()> read;  // values as a file has them
    std::vector<std::string> usual;                  // the same, before Parse
    bool is_list = false;
    bool is_pairs = false;
  };

  void AddFlag(const std::string& name, std::function<std::vector<std::string>()> read,
               bool is_list = false, bool is_pairs = false);
  void AddWord(const std::string& name, const std::vector<std::string>& words,
               std::function<size_t()> read, std::function<void(size_t)> set,
               const std::string& help);
  template <typename Number>
  void AddNumber(const std::string& name, Number& field, Number min, Number max,
                 const std::string& help);

  const std::string program_;
  std::unique_ptr<CLI::App> app_;
  std::vector<Flag> flags_;
  std::vector<std::function<absl::Status()>> checks_;
  std::unique_ptr<bool> check_config_ = std::make_unique<bool>(false);
};

// The error of one flag.
absl::Status InvalidFlag(absl::string_view name, absl::string_view why);

}  // namespace cohort

#endif  // COHORT_BASE_DAEMON_FLAGS_H_
