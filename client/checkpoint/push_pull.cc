#include "client/checkpoint/push_pull.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/text/printable.h"
#include "client/checkpoint/checksums.h"
#include "nlohmann/json.hpp"

namespace cohort::checkpoint {
namespace {

using Json = nlohmann::json;

// The root's first message. An error in it ends the transfer.
struct Announcement {
  absl::Status status;
  int64_t header_bytes = 0;
  int64_t file_bytes = 0;
  int64_t piece_bytes = 0;
  uint32_t header_crc32 = 0;
};

// An error as text for the other ranks; "" for OK.
std::string Format(const absl::Status& status) {
  if (status.ok()) return "";
  return Json{{"code", static_cast<int>(status.code())}, {"message", std::string(status.message())}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::Status ParseStatus(const std::string& who, absl::string_view text) {
  if (text.empty()) return absl::OkStatus();
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("code") || !json["code"].is_number_integer() ||
      !json.contains("message") || !json["message"].is_string()) {
    return absl::InternalError(absl::StrCat(who, ": malformed status of a checkpoint transfer"));
  }
  return absl::Status(static_cast<absl::StatusCode>(json["code"].get<int>()),
                      absl::StrCat(who, ": ", json["message"].get_ref<const std::string&>()));
}

std::string Format(const Announcement& announcement) {
  if (!announcement.status.ok()) return Format(announcement.status);
  return Json{{"header_bytes", announcement.header_bytes},
              {"file_bytes", announcement.file_bytes},
              {"piece_bytes", announcement.piece_bytes},
              {"header_crc32", announcement.header_crc32}}
      .dump();
}

absl::StatusOr<Announcement> ParseAnnouncement(int root, const std::string& text) {
  const std::string who = absl::StrCat("rank ", root, ", which pushes");
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_object() && json.contains("code")) return ParseStatus(who, text);
  Announcement result;
  const auto number = [&json](const char* name) {
    const auto found = json.find(name);
    return found != json.end() && found->is_number_integer() ? found->get<int64_t>() : -1;
  };
  if (json.is_object()) {
    result.header_bytes = number("header_bytes");
    result.file_bytes = number("file_bytes");
    result.piece_bytes = number("piece_bytes");
    result.header_crc32 = static_cast<uint32_t>(number("header_crc32"));
  }
  if (result.header_bytes < kLengthBytes || result.piece_bytes < 1 ||
      result.header_bytes > kLengthBytes + kMaxHeaderBytes ||
      result.file_bytes < result.header_bytes) {
    return absl::InternalError(absl::StrCat(who, ": malformed announcement of a checkpoint"));
  }
  return result;
}

absl::string_view BytesOf(const Tensor& tensor, int64_t size) {
  return {static_cast<const char*>(tensor.data()), static_cast<size_t>(size)};
}

// The two pieces in flight, in memory that the other ranks can map.
class Pieces {
 public:
  static absl::StatusOr<Pieces> Make(client::Group& group, int64_t data_bytes,
                                     int64_t piece_bytes) {
    Pieces pieces;
    pieces.data_bytes_ = data_bytes;
    pieces.piece_bytes_ = std::min(piece_bytes, std::max<int64_t>(data_bytes, 1));
    for (Tensor& buffer : pieces.buffers_) {
      COHORT_ASSIGN_OR_RETURN(buffer, group.Allocate(DataType::kU8, {pieces.piece_bytes_}));
    }
    return pieces;
  }

  int64_t count() const { return (data_bytes_ + piece_bytes_ - 1) / piece_bytes_; }
  int64_t begin(int64_t piece) const { return piece * piece_bytes_; }
  int64_t size(int64_t piece) const { return std::min(piece_bytes_, data_bytes_ - begin(piece)); }
  absl::StatusOr<Tensor> tensor(int64_t piece) const {
    return buffers_[static_cast<size_t>(piece % 2)].Narrow(0, 0, size(piece));
  }
  char* data(int64_t piece) const {
    return static_cast<char*>(buffers_[static_cast<size_t>(piece % 2)].data());
  }

 private:
  int64_t data_bytes_ = 0;
  int64_t piece_bytes_ = 1;
  std::array<Tensor, 2> buffers_;
};

// Ranks exchange their outcomes; returns them by rank.
absl::StatusOr<std::vector<std::string>> ExchangeOutcomes(client::Group& group,
                                                          const absl::Status& own) {
  return group.AllGatherObjects(Format(own));
}

// --- The root.

absl::Status SendPieces(client::Group& group, const File& file, const TransferOptions& options,
                        Checksums& checksums) {
  COHORT_ASSIGN_OR_RETURN(const Pieces pieces,
                          Pieces::Make(group, file.layout().data_bytes, options.piece_bytes));
  const auto read = [&](int64_t piece) -> absl::Status {
    const auto size = static_cast<size_t>(pieces.size(piece));
    COHORT_RETURN_IF_ERROR(file.Read(pieces.begin(piece), {pieces.data(piece), size}));
    checksums.Add({pieces.data(piece), size});
    return file.CheckUnchanged();
  };
  const auto start = [&read](int64_t piece) { return std::async(std::launch::async, read, piece); };
  std::future<absl::Status> next;
  if (pieces.count() > 0) next = start(0);
  for (int64_t piece = 0; piece < pieces.count(); ++piece) {
    COHORT_RETURN_IF_ERROR(next.get());
    if (piece + 1 < pieces.count()) next = start(piece + 1);
    COHORT_ASSIGN_OR_RETURN(const Tensor tensor, pieces.tensor(piece));
    COHORT_RETURN_IF_ERROR(group.Broadcast(tensor, group.rank()));
    if (options.on_progress) {
      options.on_progress(file.layout().header_bytes + pieces.begin(piece) + pieces.size(piece),
                          file.layout().file_bytes());
    }
  }
  return file.CheckUnchanged();
}

absl::Status SendAll(client::Group& group, const File& file, const TransferOptions& options,
                     Checksums& checksums) {
  COHORT_ASSIGN_OR_RETURN(const Tensor header,
                          group.Allocate(DataType::kU8, {file.layout().header_bytes}));
  std::memcpy(header.data(), file.header().data(), file.header().size());
  COHORT_RETURN_IF_ERROR(group.Broadcast(header, group.rank()));
  COHORT_RETURN_IF_ERROR(SendPieces(group, file, options, checksums));
  const Tensor sums =
      Tensor::Zeros(DataType::kU32, {static_cast<int64_t>(checksums.by_tensor().size())});
  std::copy(checksums.by_tensor().begin(), checksums.by_tensor().end(),
            static_cast<uint32_t*>(sums.data()));
  return group.Broadcast(sums, group.rank());
}

}  // namespace

absl::StatusOr<TransferReport> Push(client::Group& group, const absl::StatusOr<File>& file,
                                    const TransferOptions& options) {
  const Instant begin = Clock::Steady().Now();
  Announcement announcement = {file.status()};
  if (file.ok()) {
    announcement.header_bytes = file->layout().header_bytes;
    announcement.file_bytes = file->layout().file_bytes();
    announcement.piece_bytes = options.piece_bytes;
    announcement.header_crc32 = Crc32(file->header());
  }
  const auto announced = group.BroadcastObject(Format(announcement), group.rank());
  if (!file.ok()) {
    // The other ranks may not have fetched it yet: this rank leaves once they have.
    ExchangeOutcomes(group, file.status()).IgnoreError();
    return file.status();
  }
  COHORT_RETURN_IF_ERROR(announced.status());
  Checksums checksums(file->layout());
  const absl::Status sent = SendAll(group, *file, options, checksums);
  if (!sent.ok()) {
    // Otherwise the other ranks would wait for pieces that do not come.
    group.Abort(sent);
    return sent;
  }
  COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> outcomes,
                          ExchangeOutcomes(group, absl::OkStatus()));
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    COHORT_RETURN_IF_ERROR(ParseStatus(absl::StrCat("rank ", rank), outcomes[rank]));
  }
  return TransferReport{static_cast<int64_t>(file->layout().tensors.size()),
                        file->layout().file_bytes(), Clock::Steady().Now() - begin,
                        checksums.OfFile(file->header())};
}

// --- The others.

namespace {

// Passes pieces to the sink until the sink fails. Later pieces are still received, because the
// other ranks need this one.
class Intake {
 public:
  Intake(const Layout& layout, absl::string_view header, Sink& sink)
      : sink_(sink), checksums_(layout), status_(sink.Begin(layout, header)) {}

  void Take(absl::string_view data) {
    checksums_.Add(data);
    if (status_.ok()) status_ = sink_.Take(data);
  }
  absl::Status End(const Layout& layout, const Tensor& sent) {
    const auto* const sums = static_cast<const uint32_t*>(sent.data());
    for (size_t i = 0; i < layout.tensors.size(); ++i) {
      const uint32_t came = checksums_.by_tensor()[i];
      if (came == sums[i]) continue;
      return absl::DataLossError(
          absl::StrFormat("tensor '%s' was sent with the checksum %08x, and came with %08x",
                          Printable(layout.tensors[i].name), sums[i], came));
    }
    return status_.ok() ? sink_.End() : status_;
  }
  const Checksums& checksums() const { return checksums_; }

 private:
  Sink& sink_;
  Checksums checksums_;
  absl::Status status_;
};

absl::Status ReceivePieces(client::Group& group, int root, const Layout& layout,
                           int64_t piece_bytes, const TransferOptions& options, Intake& intake) {
  COHORT_ASSIGN_OR_RETURN(const Pieces pieces, Pieces::Make(group, layout.data_bytes, piece_bytes));
  std::future<void> before;  // its destructor waits, so the buffers outlive the task
  for (int64_t piece = 0; piece < pieces.count(); ++piece) {
    COHORT_ASSIGN_OR_RETURN(const Tensor tensor, pieces.tensor(piece));
    COHORT_RETURN_IF_ERROR(group.Broadcast(tensor, root));
    if (before.valid()) before.get();
    before = std::async(std::launch::async,
                        [&intake, bytes = BytesOf(tensor, tensor.bytes())] { intake.Take(bytes); });
    if (options.on_progress) {
      options.on_progress(layout.header_bytes + pieces.begin(piece) + pieces.size(piece),
                          layout.file_bytes());
    }
  }
  if (before.valid()) before.get();
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReceiveHeader(client::Group& group, int root,
                                          const Announcement& announcement) {
  COHORT_ASSIGN_OR_RETURN(const Tensor tensor,
                          group.Allocate(DataType::kU8, {announcement.header_bytes}));
  COHORT_RETURN_IF_ERROR(group.Broadcast(tensor, root));
  std::string header(BytesOf(tensor, announcement.header_bytes));
  if (Crc32(header) == announcement.header_crc32) return header;
  return absl::DataLossError("the header did not come as it was sent");
}

struct Received {
  TransferReport report;
  absl::Status kept;  // this rank's own error; the transfer itself is complete
};

absl::StatusOr<Received> ReceiveAll(client::Group& group, int root,
                                    const Announcement& announcement, Sink& sink,
                                    const TransferOptions& options) {
  COHORT_ASSIGN_OR_RETURN(const std::string header, ReceiveHeader(group, root, announcement));
  COHORT_ASSIGN_OR_RETURN(const Layout layout, ParseHeader(header, announcement.file_bytes));
  Intake intake(layout, header, sink);
  COHORT_RETURN_IF_ERROR(
      ReceivePieces(group, root, layout, announcement.piece_bytes, options, intake));
  const Tensor sums = Tensor::Zeros(DataType::kU32, {static_cast<int64_t>(layout.tensors.size())});
  COHORT_RETURN_IF_ERROR(group.Broadcast(sums, root));
  Received received;
  received.kept = intake.End(layout, sums);
  COHORT_RETURN_IF_ERROR(ExchangeOutcomes(group, received.kept).status());
  received.report.tensors = static_cast<int64_t>(layout.tensors.size());
  received.report.bytes = layout.file_bytes();
  received.report.crc32 = intake.checksums().OfFile(header);
  return received;
}

}  // namespace

absl::StatusOr<TransferReport> Pull(client::Group& group, int root, Sink& sink,
                                    const TransferOptions& options) {
  COHORT_ASSIGN_OR_RETURN(const std::string text, group.BroadcastObject("", root));
  const Instant begin = Clock::Steady().Now();
  const absl::StatusOr<Announcement> announcement = ParseAnnouncement(root, text);
  if (!announcement.ok()) {
    ExchangeOutcomes(group, announcement.status()).IgnoreError();
    return announcement.status();
  }
  absl::StatusOr<Received> received = ReceiveAll(group, root, *announcement, sink, options);
  if (!received.ok()) {
    // The other ranks wait for this rank's outcome.
    group.Abort(received.status());
    return received.status();
  }
  COHORT_RETURN_IF_ERROR(received->kept);
  received->report.time = Clock::Steady().Now() - begin;
  return received->report;
}

}  // namespace cohort::checkpoint
