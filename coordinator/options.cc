#include "coordinator/options.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/port/limits/incomplete_request_bytes.h"
#include "coordinator/core/interface/limit_names.h"

namespace cohort::coordinator {
namespace {

// gRPC takes message sizes as int.
constexpr int64_t kMaxMessageBytes = int64_t{1} << 30;
constexpr absl::Duration kLongestConnectionAge = absl::Hours(480);  // gRPC counts milliseconds in an int
constexpr int kMostCounted = 1 << 24;

absl::Status Check(const Options& options) {
  if (options.journal == JournalKind::kMemory && !options.journal_path.empty()) {
    return InvalidFlag("journal-path", "is of no use with --journal memory");
  }
  if (options.journal == JournalKind::kMemory && options.restored) {
    return InvalidFlag("restored", "is of no use with --journal memory");
  }
  if (options.journal == JournalKind::kSqlite && options.journal_path.empty()) {
    return InvalidFlag("journal-path", "is needed with --journal sqlite");
  }
  const int64_t incoming = MaxIncomingBytes(options.listener.max_incoming_bytes);
  if (options.max_message_bytes > incoming / 2) {
    return InvalidFlag(
        "max-message-bytes",
        absl::StrCat(options.max_message_bytes, " is over half of --max-incoming-bytes (", incoming,
                     "): raise that, which is by default an eighth of the "
                     "memory that the process may use"));
  }
  for (const auto& [name, bytes] :
       {std::pair<const char*, int64_t>{"max_inline_bytes", options.limits.max_inline_bytes},
        std::pair<const char*, int64_t>{"max_value_bytes", options.limits.max_value_bytes}}) {
    if (bytes >= options.max_message_bytes) {
      return InvalidFlag("limit",
                         absl::StrCat(name, "=", bytes, " must be below --max-message-bytes (",
                                      options.max_message_bytes, ")"));
    }
  }
  return absl::OkStatus();
}

std::vector<std::string> Pairs(const Limits& limits) {
  std::vector<std::string> pairs;
  for (const LimitName& limit : LimitNames()) {
    pairs.push_back(absl::StrCat(limit.name, "=", limits.*limit.field));
  }
  return pairs;
}

}  // namespace

Limits DefaultLimits(int64_t memory_bytes) {
  // A name of a closed group takes up to 1 KiB, and stays.
  constexpr int64_t kClosedNameBytes = 1024;
  Limits limits;
  limits.max_bytes_held = std::max<int64_t>(memory_bytes / 2, 1);
  limits.max_group_bytes_held = std::min(limits.max_group_bytes_held, limits.max_bytes_held);
  // The rest is for the other tenants.
  limits.max_tenant_bytes_held = std::max<int64_t>(limits.max_bytes_held / 4 * 3, 1);
  limits.max_closed_names =
      std::clamp<int64_t>(limits.max_bytes_held / 8 / kClosedNameBytes, 1, limits.max_closed_names);
  return limits;
}

Flags FlagsOf(Options& options) {
  Flags flags("cohort-coordinator", "Cohort's coordinator: process groups over gRPC");
  flags.Add(options);
  flags.AddAccess(options);
  flags.Add("journal", options.journal, {"memory", "sqlite"},
            "what survives a restart: memory (nothing) or sqlite (memory)");
  flags.Add("journal-path", options.journal_path, "file of the sqlite journal");
  flags.Add("restored", options.restored,
            "for the first start with a copy of the journal that is older than what clients have "
            "seen: no number comes a second time, and all groups are closed");
  flags.Add("shards", options.shards, 1, 256,
            "parts of the state with a lock each; a group lives in one (4)");
  flags.Add("framed-rpc-threads", options.framed_rpc_threads, 0, 64,
            "threads for calls in plain frames, on the same addresses; 0: gRPC alone (1)");
  flags.Add(
      "tcpstore-threads", options.tcpstore_threads, 0, 64,
      "threads for clients of PyTorch's TCPStore, on the same addresses; each port is a store "
      "of its own; 0: none are served (1)");
  flags.Add("torchft-min-replicas", options.torchft.min_replicas, 0, kMostCounted,
            "as torchft's lighthouse: replicas in a quorum at least; each port is a job of its "
            "own; 0: torchft is not served (1)");
  flags.Add("torchft-join-timeout", options.torchft.join_timeout, absl::ZeroDuration(),
            absl::Hours(24),
            "how long a quorum of torchft waits for replicas that send heartbeats and have not "
            "asked for it (60s)");
  flags.Add("torchft-heartbeat-timeout", options.torchft.heartbeat_timeout, absl::Milliseconds(1),
            absl::Hours(24),
            "a replica of torchft that was silent for so long does not count (5s)");
  flags.Add("ping-timeout", options.ping_timeout, absl::ZeroDuration(), absl::Hours(1),
            "a gRPC connection whose peer answers no ping for so long is closed; pings go "
            "out after half of it without data; 0s: no pings (40s)");
  flags.Add("max-wait", options.max_wait, absl::Milliseconds(1), absl::Hours(24),
            "no call is parked longer (1h)");
  flags.Add("max-message-bytes", options.max_message_bytes, 1024, kMaxMessageBytes,
            "largest request, in bytes (4194304)");
  flags.Add("max-incoming-bytes", options.listener.max_incoming_bytes, 0,
            std::numeric_limits<int64_t>::max(),
            "bytes of requests that are not complete, over all connections, of which those of "
            "one address may have three quarters; the same again for TLS handshakes; 0: an eighth "
            "of the memory that the process "
            "may use, and 16777216 at least (0)");
  flags.Add("max-connections", options.listener.max_connections, 0, kMostCounted,
            "connections at once; 0: what the limit of open files leaves, at most 65536 (0)");
  flags.Add("max-connections-per-peer", options.listener.max_connections_per_peer, 0, kMostCounted,
            "connections at once of one address; 0: three quarters of all (0)");
  flags.Add("max-connection-age", options.listener.max_connection_age, absl::ZeroDuration(),
            kLongestConnectionAge,
            "the age at which a connection by TLS is closed, so that the client shows its "
            "certificate again; 0: no limit (24h)");
  flags.Add("max-concurrent-streams", options.listener.http2.max_concurrent_streams, 0,
            kMostCounted,
            "gRPC calls at once on one connection, parked ones included; more wait in the "
            "client; plain frames carry 16 times as many; 0: no limit (2048)");
  flags.Add("max-resets-per-second", options.listener.http2.max_resets_per_second, 1,
            std::numeric_limits<int>::max(),
            "gRPC calls that one connection may cancel in a second, within a second of their "
            "begin; more close the connection (1000)");
  flags.Add("max-idle-frames-per-second", options.listener.http2.max_idle_frames_per_second, 1,
            std::numeric_limits<int>::max(),
            "frames without effect that one connection may send in a second; more close the "
            "connection; plain frames: 16 times as many (5000)");
  std::vector<std::string> names = Pairs(options.limits);
  for (size_t i = 0; i < names.size(); ++i) {
    absl::StrAppend(&names[i], " (", CountedBy(LimitNames()[i].name), ")");
  }
  flags.AddPairs(
      "limit",
      [&options](const std::string& name, int64_t value) {
        return SetLimit(name, value, &options.limits);
      },
      [&options] { return Pairs(options.limits); },
      absl::StrCat("NAME=VALUE, repeatable; names, defaults, and counted things: ",
                   absl::StrJoin(names, ", ")));
  flags.AddCheck([&options] { return Check(options); });
  return flags;
}

}  // namespace cohort::coordinator
