#include "client/parallel/queue/ring/record_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::parallel {
namespace {

// A large value is given back in steps of this size, so that the writer goes on meanwhile.
constexpr uint64_t kStep = uint64_t{256} << 10;

absl::Status Broken(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("a malformed record of the writer: ", what));
}

}  // namespace

absl::StatusOr<RecordHeader> RecordReader::PeekHeader(const WaitLimit& limit) {
  COHORT_RETURN_IF_ERROR(source_.Await(sizeof(RecordHeader), limit));
  RecordHeader header;
  std::memcpy(&header, source_.Peek().data(), sizeof(header));
  switch (header.kind) {
    case RecordHeader::kWhole:
    case RecordHeader::kFirst:
      if (in_value_) return Broken("a new value begins within a value");
      if (header.value_bytes > max_value_bytes_) {
        return Broken(absl::StrCat("a value of ", header.value_bytes, " bytes, at most ",
                                   max_value_bytes_, " were agreed"));
      }
      if (header.part_bytes > header.value_bytes ||
          (header.kind == RecordHeader::kWhole && header.part_bytes != header.value_bytes)) {
        return Broken("a part that does not fit its value");
      }
      return header;
    case RecordHeader::kNext:
      if (!in_value_ || header.part_bytes > value_left_ || header.part_bytes == 0) {
        return Broken("a part without its value");
      }
      return header;
    case RecordHeader::kAbandoned:
      if (header.part_bytes != 0) return Broken("an abandoned value with bytes");
      return header;
    default:
      return Broken(absl::StrCat("unknown kind ", header.kind));
  }
}

absl::Status RecordReader::OpenRecord(const WaitLimit& limit) {
  COHORT_ASSIGN_OR_RETURN(const RecordHeader header, PeekHeader(limit));
  if (header.kind == RecordHeader::kAbandoned) {
    in_value_ = false;
    value_.clear();
    value_left_ = 0;
  } else if (header.kind != RecordHeader::kNext) {
    value_.clear();
    value_.reserve(header.value_bytes);  // may throw; nothing has changed before it
    value_left_ = header.value_bytes;
    in_value_ = true;
  }
  record_left_ = header.part_bytes;
  source_.Release(sizeof(RecordHeader), in_value_ && value_left_ == 0 ? 1 : 0);
  return absl::OkStatus();
}

absl::Status RecordReader::CopyOn(const WaitLimit& limit) {
  COHORT_RETURN_IF_ERROR(source_.Await(kRecordAlign, limit));
  const absl::string_view there = source_.Peek();
  const uint64_t size = std::min<uint64_t>({there.size(), record_left_, kStep});
  const uint64_t padded = (size + kRecordAlign - 1) / kRecordAlign * kRecordAlign;
  if (padded > there.size() || (size < record_left_ && size != padded)) {
    return Broken("a record that does not end at its alignment");
  }
  value_.append(there.data(), size);
  record_left_ -= size;
  value_left_ -= size;
  source_.Release(padded, value_left_ == 0 ? 1 : 0);
  return absl::OkStatus();
}

absl::Status RecordReader::Assemble(const WaitLimit& limit) {
  while (between_values() || value_left_ > 0) {
    if (record_left_ == 0) {
      COHORT_RETURN_IF_ERROR(OpenRecord(limit));
    } else {
      COHORT_RETURN_IF_ERROR(CopyOn(limit));
    }
  }
  in_value_ = false;
  return absl::OkStatus();
}

absl::StatusOr<std::string> RecordReader::Next(const WaitLimit& limit) {
  if (between_values()) {
    // Most values are short and there as a whole.
    COHORT_ASSIGN_OR_RETURN(const RecordHeader header, PeekHeader(limit));
    const absl::string_view there = source_.Peek();
    const uint64_t record = RecordBytes(header.part_bytes);
    if (header.kind == RecordHeader::kWhole && header.part_bytes <= kStep &&
        there.size() >= record) {
      std::string value(there.substr(sizeof(header), header.part_bytes));
      source_.Release(record, 1);
      return value;
    }
  }
  COHORT_RETURN_IF_ERROR(Assemble(limit));
  return std::exchange(value_, std::string());
}

absl::StatusOr<absl::string_view> RecordReader::Front(const WaitLimit& limit) {
  if (between_values()) {
    COHORT_ASSIGN_OR_RETURN(const RecordHeader header, PeekHeader(limit));
    if (header.kind == RecordHeader::kWhole) {
      const uint64_t record = RecordBytes(header.part_bytes);
      COHORT_RETURN_IF_ERROR(source_.Await(record, limit));
      front_record_ = record;
      return source_.Peek().substr(sizeof(header), header.part_bytes);
    }
  }
  COHORT_RETURN_IF_ERROR(Assemble(limit));
  front_record_ = 0;
  return value_;
}

void RecordReader::Pop() {
  if (front_record_ > 0) {
    source_.Release(front_record_, 1);
  } else {
    value_ = std::string();
  }
}

absl::Status RecordReader::View(absl::FunctionRef<absl::Status(absl::string_view)> use,
                                const WaitLimit& limit) {
  COHORT_ASSIGN_OR_RETURN(const absl::string_view value, Front(limit));
  const absl::Cleanup pop = [this] { Pop(); };
  return use(value);
}

}  // namespace cohort::parallel
