#include "tests/fuzz/access/http2_guard_check.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/port/limits/http2_guard.h"

namespace cohort::fuzz {
namespace {

using std::string_literals::operator""s;

constexpr uint8_t kOfServer = 0x80;
constexpr uint8_t kSecondLater = 0x40;
constexpr size_t kMostInPiece = 0x3f;
// Those that a client may open before it knows the limit.
constexpr size_t kStreamSlack = 128;

// Low, so that short inputs reach them.
Http2Limits FewOfAll() {
  Http2Limits limits;
  limits.max_header_block_bytes = 256;
  limits.max_header_frames = 4;
  limits.max_concurrent_streams = 8;
  limits.max_unfinished_bytes = 4096;
  limits.max_resets_per_second = 16;
  limits.max_settings_per_second = 8;
  limits.max_idle_frames_per_second = 64;
  limits.max_resets_at_once = 4;
  return limits;
}

absl::Status Broken(absl::string_view rule) { return absl::InternalError(rule); }

absl::Status CheckCounts(const Http2Guard& guard) {
  if (guard.unfinished_bytes() < 0) return Broken("a negative number of bytes");
  const auto most = static_cast<size_t>(FewOfAll().max_concurrent_streams) + kStreamSlack;
  if (guard.open_streams() > most) return Broken("more streams than the limit");
  if (guard.unfinished_streams() > guard.open_streams())
    return Broken("more unfinished streams than open ones");
  if (guard.Pause() < absl::ZeroDuration()) return Broken("a negative pause");
  return absl::OkStatus();
}

absl::Status CheckSame(const Http2Guard& whole, const Http2Guard& bytewise) {
  if (whole.has_request() != bytewise.has_request() ||
      whole.open_streams() != bytewise.open_streams() ||
      whole.unfinished_streams() != bytewise.unfinished_streams() ||
      whole.between_frames() != bytewise.between_frames()) {
    return Broken("the frames depend on the pieces");
  }
  if (whole.unfinished_bytes() > bytewise.unfinished_bytes())
    return Broken("a byte by itself costs less than in a piece");
  return absl::OkStatus();
}

// Takes the first piece off `input`: its first byte, and its other ones.
uint8_t TakePiece(absl::string_view* input, absl::string_view* bytes) {
  const auto kind = static_cast<uint8_t>(input->front());
  *bytes = input->substr(1, kind & kMostInPiece);
  input->remove_prefix(1 + bytes->size());
  return kind;
}

std::string Piece(uint8_t kind, absl::string_view bytes) {
  std::string pieces;
  do {
    const absl::string_view part = bytes.substr(0, kMostInPiece);
    absl::StrAppend(&pieces, std::string(1, static_cast<char>(kind | part.size())), part);
    bytes.remove_prefix(part.size());
  } while (!bytes.empty());
  return pieces;
}

std::string Frame(char type, char flags, char stream, absl::string_view payload) {
  return absl::StrCat("\0"s, std::string(1, static_cast<char>(payload.size() >> 8)),
                      std::string(1, static_cast<char>(payload.size())), std::string(1, type),
                      std::string(1, flags), "\0\0\0"s, std::string(1, stream), payload);
}

std::string Repeated(const std::string& piece, int times) {
  std::string pieces;
  while (times-- > 0) pieces += piece;
  return pieces;
}

}  // namespace

absl::Status CheckHttp2Guard(absl::string_view input, Http2Counts* counts) {
  Http2Counts unused;
  if (counts == nullptr) counts = &unused;
  Http2Guard whole(FewOfAll());
  Http2Guard bytewise(FewOfAll());
  Instant now = absl::UnixEpoch();
  for (Http2Guard* const guard : {&whole, &bytewise}) {
    if (!guard->OnReceived(kHttp2Preface, now, false).ok()) return Broken("no preface");
  }
  while (!input.empty()) {
    absl::string_view bytes;
    const uint8_t kind = TakePiece(&input, &bytes);
    if ((kind & kSecondLater) != 0) now += absl::Seconds(1);
    if ((kind & kOfServer) != 0) {
      whole.OnSent(bytes);
      for (size_t i = 0; i < bytes.size(); ++i) bytewise.OnSent(bytes.substr(i, 1));
    } else {
      const absl::Status status = whole.OnReceived(bytes, now, false);
      absl::Status of_bytes;
      for (size_t i = 0; i < bytes.size() && of_bytes.ok(); ++i) {
        of_bytes = bytewise.OnReceived(bytes.substr(i, 1), now, false);
      }
      if (!status.ok() && of_bytes.ok()) return Broken("refused in a piece, and taken by bytes");
      if (whole.whole_bytes().value_or(0) > bytes.size())
        return Broken("more whole bytes than bytes");
      if (!of_bytes.ok()) {
        ++counts->refused;
        return absl::OkStatus();
      }
    }
    for (const Http2Guard* const guard : {&whole, &bytewise}) {
      const absl::Status status = CheckCounts(*guard);
      if (!status.ok()) return status;
    }
    const absl::Status status = CheckSame(whole, bytewise);
    if (!status.ok()) return status;
  }
  counts->requests += whole.has_request() ? 1 : 0;
  counts->streams += static_cast<int64_t>(whole.open_streams());
  for (Http2Guard* const guard : {&whole, &bytewise}) {
    guard->ResetStreams(std::numeric_limits<size_t>::max());
    if (guard->open_streams() != 0 || guard->unfinished_streams() != 0 ||
        guard->unfinished_bytes() != 0) {
      return Broken("something is left after all streams were reset");
    }
  }
  return absl::OkStatus();
}

std::map<std::string, std::string> SampleHttp2() {
  const std::string headers = Frame(1, 4, 1, "\x83\x86");
  const std::string message =
      "\0\0\0\0\x03"
      "abc"s;
  const std::string update = Frame(8, 0, 1, "\0\0\x10\0"s);
  return {
      {"settings", Piece(0, Frame(4, 0, 0, "\0\4\0\1\0\0"s))},
      {"settings_without_window", Piece(0, Frame(4, 0, 0, "\0\4\0\0\0\1"s))},
      {"request", Piece(0, headers + Frame(0, 1, 1, message))},
      {"request_and_answer",
       Piece(0, headers + Frame(0, 1, 1, message)) + Piece(kOfServer, Frame(1, 5, 1, "\x88"))},
      {"message_in_frames", Piece(0, headers + Frame(0, 0, 1, message.substr(0, 3)) +
                                         Frame(0, 0, 1, message.substr(3)))},
      {"further_messages", Piece(0, headers + Frame(0, 0, 1, message + message)) +
                               Piece(kOfServer, update) + Piece(0, Frame(0, 0, 1, message))},
      {"compressed", Piece(0, headers + Frame(0, 0, 1, "\1" + message.substr(1)))},
      {"header_block",
       Piece(0, Frame(1, 0, 1, "\x83") + Frame(9, 0, 1, "\x86") + Frame(9, 4, 1, ""))},
      {"trailers", Piece(0, headers + Frame(0, 0, 1, message) + Frame(1, 5, 1, "\x86"))},
      {"half_header_block", Piece(0, Frame(1, 0, 1, "\x83") + Frame(6, 0, 0, "12345678"))},
      {"resets", Repeated(Piece(0, headers + Frame(3, 0, 1, "\0\0\0\x08"s)), 2)},
      {"late_reset", Piece(0, headers) + Piece(kSecondLater, Frame(3, 0, 1, "\0\0\0\x08"s))},
      {"pings", Repeated(Piece(0, Frame(6, 0, 0, "12345678")), 100)},
      {"small_updates", Repeated(Piece(0, Frame(8, 0, 1, "\0\0\0\1"s)), 100)},
      {"silence", Piece(kSecondLater, "")},
  };
}

}  // namespace cohort::fuzz
