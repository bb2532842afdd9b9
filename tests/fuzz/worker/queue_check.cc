#include "tests/fuzz/worker/queue_check.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/shm/local_socket.h"
#include "base/status_macros.h"
#include "client/parallel/queue/connections/handshake.h"
#include "client/parallel/queue/connections/local_acceptor.h"
#include "client/parallel/queue/connections/local_reader.h"
#include "client/parallel/queue/ring/record_reader.h"
#include "client/parallel/queue/ring/ring_source.h"
#include "client/parallel/queue/ring/ring_writer.h"
#include "client/parallel/queue/ring/wire_text.h"
#include "cohort/v1/queue.pb.h"
#include "tests/fuzz/worker/input.h"

namespace cohort::worker::fuzz {
namespace {

using parallel::LocalAcceptor;
using parallel::PageMemory;
using parallel::RecordHeader;
using parallel::RingMemory;
using parallel::RingSource;
using parallel::RingWriter;
using parallel::WaitLimit;

// An input begins with one byte, its kind modulo 4:
//   a writer    shift (8 bytes), then steps, each: how (1 byte: bit 0, it ends; bit 1, the reader
//               views; bit 2, the tail jumps by the next 8 bytes), length (1 byte), bytes that it
//               appends
//   readers     steps, each: the page (1 byte), the field (1 byte), the number written to it
//               (8 bytes), the size of the writer's next value (2 bytes)
//   messages    any bytes: a handle, a hello, a welcome, a text
//   readers     packets, each: length (1 byte), bytes; a length of 0xFF: a proper hello
constexpr int kKinds = 4;
constexpr int kWriter = 0;
constexpr int kReaders = 1;
constexpr int kMessages = 2;

constexpr int64_t kRing = 8192;
constexpr uint64_t kMostValue = 16384;
constexpr int kMostSteps = 32;
constexpr absl::Duration kSoon = absl::Seconds(10);
const char kToken[] = "0123456789abcdef";

absl::Status Violation(absl::string_view what) { return absl::InternalError(what); }
WaitLimit AtOnce() { return WaitLimit(absl::ZeroDuration(), nullptr); }
WaitLimit Soon() { return WaitLimit(kSoon, nullptr); }

bool CanTravel(absl::string_view text) { return parallel::WireText(text, text.size()) == text; }

// `about`: the operation that returned the error.
absl::Status CheckError(const absl::Status& status, absl::string_view about) {
  const bool known = status.ok() || absl::IsDeadlineExceeded(status) || absl::IsDataLoss(status) ||
                     absl::IsCancelled(status) || absl::IsAborted(status) ||
                     absl::IsInvalidArgument(status) || absl::IsPermissionDenied(status);
  if (known && CanTravel(status.message())) return absl::OkStatus();
  return Violation(absl::StrCat(about, ": an unexpected status: ", status.ToString()));
}

v1::QueueHandle Handle() {
  v1::QueueHandle handle;
  handle.set_version(parallel::kQueueVersion);
  handle.set_writer("rank 0");
  handle.set_token(kToken);
  handle.set_capacity_bytes(kRing);
  handle.set_max_value_bytes(kMostValue);
  return handle;
}

// Checks a reader of a ring into which the input writes.
absl::Status CheckWriter(Input input, int* done) {
  COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<RingMemory> ring, RingMemory::Create(kRing));
  COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<PageMemory> page, PageMemory::Create());
  // Mapped read-only, as in the reader's process: a write there ends the program.
  COHORT_ASSIGN_OR_RETURN(std::shared_ptr<RingMemory> mapped,
                          RingMemory::Map(UniqueFd(dup(ring->fd())), kRing));
  RingSource source(std::move(mapped), page, "rank 0");
  parallel::RecordReader records(source, kMostValue);
  parallel::RingHeader& header = ring->header();
  header.parties.store(1000);  // so that no process spins
  header.shift.store(input.Number<uint64_t>());
  uint64_t tail = 0;
  for (int step = 0; step < kMostSteps && !input.empty(); ++step) {
    const uint8_t how = input.Byte();
    if ((how & 4) != 0) tail += input.Number<uint64_t>();
    const absl::string_view bytes = input.Bytes(input.Byte());
    std::memcpy(ring->AtPosition(tail), bytes.data(), bytes.size());
    tail += (bytes.size() + 15) / 16 * 16;
    header.tail.store(tail);
    if ((how & 1) != 0) {
      header.reason_size = static_cast<uint32_t>(tail * 7919);
      std::memcpy(header.reason, bytes.data(), bytes.size());
      header.ended.store(1);
    }
    for (int value = 0; value < kMostSteps; ++value) {
      size_t size = 0;
      absl::Status status;
      if ((how & 2) != 0) {
        status = records.View(
            [&](absl::string_view seen) {
              size = std::string(seen).size();
              return absl::OkStatus();
            },
            AtOnce());
      } else {
        const absl::StatusOr<std::string> next = records.Next(AtOnce());
        status = next.status();
        if (next.ok()) size = next->size();
      }
      COHORT_RETURN_IF_ERROR(CheckError(status, "a reader"));
      if (size > kMostValue) return Violation("a value that is longer than was agreed");
      if (!status.ok()) break;
      ++*done;
    }
  }
  return absl::OkStatus();
}

class PlainSlot final : public parallel::ReaderSlot {
 public:
  PlainSlot(std::string name, std::shared_ptr<PageMemory> page)
      : ReaderSlot(std::move(name), "here"), page_(std::move(page)) {}
  parallel::ReaderPage& page() override { return page_->page(); }
  void Admitted() override {}
  void Wake() override { page().reader_sleeps.store(0); }
  void Left(absl::string_view why) override { left_ = CanTravel(why) && !why.empty(); }
  bool left() const { return left_; }

 private:
  const std::shared_ptr<PageMemory> page_;
  bool left_ = false;
};

// Checks a writer whose readers write arbitrary numbers into their pages. The last reader is
// honest, and gets all written values.
absl::Status CheckReaders(Input input, int* done) {
  COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<RingMemory> ring, RingMemory::Create(kRing));
  RingWriter writer(ring, false);
  std::vector<std::shared_ptr<PlainSlot>> slots;
  for (const char* name : {"liar 1", "liar 2", "honest"}) {
    COHORT_ASSIGN_OR_RETURN(std::shared_ptr<PageMemory> page, PageMemory::Create());
    slots.push_back(std::make_shared<PlainSlot>(name, std::move(page)));
    writer.Admit(slots.back());
  }
  COHORT_ASSIGN_OR_RETURN(std::shared_ptr<PageMemory> page, PageMemory::Create());
  page->page().head.store(slots[2]->page().head.load());
  RingSource source(ring, page, "rank 0");
  parallel::RecordReader records(source, kMostValue);
  ring->header().parties.store(1000);  // so that no process spins
  for (int step = 0; step < kMostSteps && !input.empty(); ++step) {
    parallel::ReaderPage& other = slots[input.Byte() % 2]->page();
    const uint8_t field = input.Byte() % 5;
    const auto number = input.Number<uint64_t>();
    if (field == 0) other.head.store(number);
    if (field == 1) other.values.store(number);
    if (field == 2) other.reader_sleeps.store(static_cast<uint32_t>(number));
    if (field == 3) other.awaited_head.store(number);
    if (field == 4) other.head.store(writer.tail());
    const std::string value(input.Number<uint16_t>() % kMostValue, static_cast<char>(step));
    const absl::Status status = writer.Write(value, AtOnce());
    COHORT_RETURN_IF_ERROR(CheckError(status, "a writer"));
    // A value this large passes through the ring in parts, which no thread here reads meanwhile.
    if (value.size() >= kRing / 4) return absl::OkStatus();
    const absl::StatusOr<std::string> read = records.Next(AtOnce());
    slots[2]->page().head.store(page->page().head.load());
    if (status.ok() != read.ok() || (read.ok() && *read != value)) {
      return Violation(
          absl::StrCat("an honest reader gets something else: ", read.status().ToString()));
    }
    if (status.ok()) ++*done;
  }
  for (size_t i = 0; i < 2; ++i) {
    if (slots[i]->gone() != slots[i]->left()) return Violation("a reader that is not told why");
  }
  if (slots[2]->gone()) return Violation("an honest reader lost its slot");
  return absl::OkStatus();
}

absl::Status CheckMessages(absl::string_view bytes) {
  const absl::StatusOr<v1::QueueHandle> handle = parallel::ParseHandle(bytes);
  COHORT_RETURN_IF_ERROR(CheckError(handle.status(), "a handle"));
  v1::QueueHello hello;
  if (hello.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    COHORT_RETURN_IF_ERROR(CheckError(parallel::CheckHello(hello, Handle()), "a hello"));
  }
  v1::QueueWelcome welcome;
  if (welcome.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    COHORT_RETURN_IF_ERROR(CheckError(parallel::CheckWelcome(welcome), "a welcome"));
  }
  for (const size_t most : {bytes.size(), bytes.size() / 2, size_t{3}}) {
    const std::string text = parallel::WireText(bytes, most);
    v1::QueueEnd end;
    end.set_reason(text);
    v1::QueueEnd other;
    if (text.size() > most || !other.ParseFromString(end.SerializeAsString()) ||
        parallel::WireText(text, most) != text) {
      return Violation("a text that cannot travel");
    }
    const v1::QueueHello named = parallel::HelloTo(Handle(), std::string(bytes));
    if (!hello.ParseFromString(named.SerializeAsString())) {
      return Violation("a hello that cannot travel");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckConnections(Input input, int* done) {
  v1::QueueHandle handle = Handle();
  COHORT_ASSIGN_OR_RETURN(std::shared_ptr<RingMemory> ring, RingMemory::Create(kRing));
  const auto writer = std::make_shared<RingWriter>(std::move(ring), true);
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<LocalAcceptor> acceptor,
                          LocalAcceptor::Open(writer, handle));
  handle.set_local(acceptor->name());
  const Instant deadline = Clock::Steady().Now() + kSoon;
  COHORT_ASSIGN_OR_RETURN(const shm::LocalSocket connection,
                          shm::LocalSocket::Connect(handle.local(), deadline));
  for (int packet = 0; packet < kMostSteps && !input.empty(); ++packet) {
    const uint8_t length = input.Byte();
    v1::QueueLocalStep hello;
    *hello.mutable_hello() = parallel::HelloTo(handle, "a reader");
    const std::string bytes =
        length == 0xFF ? hello.SerializeAsString() : std::string(input.Bytes(length));
    if (bytes.empty() || !connection.Send(bytes, {}, absl::InfinitePast()).ok()) break;
  }
  COHORT_ASSIGN_OR_RETURN(const auto source,
                          parallel::OpenLocalReader(handle, "a proper reader", deadline));
  COHORT_RETURN_IF_ERROR(writer->Write("a value", Soon()));
  parallel::RecordReader records(*source, kMostValue);
  const absl::StatusOr<std::string> value = records.Next(Soon());
  if (!value.ok() || *value != "a value") return Violation("a proper reader reads something else");
  ++*done;
  return absl::OkStatus();
}

std::string Number(uint64_t value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string Record(uint64_t value_bytes, uint32_t part_bytes, uint32_t kind) {
  const RecordHeader header = {value_bytes, part_bytes, kind};
  return std::string(reinterpret_cast<const char*>(&header), sizeof(header)) +
         std::string(std::min<uint32_t>(part_bytes, 64), 'v');
}

}  // namespace

absl::Status CheckQueue(absl::string_view bytes, int* done) {
  int own_done = 0;
  if (done == nullptr) done = &own_done;
  Input input(bytes);
  switch (input.Byte() % kKinds) {
    case kWriter:
      return CheckWriter(input, done);
    case kReaders:
      return CheckReaders(input, done);
    case kMessages:
      return CheckMessages(input.Rest());
    default:
      return CheckConnections(input, done);
  }
}

std::vector<std::string> SampleQueues() {
  std::vector<std::string> samples;
  const auto step = [](char how, const std::string& bytes) {
    return std::string(1, how) + std::string(1, static_cast<char>(bytes.size())) + bytes;
  };
  for (const char how : {0, 2}) {
    for (const uint64_t shift : {uint64_t{0}, uint64_t{8184}, ~uint64_t{0}}) {
      const std::string begin = std::string(1, 0) + Number(shift);
      samples.push_back(begin + step(how, Record(5, 5, RecordHeader::kWhole)) +
                        step(how, Record(0, 0, RecordHeader::kWhole)));
      samples.push_back(begin + step(how, Record(80, 40, RecordHeader::kFirst)) +
                        step(how, Record(80, 40, RecordHeader::kNext)));
      samples.push_back(begin + step(how, Record(80, 40, RecordHeader::kFirst)) +
                        step(how, Record(0, 0, RecordHeader::kAbandoned)) +
                        step(how, Record(5, 5, RecordHeader::kWhole)));
      samples.push_back(begin + step(how, Record(uint64_t{1} << 60, 64, RecordHeader::kFirst)));
      samples.push_back(begin + step(how, Record(64, ~uint32_t{0}, RecordHeader::kWhole)));
      samples.push_back(begin + step(how, Record(16000, 16000, RecordHeader::kWhole)));
      samples.push_back(begin + step(how, Record(5, 5, 99)));
      samples.push_back(begin + step(static_cast<char>(how | 1), "\xFF\xFE why"));
      samples.push_back(begin + std::string(1, static_cast<char>(how | 4)) +
                        Number(uint64_t{1} << 63) + step(0, "").substr(1));
    }
  }
  const auto page = [](char which, char field, uint64_t value, uint16_t size) {
    return std::string({which, field}) + Number(value) +
           std::string(reinterpret_cast<const char*>(&size), sizeof(size));
  };
  for (const uint64_t head : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40, ~uint64_t{0}}) {
    for (char field = 0; field < 4; ++field) {
      samples.push_back(std::string(1, 1) + page(0, 4, 0, 100) + page(1, 4, 0, 1000) +
                        page(0, field, head, 1500) + page(1, field, head, 2000) +
                        page(0, 4, 0, 2000) + page(0, 4, 0, 12000));
    }
  }
  samples.push_back(std::string(1, 2) + Handle().SerializeAsString());
  samples.push_back(std::string(1, 2) + parallel::HelloTo(Handle(), "x").SerializeAsString());
  samples.push_back(std::string(1, 2) + parallel::WelcomeOf(Handle(), 16).SerializeAsString());
  samples.push_back(std::string(1, 2) + "caf\xC3\xA9 \xE2\x82\xAC \xED\xA0\x80 \xFF");
  v1::QueueLocalStep mapped;
  mapped.set_mapped(true);
  v1::QueueLocalStep leaves;
  leaves.mutable_leaves()->set_reason("enough");
  const auto packet = [](const std::string& bytes) {
    return std::string(1, static_cast<char>(bytes.size())) + bytes;
  };
  const std::string hello(1, '\xFF');
  for (const std::string& packets :
       {hello, hello + hello, hello + packet(mapped.SerializeAsString()),
        hello + packet(mapped.SerializeAsString()) + packet(leaves.SerializeAsString()),
        hello + packet(mapped.SerializeAsString()) + packet(mapped.SerializeAsString()),
        packet(mapped.SerializeAsString()), packet("nonsense")}) {
    samples.push_back(std::string(1, 3) + packets);
  }
  return samples;
}

}  // namespace cohort::worker::fuzz
