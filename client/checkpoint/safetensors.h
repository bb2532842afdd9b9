// Checkpoints in the safetensors format: eight bytes with the length of a JSON header,
// little-endian; the header, with the names and places of the tensors; then the tensors' bytes.
#ifndef COHORT_CLIENT_CHECKPOINT_SAFETENSORS_H_
#define COHORT_CLIENT_CHECKPOINT_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/tensor/data_type.h"
#include "base/tensor/tensor.h"
#include "base/unique_fd.h"

namespace cohort::checkpoint {

struct TensorEntry {
  std::string name;
  // Nothing if Cohort has no such type: the bytes travel, and the header keeps the type's name.
  std::optional<DataType> type = DataType::kU8;
  Shape shape;
  // Counted from the end of the header.
  int64_t begin = 0;
  int64_t end = 0;

  int64_t bytes() const { return end - begin; }
};

// A parsed header. The tensors are in the order of their bytes, without gaps.
struct Layout {
  std::map<std::string, std::string> metadata;
  std::vector<TensorEntry> tensors;
  int64_t header_bytes = 0;  // where the tensors' bytes begin in the file
  int64_t data_bytes = 0;

  int64_t file_bytes() const { return header_bytes + data_bytes; }
};

inline constexpr int64_t kLengthBytes = 8;
// A longer header is damage; the format's own library has the same limit.
inline constexpr int64_t kMaxHeaderBytes = 100'000'000;

// The bytes of the header in a file of `file_bytes`, the length included. `front` has at least the
// file's first eight bytes, if the file is that long. Errors: INVALID_ARGUMENT.
absl::StatusOr<int64_t> HeaderBytes(absl::string_view front, int64_t file_bytes);

// Parses `header`, the first HeaderBytes of the file, and trusts nothing in it. The text must be
// one JSON object without repeated names. The offsets must agree with the types and shapes, except
// for types that this version does not know, whose sizes are those of their offsets.
// Tensors must not overlap or leave gaps, and must end where the file ends. Errors:
// INVALID_ARGUMENT, naming the tensor or the offset.
absl::StatusOr<Layout> ParseHeader(absl::string_view header, int64_t file_bytes);

// The eight bytes and the header of such a file; offsets are not read, but follow from the order.
// Precondition: all types are Cohort's.
// The tensors' bytes begin at a multiple of eight.
std::string FormatHeader(const std::vector<TensorEntry>& tensors,
                         const std::map<std::string, std::string>& metadata);

// "F32", "BF16", ...; empty: the format has no such type.
absl::string_view SafetensorsNameOf(DataType type);

// An open file. It keeps the header in memory and reads the tensors' bytes on demand. It does not
// map the file: if another program truncated it, access to a mapped page would raise SIGBUS.
// Thread-compatible; Read and CheckUnchanged may run on several threads at once. Movable.
class File {
 public:
  // Errors: NOT_FOUND, PERMISSION_DENIED, INTERNAL (it cannot be read), INVALID_ARGUMENT (it is no
  // regular file, or damaged), DATA_LOSS (it was cut meanwhile). All name the file.
  static absl::StatusOr<File> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const Layout& layout() const { return layout_; }
  // The first bytes of the file, up to the tensors' bytes.
  absl::string_view header() const { return header_; }

  // Fills `bytes` with the tensors' bytes from `offset` on, which counts like TensorEntry::begin.
  // Errors: DATA_LOSS (the file ends before), INTERNAL (it cannot be read).
  absl::Status Read(int64_t offset, absl::Span<char> bytes) const;

  // Checks that no program has changed the file since Open. Call it between reads too: bytes of
  // two versions are not a checkpoint. Errors: DATA_LOSS.
  absl::Status CheckUnchanged() const;

 private:
  File() = default;

  std::string path_;
  UniqueFd fd_;
  int64_t bytes_ = 0;
  int64_t changed_ns_ = 0;
  std::string header_;
  Layout layout_;
};

}  // namespace cohort::checkpoint

#endif  // COHORT_CLIENT_CHECKPOINT_SAFETENSORS_H_
