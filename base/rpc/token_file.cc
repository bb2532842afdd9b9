#include "base/rpc/token_file.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/file_stamp.h"
#include "base/text/logging.h"

namespace cohort {
namespace {

constexpr absl::Duration kBetweenLooks = absl::Seconds(1);

absl::Status Wrong(absl::string_view path, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("token file ", path, ": ", why));
}

absl::StatusOr<std::string> Read(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadWatchedFile(path);
  if (!text.ok()) return Wrong(path, text.status().message());
  std::string token = *text;
  absl::StripTrailingAsciiWhitespace(&token);
  if (token.empty()) return Wrong(path, "is empty");
  if (token.size() > kMaxTokenBytes) {
    return Wrong(path,
                 absl::StrCat("has a token of ", token.size(), " bytes, at most ", kMaxTokenBytes));
  }
  const auto wrong = std::find_if(token.begin(), token.end(), [](char byte) {
    return !absl::ascii_isalnum(static_cast<unsigned char>(byte)) &&
           !absl::StrContains("-._~+/=", byte);
  });
  if (wrong != token.end()) {
    return Wrong(path, absl::StrCat("byte ", wrong - token.begin(),
                                    " of the token is no letter, no digit and none of -._~+/="));
  }
  return token;
}

}  // namespace

absl::StatusOr<std::shared_ptr<TokenFile>> TokenFile::Load(std::string path) {
  std::string stamp = FileStamp(path).value_or("");
  absl::StatusOr<std::string> token = Read(path);
  if (!token.ok()) return token.status();
  std::shared_ptr<TokenFile> file(new TokenFile(std::move(path)));
  MutexLock lock(&file->mutex_);
  file->stamp_ = std::move(stamp);
  file->token_ = *std::move(token);
  return file;
}

std::string TokenFile::Current(Instant now) {
  MutexLock lock(&mutex_);
  LookLocked(now);
  return token_;
}

std::optional<std::string> TokenFile::IfNew(Instant now, int64_t* version) {
  MutexLock lock(&mutex_);
  LookLocked(now);
  if (std::exchange(*version, version_) == version_) return std::nullopt;
  return token_;
}

void TokenFile::LookLocked(Instant now) {
  if (now < next_look_) return;
  next_look_ = now + kBetweenLooks;
  std::string stamp = FileStamp(path_).value_or("");
  if (!stamp.empty() && stamp == stamp_) return;
  absl::StatusOr<std::string> token = Read(path_);
  if (token.ok()) {
    if (*token != token_) ++version_;
    token_ = *std::move(token);
    stamp_ = std::move(stamp);
    last_error_.clear();
    return;
  }
  stamp_.clear();
  if (std::string error(token.status().message()); error != last_error_) {
    last_error_ = std::move(error);
    Log(LogLevel::kError, "the new token cannot be used: the old one stays",
        {{"why", last_error_}});
  }
}

}  // namespace cohort
