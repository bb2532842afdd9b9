#include "coordinator/service/grpc/byte_buffer.h"

#include <memory>
#include <vector>

#include "grpcpp/support/slice.h"

namespace cohort::coordinator {
namespace {

// Up to here a copy costs less than the bookkeeping of sharing.
constexpr size_t kCopyBytes = 1024;

grpc::Slice ToSlice(const MessageBytes::Piece& piece) {
  if (piece.bytes.size() <= kCopyBytes) return grpc::Slice(piece.bytes.data(), piece.bytes.size());
  using Keep = std::shared_ptr<const void>;
  // gRPC takes a pointer to non-const but does not write to the bytes that it sends.
  return grpc::Slice(
      const_cast<char*>(piece.bytes.data()), piece.bytes.size(),
      [](void* keep) { delete static_cast<Keep*>(keep); }, new Keep(piece.keep));
}

}  // namespace

grpc::ByteBuffer ToByteBuffer(const MessageBytes& message) {
  std::vector<grpc::Slice> slices;
  slices.reserve(message.pieces().size());
  for (const MessageBytes::Piece& piece : message.pieces()) slices.push_back(ToSlice(piece));
  // An empty message needs a slice too: a buffer without any is not valid.
  if (slices.empty()) slices.emplace_back();
  return grpc::ByteBuffer(slices.data(), slices.size());
}

}  // namespace cohort::coordinator
