#include "base/framed_rpc/frame.h"

#include <algorithm>
#include <cstring>

namespace cohort::framed_rpc {
namespace {

// A reader of large frames does not keep their size for ever.
constexpr size_t kMaxSpareBytes = size_t{256} << 10;
// The start of a frame that is left over moves to a buffer of its own size up to here.
constexpr size_t kMaxKeptBytes = size_t{4} << 10;

void Put(uint32_t value, size_t bytes, char* to) {
  for (size_t i = 0; i < bytes; ++i) to[i] = static_cast<char>(value >> (8 * i));
}

uint32_t Take(const char* from, size_t bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < bytes; ++i) {
    value |= static_cast<uint32_t>(static_cast<unsigned char>(from[i])) << (8 * i);
  }
  return value;
}

Header ParseHeader(const char* from) {
  Header header;
  header.body_bytes = Take(from, 4);
  header.call = Take(from + 4, 4);
  header.kind = static_cast<Kind>(Take(from + 8, 1));
  header.code = static_cast<uint8_t>(Take(from + 9, 1));
  header.method = static_cast<uint16_t>(Take(from + 10, 2));
  header.extra = Take(from + 12, 4);
  return header;
}

bool IsKind(Kind kind) { return kind >= Kind::kHello && kind <= Kind::kClient; }

}  // namespace

void WriteHeader(const Header& header, char* to) {
  Put(header.body_bytes, 4, to);
  Put(header.call, 4, to + 4);
  Put(static_cast<uint32_t>(header.kind), 1, to + 8);
  Put(header.code, 1, to + 9);
  Put(header.method, 2, to + 10);
  Put(header.extra, 4, to + 12);
}

void AppendHeader(const Header& header, std::string* out) {
  char bytes[kHeaderBytes];
  WriteHeader(header, bytes);
  out->append(bytes, sizeof(bytes));
}

char* FrameReader::Room(size_t bytes) {
  if (begin_ == end_) begin_ = end_ = 0;
  if (buffer_.size() - end_ < bytes && begin_ > 0) {
    std::memmove(&buffer_[0], buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.size() - end_ < bytes) buffer_.resize(end_ + bytes);
  return &buffer_[0] + end_;
}

bool FrameReader::GiveUpFrame(Frame* frame) {
  if (wanted() == 0) return false;
  frame->header = ParseHeader(buffer_.data() + begin_);
  frame->body = absl::string_view();
  skip_ = wanted();
  begin_ = end_ = 0;
  std::string().swap(buffer_);
  return true;
}

bool FrameReader::Peek(size_t count, absl::string_view* bytes) const {
  if (end_ - begin_ < count) return false;
  *bytes = absl::string_view(buffer_.data() + begin_, count);
  return true;
}

FrameReader::Next FrameReader::Read(Frame* frame) {
  const size_t skipped = std::min(skip_, end_ - begin_);
  begin_ += skipped;
  skip_ -= skipped;
  if (skip_ > 0 || end_ - begin_ < kHeaderBytes) return Next::kMore;
  const Header header = ParseHeader(buffer_.data() + begin_);
  if (!IsKind(header.kind)) return Next::kBroken;
  if (header.body_bytes > max_body_bytes_) {
    begin_ += kHeaderBytes;
    skip_ = header.body_bytes;
    frame->header = header;
    frame->body = absl::string_view();
    return Next::kTooLarge;
  }
  if (end_ - begin_ - kHeaderBytes < header.body_bytes) return Next::kMore;
  frame->header = header;
  frame->body = absl::string_view(buffer_.data() + begin_ + kHeaderBytes, header.body_bytes);
  begin_ += kHeaderBytes + header.body_bytes;
  return Next::kFrame;
}

size_t FrameReader::wanted() const {
  if (skip_ > 0 || end_ - begin_ < kHeaderBytes) return 0;
  const size_t body = ParseHeader(buffer_.data() + begin_).body_bytes;
  const size_t have = end_ - begin_ - kHeaderBytes;
  return body > max_body_bytes_ || body <= have ? 0 : body - have;
}

void FrameReader::Borrow(std::string* spare) {
  if (buffer_.empty()) buffer_.swap(*spare);
}

void FrameReader::Shrink(size_t most_bytes) {
  if (buffer_.capacity() <= most_bytes || held() > most_bytes) return;
  std::string rest(buffer_, begin_, held());
  begin_ = 0;
  end_ = rest.size();
  rest.swap(buffer_);
}

void FrameReader::GiveBack(std::string* spare) {
  if (end_ - begin_ > kMaxKeptBytes) return;
  std::string rest(buffer_, begin_, end_ - begin_);
  begin_ = 0;
  end_ = rest.size();
  rest.swap(buffer_);
  if (spare->empty() && rest.size() <= kMaxSpareBytes) spare->swap(rest);
}

}  // namespace cohort::framed_rpc
