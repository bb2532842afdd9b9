#include "base/text/logging.h"

#include <atomic>
#include <cmath>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <system_error>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/text/line_limits.h"
#include "base/text/printable.h"
#include "base/threads/thread.h"
#include "nlohmann/json.hpp"
#include "spdlog/async.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

// spdlog's queue waits without a deadline. GCC 12 has a newer version of that function; this takes
// the one that the libstdc++ of GCC 11, which RHEL 9 has, offers as well.
#define COHORT_WAIT "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE"
asm(".symver " COHORT_WAIT ", " COHORT_WAIT "@GLIBCXX_3.4.11");
#undef COHORT_WAIT

namespace cohort {
namespace {

std::atomic<LogFormat> g_format{LogFormat::kText};

const char* LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "info";
}

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

// A JSON string, quoted; bytes that are no UTF-8 become U+FFFD. Text that is not printable becomes
// ASCII as a whole, because JSON has escapes for characters that steer a terminal.
std::string JsonString(absl::string_view text) {
  return nlohmann::json(std::string(text))
      .dump(-1, ' ', /*ensure_ascii=*/!IsPrintable(text), nlohmann::json::error_handler_t::replace);
}

// On one line, with quotes and backslashes escaped; reversible.
std::string Escaped(absl::string_view text) { return Printable(absl::Utf8SafeCHexEscape(text)); }

// As it is when it is one plain word, else quoted and escaped.
std::string TextValue(absl::string_view text) {
  bool plain = !text.empty();
  for (const char c : text) {
    plain = plain && c > ' ' && c != 0x7f && c != '"' && c != '=' && c != '\\';
  }
  if (plain) return std::string(text);
  return absl::StrCat("\"", Escaped(text), "\"");
}

// Null: a line of this level is not logged, or not any more.
spdlog::logger* LoggerOf(LogLevel level) {
  spdlog::logger* const logger = spdlog::default_logger_raw();
  return logger != nullptr && logger->should_log(ToSpdlog(level)) ? logger : nullptr;
}

}  // namespace

LogField::LogField(absl::string_view key, int64_t value)
    : key_(key), text_(absl::StrCat(value)), bare_(true) {}

// JSON has no infinity and no NaN: those are quoted.
LogField::LogField(absl::string_view key, double value)
    : key_(key), text_(absl::StrCat(value)), bare_(std::isfinite(value)) {}

std::string FormatLogLine(LogFormat format, absl::string_view time, LogLevel level,
                          absl::string_view message, std::initializer_list<LogField> fields) {
  if (format == LogFormat::kJson) {
    std::string line = absl::StrCat("{\"ts\":", JsonString(time), ",\"level\":\"", LevelName(level),
                                    "\",\"msg\":", JsonString(message));
    for (const LogField& field : fields) {
      absl::StrAppend(&line, ",", JsonString(field.key()), ":",
                      field.bare() ? field.text() : JsonString(field.text()));
    }
    return line + "}";
  }
  std::string line = absl::StrCat(time, " ", LevelName(level), " ", Escaped(message));
  for (const LogField& field : fields) {
    absl::StrAppend(&line, " ", field.key(), "=", TextValue(field.text()));
  }
  return line;
}

absl::Status InitLogging(const LogOptions& options) {
  spdlog::level::level_enum level = spdlog::level::info;
  if (options.level == "debug") {
    level = spdlog::level::debug;
  } else if (options.level == "warning") {
    level = spdlog::level::warn;
  } else if (options.level == "error") {
    level = spdlog::level::err;
  } else if (options.level == "off") {
    level = spdlog::level::off;
  } else if (options.level != "info") {
    return absl::InvalidArgumentError(absl::StrCat(
        "log level \"", options.level, "\": expected debug, info, warning, error or off"));
  }
  g_format.store(options.format, std::memory_order_relaxed);
  // A thread writes, so that Log does not wait for a slow reader of standard error. If the queue is
  // full, the oldest lines are lost.
  constexpr size_t kQueuedLines = 8192;
  // spdlog throws exceptions; none may leave this function.
  try {
    spdlog::init_thread_pool(kQueuedLines, 1);
  } catch (const std::system_error& error) {
    return ThreadRefused("spdlog", error);
  }
  auto logger = std::make_shared<spdlog::async_logger>(
      "cohort", std::make_shared<spdlog::sinks::stderr_sink_mt>(), spdlog::thread_pool(),
      spdlog::async_overflow_policy::overrun_oldest);
  logger->set_pattern("%v");
  logger->set_level(level);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
  return absl::OkStatus();
}

bool FinishLogging(absl::Duration timeout) {
  // spdlog::shutdown joins the thread that writes, which may hang, so another thread calls it.
  auto finished = std::make_shared<std::promise<void>>();
  // The future waits by the steady clock, unlike absl::Notification.
  const std::future<void> result = finished->get_future();
  const absl::Status started = StartDetachedThread("cohort-log", [finished] {
    spdlog::shutdown();
    finished->set_value();
  });
  if (!started.ok()) return false;
  return result.wait_for(absl::ToChronoNanoseconds(timeout)) == std::future_status::ready;
}

void Log(LogLevel level, absl::string_view message, std::initializer_list<LogField> fields) {
  if (LoggerOf(level) == nullptr) return;
  static auto& limits = *new LineLimits(kMaxLogLines, 5 * kMaxLogLines, kLogPeriod);
  std::string key(message);
  for (const LogField& field : fields) {
    if (field.key() == "tenant") absl::StrAppend(&key, " of tenant ", field.text());
  }
  const int64_t lines = limits.Take(key, Clock::Steady().Now());
  if (lines == 0) return;
  LogAlways(level, message, fields);
  if (lines > 1) {
    LogAlways(LogLevel::kWarning, "lines were left out", {{"lines", lines - 1}, {"message", key}});
  }
}

void LogAlways(LogLevel level, absl::string_view message, std::initializer_list<LogField> fields) {
  spdlog::logger* const logger = LoggerOf(level);
  if (logger == nullptr) return;
  const std::string time =
      absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::Now(), absl::UTCTimeZone());
  // As a value, not as a format: the text may contain braces.
  logger->log(ToSpdlog(level),
              spdlog::string_view_t(FormatLogLine(g_format.load(std::memory_order_relaxed), time,
                                                  level, message, fields)));
}

}  // namespace cohort
