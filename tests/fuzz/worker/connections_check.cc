#include "tests/fuzz/worker/connections_check.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/shm/local_socket.h"
#include "base/shm/segment.h"
#include "cohort/v1/connections.pb.h"
#include "tests/fuzz/worker/descriptors.h"
#include "worker/group/connections/connections.h"
#include "worker/group/connections/transfer_connections.h"

namespace cohort::worker::fuzz {
namespace {

using shm::LocalListener;
using shm::LocalSocket;

constexpr absl::Duration kAtOnce = absl::Seconds(5);

Instant Soon() { return Clock::Steady().Now() + kAtOnce; }
// A deadline that has passed: no process receives yet, so bytes that do not fit into the queue are
// dropped.
Instant Now() { return Clock::Steady().Now(); }

void SendInPieces(const LocalSocket& socket, absl::string_view bytes) {
  while (!bytes.empty()) {
    const absl::string_view piece = bytes.substr(0, LocalSocket::kMaxBytes);
    socket.Send(piece, {}, Now()).IgnoreError();
    bytes.remove_prefix(piece.size());
  }
}

void Say(const LocalSocket& socket, absl::string_view bytes) {
  Input input(bytes);
  const bool proper = input.Byte() % 2 == 1;
  const std::vector<UniqueFd> fds = ReadFds(input);
  const std::vector<int> numbers = NumbersOf(fds);
  if (proper) {
    const absl::string_view body = input.Rest();
    const uint32_t preface[] = {static_cast<uint32_t>(body.size()),
                                static_cast<uint32_t>(numbers.size())};
    socket.Send({reinterpret_cast<const char*>(preface), sizeof(preface)}, {}, Now()).IgnoreError();
    SendInPieces(socket, body);
    if (!numbers.empty()) socket.Send("d", numbers, Now()).IgnoreError();
    return;
  }
  // Sends all descriptors with each message.
  while (!input.empty()) {
    const absl::string_view message = input.Bytes(input.Byte());
    if (!message.empty()) socket.Send(message, numbers, Now()).IgnoreError();
  }
}

absl::Status Check(absl::string_view input, bool* taken) {
  const absl::StatusOr<LocalListener> listener = LocalListener::Create();
  if (!listener.ok()) return absl::InternalError(listener.status().message());
  const absl::StatusOr<LocalSocket> client = LocalSocket::Connect(listener->name(), Soon());
  {
    const absl::StatusOr<LocalSocket> daemon = listener->Accept(Soon());
    Say(*daemon, input);
  }
  // The daemon is gone, so the receiver does not wait.
  static const auto* const heap = new std::shared_ptr<const shm::Segment>(
      std::make_shared<shm::Segment>(*shm::Segment::Create("fuzz-own-heap", kHeapBytes)));
  const Instant begin = Clock::Steady().Now();
  absl::StatusOr<Connections> connections = ReceiveConnections(*client, *heap, Soon());
  absl::Status status = connections.status();
  if (status.ok()) {
    *taken = true;
    absl::StatusOr<std::unique_ptr<Communicator>> group = MakeCommunicator(*std::move(connections));
    status = group.ok() ? (*group)->Barrier(Clock::Steady().Now()) : group.status();
  }
  if (Clock::Steady().Now() - begin > kAtOnce) return absl::InternalError("it took long");
  switch (status.code()) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kResourceExhausted:
      return absl::OkStatus();
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kDeadlineExceeded:
      if (*taken) return absl::OkStatus();  // the barrier
      break;
    default:
      break;
  }
  return absl::InternalError(absl::StrCat("an unexpected status: ", status.ToString()));
}

std::string Sample(const v1::ConnectionsMessage& message, const std::vector<FdKind>& kinds) {
  std::string input = {1, static_cast<char>(kinds.size())};
  for (const FdKind kind : kinds) input += static_cast<char>(kind);
  return input + message.SerializeAsString();
}

v1::ConnectionsMessage Said(int rank, const std::vector<std::vector<int>>& hosts) {
  v1::ConnectionsMessage message;
  message.set_version(kConnectionsVersion);
  message.set_rank(rank);
  for (const std::vector<int>& host : hosts) {
    message.add_hosts()->mutable_ranks()->Add(host.begin(), host.end());
    for (size_t i = 0; i < host.size(); ++i) {
      message.add_paths("x");
      message.add_machines("here");
    }
  }
  return message;
}

}  // namespace

absl::Status CheckReceiveConnections(absl::string_view input, bool* taken) {
  bool own_taken = false;
  const int before = OpenFds();
  const absl::Status status = Check(input, taken != nullptr ? taken : &own_taken);
  static const int kKept = 1;  // the heap, from the first time on
  if (status.ok() && OpenFds() > before + kKept) {
    return absl::InternalError("descriptors stay open");
  }
  return status;
}

std::vector<std::string> SampleConnections() {
  std::vector<std::string> samples;
  samples.push_back(Sample(Said(0, {{0}}), {}));
  v1::ConnectionsMessage together = Said(1, {{0, 1}});
  together.add_heap_bytes(kHeapBytes);
  together.add_heap_bytes(kHeapBytes);
  for (int kind = 0; kind < kFdKinds; ++kind) {
    samples.push_back(Sample(together, {FdKind::kSpace, static_cast<FdKind>(kind), FdKind::kHeap}));
    samples.push_back(Sample(together, {static_cast<FdKind>(kind), FdKind::kHeap, FdKind::kHeap}));
  }
  v1::ConnectionsMessage with_operation_log = together;
  with_operation_log.set_has_operation_log(true);
  for (int kind = 0; kind < kFdKinds; ++kind) {
    samples.push_back(Sample(with_operation_log, {FdKind::kSpace, FdKind::kHeap, FdKind::kHeap,
                                                  static_cast<FdKind>(kind)}));
  }
  together.set_heap_bytes(0, ~uint64_t{0});
  samples.push_back(Sample(together, {FdKind::kSpace, FdKind::kHeap, FdKind::kHeap}));
  v1::ConnectionsMessage apart = Said(0, {{0}, {1}});
  apart.add_mesh_streams(0);
  apart.add_mesh_streams(1);
  for (int kind = 0; kind < kFdKinds; ++kind) {
    samples.push_back(Sample(apart, {static_cast<FdKind>(kind)}));
  }
  v1::ConnectionsMessage both = Said(2, {{0, 1}, {2, 3}});
  for (int i = 0; i < 2; ++i) both.add_heap_bytes(kHeapBytes);
  for (const int count : {1, 1, 0, 1}) both.add_mesh_streams(count);
  for (const int count : {1, 0}) both.add_crossing_streams(count);
  samples.push_back(Sample(both, {FdKind::kSpace, FdKind::kHeap, FdKind::kHeap, FdKind::kStream,
                                  FdKind::kStream, FdKind::kStream, FdKind::kStream}));
  samples.push_back(std::string("\0\1\1\10\4\0\0\0\1\0\0\0\4abcd\1d", 19));
  return samples;
}

}  // namespace cohort::worker::fuzz
