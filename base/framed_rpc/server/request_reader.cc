#include "base/framed_rpc/server/request_reader.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/memory/no_memory.h"

namespace cohort::framed_rpc {
namespace {

constexpr size_t kReadBytes = size_t{64} << 10;
constexpr size_t kMostReadBytes = size_t{1} << 20;

// Returns null if there is no memory.
char* TryRoom(FrameReader& input, size_t bytes) {
  try {
    return input.Room(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace

RequestReader::RequestReader(const ServerProtocol& protocol,
                             std::shared_ptr<IncompleteRequestBytes> incoming)
    : protocol_(protocol), input_(protocol.max_message_bytes()), charge_(std::move(incoming)) {}

char* RequestReader::Room(size_t* size, Refuse refuse) {
  *size = std::max(kReadBytes, std::min({input_.wanted(), input_.held(), kMostReadBytes}));
  char* room = TryRoom(input_, *size);
  if (room == nullptr) {
    Frame frame;
    if (!GiveUpFrame(&frame)) return nullptr;
    const absl::Status error = NoMemory(protocol_.MethodName(frame.header.method), "a request",
                                        static_cast<int64_t>(frame.header.body_bytes));
    if (!refuse(frame, error)) return nullptr;
    room = TryRoom(input_, kReadBytes);
  }
  *size = std::min(*size, input_.room());
  return room;
}

RequestReader::Next RequestReader::Read(Frame* frame, absl::Status* error) {
  if (!greeted_) {
    absl::string_view preface;
    if (!input_.Peek(kPreface.size(), &preface)) return Next::kMore;
    if (preface != kPreface) return Next::kBroken;
    input_.Skip(preface.size());
    greeted_ = true;
    return Next::kPreface;
  }
  switch (input_.Read(frame)) {
    case FrameReader::Next::kMore:
      return Next::kMore;
    case FrameReader::Next::kTooLarge:
      *error = protocol_.TooLarge(*frame);
      return Next::kFrame;
    case FrameReader::Next::kFrame:
      *error = absl::OkStatus();
      return Next::kFrame;
    case FrameReader::Next::kBroken:
      break;
  }
  return Next::kBroken;
}

bool RequestReader::Charge(bool has_role, Refuse refuse) {
  const bool grows = charge_.Set(static_cast<int64_t>(input_.memory()));
  const bool is_stranger = !has_role && input_.held() > kReadBytes;
  if (!grows && !is_stranger) return true;
  const absl::Status room = charge_.all() == nullptr ? absl::OkStatus() : charge_.all()->Check();
  Frame frame;
  if ((room.ok() && !is_stranger) || !GiveUpFrame(&frame)) return true;
  const std::string method = protocol_.MethodName(frame.header.method);
  if (is_stranger) {
    return refuse(frame, absl::PermissionDeniedError(
                             absl::StrCat(method, ": a client without a role sends a request of ",
                                          frame.header.body_bytes, " bytes")));
  }
  return refuse(frame, absl::ResourceExhaustedError(
                           absl::StrCat(method, ": no room for a request of ",
                                        frame.header.body_bytes, " bytes: ", room.message())));
}

void RequestReader::Shrink() { input_.Shrink(kReadBytes); }

bool RequestReader::GiveUpFrame(Frame* frame) {
  if (!input_.GiveUpFrame(frame)) return false;
  charge_.Set(0);
  return true;
}

}  // namespace cohort::framed_rpc
