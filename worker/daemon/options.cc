#include "worker/daemon/options.h"

#include <limits>

namespace cohort::worker {
namespace {

// A part of a tensor and its envelope must fit.
constexpr int64_t kMinMessageBytes = int64_t{64} << 10;
// gRPC takes message sizes as int.
constexpr int64_t kMaxMessageBytes = int64_t{1} << 30;
constexpr int kMaxCalls = 65536;
constexpr int64_t kMostTensorBytes = int64_t{1} << 60;
constexpr int kNoLimit = std::numeric_limits<int>::max();

}  // namespace

Flags FlagsOf(Options& options) {
  Flags flags("cohort-worker", "Cohort's worker: ranks of groups, on behalf of clients");
  flags.Add("coordinator", options.coordinator,
            "of groups whose clients name none: host:port, [ipv6]:port or unix:/path "
            "(127.0.0.1:7700)");
  flags.Add(options);
  flags.AddAccess(options);
  flags.Add(
      "allowed-coordinators", options.allowed_coordinators,
      "further coordinators that clients may name, as they write the address; \"*\": all (none)");
  flags.Add("advertise", options.advertise,
            "host by which workers of other machines reach this one; empty: the address that "
            "leads to the coordinator");
  flags.Add("host-identity", options.host_identity,
            "workers with different ones share no memory; empty: this machine and its network "
            "namespace");
  flags.Add("host-folder", options.host_folder,
            "folder in which ranks and clients of one machine and user meet across network "
            "namespaces, such as those of containers, to share memory; empty: COHORT_HOST_FOLDER");
  flags.Add("max-calls", options.max_calls, 1, kMaxCalls,
            "calls that block at once, each of which has a thread (1024)");
  flags.Add("max-calls-per-session", options.max_calls_per_session, 1, kMaxCalls,
            "of --max-calls, those of one client's session; its WriteTensor and "
            "ReadTensor streams count (256)");
  flags.Add("stream-idle-limit", options.stream_idle_limit, absl::Milliseconds(100),
            absl::Hours(24),
            "time without a part after which a WriteTensor or ReadTensor stream is ended (30s)");
  flags.Add("max-descriptors", options.max_descriptors, 0, kNoLimit,
            "descriptors that sessions keep open here: memory, attached clients, groups; "
            "0: three eighths of the limit of open files (0)");
  flags.Add("max-descriptors-per-session", options.max_descriptors_per_session, 0, kNoLimit,
            "of --max-descriptors, those of one client's session; 0: half of them (0)");
  flags.Add("max-tensor-bytes", options.max_tensor_bytes, int64_t{0}, kMostTensorBytes,
            "memory that tensors of clients take here, those of attached clients apart, and inline "
            "tensors and objects of calls in flight; 0: three quarters of what the machine and its "
            "cgroup let this process have (0)");
  flags.Add("max-tensor-bytes-per-session", options.max_tensor_bytes_per_session, int64_t{0},
            kMostTensorBytes,
            "of --max-tensor-bytes, that of one client's session; 0: all of it (0)");
  flags.Add("max-message-bytes", options.max_message_bytes, kMinMessageBytes, kMaxMessageBytes,
            "largest request, in bytes (16777216)");
  flags.AddCheck([&options] {
    return options.coordinator.empty() ? InvalidFlag("coordinator", "no address")
                                       : absl::OkStatus();
  });
  return flags;
}

QuotaLimits TensorLimitsOf(const Options& options, int64_t memory) {
  QuotaLimits limits;
  // The rest is for the process itself, and for bytes on their way to and from clients.
  limits.max_in_all = options.max_tensor_bytes > 0 ? options.max_tensor_bytes : memory / 4 * 3;
  limits.max_per_session = options.max_tensor_bytes_per_session;
  return limits;
}

}  // namespace cohort::worker
