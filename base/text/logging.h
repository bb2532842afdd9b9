// Logs one line per event, as text or as JSON, with named fields.
//
//   Log(LogLevel::kInfo, "group formed", {{"group", name}, {"world_size", 8}});
//
// Never log values, sessions or unique ids. Fields are escaped here, so that no caller's name can
// forge a line.
#ifndef COHORT_BASE_TEXT_LOGGING_H_
#define COHORT_BASE_TEXT_LOGGING_H_

#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace cohort {

enum class LogFormat { kText, kJson };
enum class LogLevel { kDebug, kInfo, kWarning, kError };

struct LogOptions {
  std::string level = "info";  // debug, info, warning, error, off
  LogFormat format = LogFormat::kText;
};

// A name and its value. Numbers and booleans are numbers and booleans in JSON.
class LogField {
 public:
  LogField(absl::string_view key, absl::string_view value) : key_(key), text_(value) {}
  LogField(absl::string_view key, const std::string& value) : key_(key), text_(value) {}
  LogField(absl::string_view key, const char* value) : key_(key), text_(value) {}
  LogField(absl::string_view key, bool value)
      : key_(key), text_(value ? "true" : "false"), bare_(true) {}
  LogField(absl::string_view key, int value) : LogField(key, static_cast<int64_t>(value)) {}
  LogField(absl::string_view key, int64_t value);
  LogField(absl::string_view key, double value);

  absl::string_view key() const { return key_; }
  const std::string& text() const { return text_; }
  // Written without quotes in JSON.
  bool bare() const { return bare_; }

 private:
  absl::string_view key_;
  std::string text_;
  bool bare_ = false;
};

// Sends logs to standard error with these options. A program calls it from its main thread before
// the first Log; without it, lines are text at level info. Errors: INVALID_ARGUMENT (no such
// level).
absl::Status InitLogging(const LogOptions& options);

// Logs one line. Thread-safe. Before InitLogging it writes the line itself. Afterwards a thread
// writes, which has the signal mask of InitLogging's caller, and which writes the last lines when
// the program ends. Clients can cause lines, so that each message has at most kMaxLogLines in
// kLogPeriod for each value of its field "tenant", and all messages together five times as many; a
// later line says how many were left out.
inline constexpr int kMaxLogLines = 1000;
inline constexpr absl::Duration kLogPeriod = absl::Seconds(10);
void Log(LogLevel level, absl::string_view message, std::initializer_list<LogField> fields = {});

// The same without a limit, for a caller that has one of its own.
void LogAlways(LogLevel level, absl::string_view message,
               std::initializer_list<LogField> fields = {});

// Waits until all lines are written. A program calls it last, when no thread logs any more. False:
// the reader of standard error did not read them within `timeout`. The program must then end by
// _exit, because exit would wait for that reader.
bool FinishLogging(absl::Duration timeout);

// The line that Log would write at `time`; for tests.
std::string FormatLogLine(LogFormat format, absl::string_view time, LogLevel level,
                          absl::string_view message, std::initializer_list<LogField> fields);

}  // namespace cohort

#endif  // COHORT_BASE_TEXT_LOGGING_H_
