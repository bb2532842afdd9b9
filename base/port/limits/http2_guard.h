// Counts the frames of one HTTP/2 connection, and fails when its client sends frames that no honest
// client sends. gRPC 1.51 bounds neither endless header blocks nor streams that are reset at once.
// Both cost memory and time before a service sees a call.
//
//   Http2Guard guard(limits);
//   absl::Status status = guard.OnReceived(bytes, now, false);  // before gRPC parses them
//   if (!status.ok()) ...                                       // close the connection
//   if (guard.Pause() > absl::ZeroDuration()) ...               // read on after it
//   guard.OnSent(answer);                                       // which ends streams
#ifndef COHORT_BASE_PORT_LIMITS_HTTP2_GUARD_H_
#define COHORT_BASE_PORT_LIMITS_HTTP2_GUARD_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/port/limits/rate_count.h"

namespace cohort {

inline constexpr absl::string_view kHttp2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// The limits of one connection. Errors name the limit by its field here.
struct Http2Limits {
  // gRPC refuses headers of more than 8 KiB by itself, once it has read all of them.
  int64_t max_header_block_bytes = int64_t{64} << 10;
  int max_header_frames = 32;
  // Streams that neither side has ended. gRPC's clients wait at this limit; 0: no limit.
  int max_concurrent_streams = 2048;
  // Bytes of incomplete messages. A message in small frames counts as more bytes.
  int64_t max_unfinished_bytes = int64_t{32} << 20;
  // The next three are rates; a burst may have as many as a second may have.
  // Streams that the client cancels less than a second after it has opened them.
  int max_resets_per_second = 1000;
  int max_settings_per_second = 100;
  // Frames that carry little (pings, priorities, data and window updates of a few bytes), in excess
  // of four for each request or message.
  int max_idle_frames_per_second = 5000;
  // gRPC gets at most this many of the resets above at once. Later bytes then wait in the socket
  // until gRPC has had time for half of them, at four times max_resets_per_second.
  int max_resets_at_once = 128;
};

// Finds frames in a stream of bytes that arrives in pieces of any size. Thread-compatible.
class Http2Frames {
 public:
  struct Header {
    uint32_t length = 0;
    uint8_t type = 0;
    uint8_t flags = 0;
    uint32_t stream = 0;
  };
  enum class Step { kMore, kHeader, kPayload };

  // Takes from the front of `bytes`. kHeader: header() is of the next frame. kPayload: `payload` is
  // a part of that frame's. kMore: all bytes were taken.
  Step Next(absl::string_view* bytes, absl::string_view* payload);
  const Header& header() const { return header_; }
  uint32_t payload_left() const { return payload_left_; }
  bool between_frames() const { return have_ == 0 && payload_left_ == 0; }

 private:
  std::array<uint8_t, 9> raw_{};
  size_t have_ = 0;
  Header header_;
  uint32_t payload_left_ = 0;
};

// Thread-compatible.
class Http2Guard {
 public:
  explicit Http2Guard(const Http2Limits& limits) : limits_(limits) {}

  // Takes the next bytes of the client. A suspect, whose address has broken a limit before, may
  // have shorter bursts. After an error the guard takes no more bytes. Errors: INVALID_ARGUMENT
  // (not HTTP/2), RESOURCE_EXHAUSTED (names the limit and its value).
  absl::Status OnReceived(absl::string_view bytes, Instant now, bool suspect);
  // Takes the next bytes of the server, before the client gets them.
  void OnSent(absl::string_view bytes);

  // The client has sent all headers of a request.
  bool has_request() const { return has_request_; }
  // The bytes that gRPC keeps of requests: of headers until the first message is complete, of
  // incomplete messages, and of further messages that the service has not asked for.
  int64_t unfinished_bytes() const { return unfinished_bytes_; }

  // How many bytes to read for the next OnReceived. They bring gRPC at most 150 resets more than
  // max_resets_at_once.
  size_t most_to_read() const { return kReadPiece + received_.payload_left(); }
  // How long to wait before the next OnReceived.
  absl::Duration Pause() const;

  // How many bytes of the last OnReceived precede its first incomplete or offending frame. None:
  // that frame began before them.
  std::optional<size_t> whole_bytes() const { return whole_bytes_; }
  bool between_frames() const { return received_.between_frames() && !in_header_block_; }
  size_t open_streams() const { return streams_.size(); }
  // Those that the client has opened since the last call.
  size_t TakeNewStreams() { return std::exchange(new_streams_, 0); }
  // Those of them whose request is not whole.
  size_t unfinished_streams() const { return unfinished_streams_; }
  // Forgets at most `most` open streams. Returns the frames by which a client resets them.
  std::string ResetStreams(size_t most);

 private:
  struct Stream {
    Instant opened = absl::InfinitePast();
    uint8_t prefix_have = 0;  // bytes of the next message's prefix
    uint32_t message_left = 0;
    uint32_t unfinished_bytes = 0;  // held by gRPC until the message is complete
    // After the first message, minus the room that the server has given for them since.
    int64_t further_bytes = 0;
    bool unfinished = true;         // counts for unfinished_streams
    int64_t header_bytes = 0;       // as long as it is unfinished
  };

  static constexpr size_t kReadPiece = 4096;

  absl::Status OnHeader(const Http2Frames::Header& header);
  absl::Status OnPayload(const Http2Frames::Header& header, absl::string_view payload, bool last);
  absl::Status OnSettingBytes(absl::string_view bytes);
  absl::Status OpenStream(const Http2Frames::Header& header);
  absl::Status AddToHeaderBlock(const Http2Frames::Header& header);
  // All headers of the stream have come.
  void CountHeaders(uint32_t id);
  absl::Status OnMessageBytes(uint32_t id, absl::string_view bytes);
  absl::Status Count(RateCount& use, int per_second, absl::string_view limit);
  void EndByClient(uint32_t id);
  bool EndsEarly(uint32_t id);
  size_t MostStreams() const;
  void End(uint32_t id);
  void AddFurtherBytes(Stream& stream, int64_t more);
  void FinishRequest(Stream& stream);

  Http2Limits limits_;
  size_t preface_have_ = 0;
  Http2Frames received_;
  Http2Frames sent_;
  // Arguments of the OnReceived or OnSent that runs.
  Instant now_ = absl::InfinitePast();
  bool suspect_ = false;

  bool in_header_block_ = false;
  bool has_request_ = false;
  bool acknowledged_ = false;  // the client has taken the server's settings
  uint32_t last_stream_ = 0;
  int64_t header_block_bytes_ = 0;
  uint32_t last_header_stream_ = 0;
  int header_frames_ = 0;
  uint32_t number_ = 0;       // a payload's first four bytes
  uint32_t sent_number_ = 0;  // the same of the server
  uint64_t setting_ = 0;      // its last eight bytes
  int setting_have_ = 0;
  absl::flat_hash_map<uint32_t, Stream> streams_;
  int64_t unfinished_bytes_ = 0;
  size_t unfinished_streams_ = 0;
  size_t new_streams_ = 0;
  std::optional<size_t> whole_bytes_;
  RateCount resets_, settings_, idle_;
  RateCount paced_;  // resets that gRPC may not have worked off yet
};

}  // namespace cohort

#endif  // COHORT_BASE_PORT_LIMITS_HTTP2_GUARD_H_
