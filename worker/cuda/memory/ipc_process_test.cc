// Two processes share device memory and wait for each other's streams, on the fake runtime. With a
// GPU they do so on the real one.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/shm/local_socket.h"
#include "base/shm/segment.h"
#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "worker/cuda/device/cuda_device.h"
#include "worker/cuda/memory/copy.h"
#include "worker/cuda/memory/device_memory.h"
#include "worker/cuda/memory/ipc_memory.h"
#include "worker/cuda/memory/pinned_memory.h"
#include "worker/cuda/memory/shareable_memory.h"
#include "worker/cuda/streams/stream.h"
#include "worker/cuda/streams/stream_flag.h"

namespace cohort::worker::cuda {
namespace {

constexpr size_t kBytes = 100'000;
constexpr size_t kOffset = 512;
constexpr size_t kFlagBytes = 4096;

Instant Soon() { return Clock::Steady().Now() + absl::Seconds(60); }

struct Wire {
  ExportedMemory::Kind kind;
  ExportedMemory::LegacyHandle legacy_handle;
  char device_uuid[64];
  size_t allocation_bytes;
  size_t offset;
  size_t bytes;
};

absl::Status Send(const shm::LocalSocket& socket, const ExportedMemory& memory, int flags) {
  Wire wire = {};
  wire.kind = memory.kind;
  wire.legacy_handle = memory.legacy_handle;
  std::strncpy(wire.device_uuid, memory.device_uuid.c_str(), sizeof(wire.device_uuid) - 1);
  wire.allocation_bytes = memory.allocation_bytes;
  wire.offset = memory.offset;
  wire.bytes = memory.bytes;
  std::vector<int> fds = {flags};
  if (memory.fd.is_open()) fds.push_back(memory.fd.get());
  return socket.Send({reinterpret_cast<const char*>(&wire), sizeof(wire)}, fds, Soon());
}

// Returns the memory and the shared flags; an error once the other side has ended.
absl::StatusOr<std::pair<ExportedMemory, UniqueFd>> Receive(const shm::LocalSocket& socket) {
  COHORT_ASSIGN_OR_RETURN(shm::LocalSocket::Message message, socket.Receive(Soon()));
  Wire wire = {};
  if (message.bytes.size() != sizeof(wire) || message.fds.empty()) {
    return absl::InternalError("no such message");
  }
  std::memcpy(&wire, message.bytes.data(), sizeof(wire));
  ExportedMemory memory;
  memory.kind = wire.kind;
  memory.legacy_handle = wire.legacy_handle;
  memory.device_uuid = wire.device_uuid;
  memory.allocation_bytes = wire.allocation_bytes;
  memory.offset = wire.offset;
  memory.bytes = wire.bytes;
  if (message.fds.size() > 1) memory.fd = std::move(message.fds[1]);
  return std::make_pair(std::move(memory), std::move(message.fds[0]));
}

// A stream, and flags in memory that both processes have registered.
struct Side {
  Stream stream;
  shm::Segment segment;
  RegisteredMemory registered;

  uint64_t* flag(int i) const { return reinterpret_cast<uint64_t*>(registered.device_data()) + i; }
};

absl::StatusOr<Side> NewSide(shm::Segment segment) {
  COHORT_ASSIGN_OR_RETURN(Stream stream, Stream::Create(0));
  COHORT_ASSIGN_OR_RETURN(RegisteredMemory registered,
                          RegisteredMemory::Register(segment.data(), segment.size()));
  return Side{std::move(stream), std::move(segment), std::move(registered)};
}

// Import refuses more memory than the allocation has, whatever the message claims.
absl::Status ImportTooMuch(ExportedMemory* memory) {
  constexpr size_t kMore = size_t{1} << 30;
  memory->allocation_bytes += kMore;
  memory->bytes += kMore;
  const absl::Status refused = ImportedMemory::Import(*memory).status();
  memory->allocation_bytes -= kMore;
  memory->bytes -= kMore;
  if (refused.code() == absl::StatusCode::kInvalidArgument) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("too much was imported: ", refused.ToString()));
}

// The importer's stream doubles each byte: after the owner's stream has filled them, and before
// that reads them.
absl::Status ImportOne(const shm::LocalSocket& socket) {
  COHORT_ASSIGN_OR_RETURN(auto received, Receive(socket));
  COHORT_ASSIGN_OR_RETURN(shm::Segment segment,
                          shm::Segment::Map(received.second.release(), kFlagBytes));
  COHORT_ASSIGN_OR_RETURN(const Side side, NewSide(std::move(segment)));
  COHORT_RETURN_IF_ERROR(ImportTooMuch(&received.first));
  {
    COHORT_ASSIGN_OR_RETURN(const ImportedMemory memory, ImportedMemory::Import(received.first));
    COHORT_ASSIGN_OR_RETURN(const PinnedMemory host, PinnedMemory::Allocate(kBytes));
    COHORT_RETURN_IF_ERROR(AwaitFlag(side.stream.get(), side.flag(0), 1));
    COHORT_RETURN_IF_ERROR(Copy(host.data(), memory.data(), kBytes, side.stream.get()));
    COHORT_RETURN_IF_ERROR(socket.Send("enqueued", {}, Soon()));
    COHORT_RETURN_IF_ERROR(Synchronize(side.stream.get(), Soon()));
    for (size_t i = 0; i < kBytes; ++i) host.data()[i] *= 2;
    COHORT_RETURN_IF_ERROR(Copy(memory.data(), host.data(), kBytes, side.stream.get()));
    COHORT_RETURN_IF_ERROR(SetFlag(side.stream.get(), side.flag(1), 1));
    COHORT_RETURN_IF_ERROR(Synchronize(side.stream.get(), Soon()));
  }
  return socket.Send("closed", {}, Soon());
}

// Runs the importer, in a process that has not used CUDA before the fork.
int RunImporter(const std::string& name) {
  const absl::StatusOr<shm::LocalSocket> socket = shm::LocalSocket::Connect(name, Soon());
  if (!socket.ok()) return 2;
  const absl::StatusOr<shm::LocalSocket::Message> begin = socket->Receive(Soon());
  if (!begin.ok()) return 0;  // without a GPU the owner sends nothing
  for (const auto kind : {ExportedMemory::Kind::kFd, ExportedMemory::Kind::kLegacy}) {
    const absl::Status imported = ImportOne(*socket);
    EXPECT_EQ(imported, absl::OkStatus()) << "kind " << static_cast<int>(kind);
    if (!imported.ok()) return 1;
  }
  return 0;
}

void ShareOne(const shm::LocalSocket& socket, const Side& side, char* memory) {
  absl::StatusOr<ExportedMemory> exported = Export(memory + kOffset, kBytes);
  ASSERT_TRUE(exported.ok()) << exported.status();
  ASSERT_EQ(Send(socket, *exported, side.segment.fd()), absl::OkStatus());
  // Both sides have enqueued their waits before the flags are set.
  const absl::StatusOr<shm::LocalSocket::Message> enqueued = socket.Receive(Soon());
  ASSERT_TRUE(enqueued.ok()) << enqueued.status();
  const absl::StatusOr<PinnedMemory> host = PinnedMemory::Allocate(kBytes);
  ASSERT_TRUE(host.ok()) << host.status();
  EXPECT_EQ(Fill(memory + kOffset, 21, kBytes, side.stream.get()), absl::OkStatus());
  EXPECT_EQ(SetFlag(side.stream.get(), side.flag(0), 1), absl::OkStatus());
  EXPECT_EQ(AwaitFlag(side.stream.get(), side.flag(1), 1), absl::OkStatus());
  EXPECT_EQ(Copy(host->data(), memory + kOffset, kBytes, side.stream.get()), absl::OkStatus());
  ASSERT_EQ(Synchronize(side.stream.get(), Soon()), absl::OkStatus());
  EXPECT_EQ(std::string(host->data(), kBytes), std::string(kBytes, 42));
  const absl::StatusOr<shm::LocalSocket::Message> closed = socket.Receive(Soon());
  ASSERT_TRUE(closed.ok()) << closed.status();
}

void ShareBoth(const shm::LocalSocket& socket) {
  const auto with_side = [&socket](char* memory) {
    absl::StatusOr<shm::Segment> segment = shm::Segment::Create("flags", kFlagBytes);
    ASSERT_TRUE(segment.ok());
    const absl::StatusOr<Side> side = NewSide(*std::move(segment));
    ASSERT_TRUE(side.ok()) << side.status();
    ShareOne(socket, *side, memory);
  };
  ASSERT_EQ(socket.Send("begin", {}, Soon()), absl::OkStatus());
  const absl::StatusOr<ShareableMemory> shareable = ShareableMemory::Allocate(0, kOffset + kBytes);
  ASSERT_TRUE(shareable.ok()) << shareable.status();
  ASSERT_NO_FATAL_FAILURE(with_side(shareable->data()));
  const absl::StatusOr<DeviceMemory> plain = DeviceMemory::Allocate(0, kOffset + kBytes);
  ASSERT_TRUE(plain.ok()) << plain.status();
  with_side(plain->data());
}

TEST(IpcProcessTest, TwoProcessesWorkOnTheSameMemoryInOrder) {
  absl::StatusOr<shm::LocalListener> listener = shm::LocalListener::Create();
  ASSERT_TRUE(listener.ok()) << listener.status();
  const std::string name = listener->name();
  // The fork comes before this process calls CUDA.
  const pid_t importer = fork();
  if (importer == 0) {
    *listener = shm::LocalListener();
    _exit(RunImporter(name));
  }
  absl::StatusOr<shm::LocalSocket> socket = listener->Accept(Soon());
  ASSERT_TRUE(socket.ok()) << socket.status();
  const absl::StatusOr<int> count = DeviceCount();
  if (count.ok()) ShareBoth(*socket);
  *socket = shm::LocalSocket();
  int status = 0;
  EXPECT_EQ(waitpid(importer, &status, 0), importer);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  if (!count.ok()) GTEST_SKIP() << "needs a GPU: " << count.status();
}

}  // namespace
}  // namespace cohort::worker::cuda
