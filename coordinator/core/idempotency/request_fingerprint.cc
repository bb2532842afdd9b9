#include "coordinator/core/idempotency/request_fingerprint.h"

#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace cohort::coordinator {
namespace {

// Not cryptographic: a caller that makes two of its own requests collide harms only itself.
class Mixer {
 public:
  explicit Mixer(uint64_t method) : state_(Mix(method ^ kFirst, kSecond)) {}

  Mixer& Add(uint64_t value) {
    state_ = Mix(value ^ kFirst, state_ ^ kSecond);
    return *this;
  }
  Mixer& Add(absl::string_view bytes) {
    Add(bytes.size());
    const char* at = bytes.data();
    size_t left = bytes.size();
    for (; left >= 16; at += 16, left -= 16) {
      state_ = Mix(Load(at, 8) ^ kFirst, Load(at + 8, 8) ^ state_);
    }
    if (left > 8) {
      Add(Load(at, 8));
      at += 8;
      left -= 8;
    }
    return Add(Load(at, left));
  }
  Mixer& Add(const Value& value) {
    Add(value.blob != 0);
    return value.blob != 0 ? *this : Add(absl::string_view(value.bytes));
  }
  uint64_t value() const { return state_ == 0 ? 1 : state_; }

 private:
  static constexpr uint64_t kFirst = 0x9e3779b97f4a7c15;
  static constexpr uint64_t kSecond = 0xd1b54a32d192ed03;

  static uint64_t Load(const char* at, size_t bytes) {
    uint64_t word = 0;
    if (bytes > 0) std::memcpy(&word, at, bytes);
    return word;
  }
  static uint64_t Mix(uint64_t a, uint64_t b) {
    const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }

  uint64_t state_;
};

// The methods, as they stand in journals.
enum : uint64_t { kCancel = 1, kSend, kExpire, kPropose, kPut, kDelete, kAdd, kAppend, kPush };

std::string Quoted(absl::string_view text) {
  constexpr size_t kMost = 64;
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, kMost)),
                      text.size() > kMost ? "...\"" : "\"");
}
std::string Bytes(size_t size) { return absl::StrCat(" (", size, " bytes)"); }

}  // namespace

uint64_t Fingerprint(const CancelRoundCall& call) {
  return Mixer(kCancel).Add(call.name).Add(call.number).Add(call.reason).value();
}
uint64_t Fingerprint(const SendCall& call) {
  return Mixer(kSend).Add(call.destination).Add(call.tag).Add(call.value).Add(call.order).value();
}
uint64_t Fingerprint(const ExpireCall&) { return Mixer(kExpire).value(); }
uint64_t Fingerprint(const ProposeViewCall& call) {
  Mixer mixer(kPropose);
  mixer.Add(call.remove.size()).Add(call.add.size()).Add(call.drop_silent);
  for (const RankRange& range : call.remove) mixer.Add(range.first).Add(range.last);
  for (const std::string& name : call.add) mixer.Add(name);
  return mixer.value();
}
uint64_t Fingerprint(const PutCall& call) {
  Mixer mixer(kPut);
  mixer.Add(call.key)
      .Add(call.value)
      .Add(call.bind_to_session)
      .Add(call.expected_revision.has_value())
      .Add(call.expected_revision.value_or(0));
  // Without these fields the number is that of a request from before they existed.
  if (call.expected_value.has_value()) mixer.Add(*call.expected_value);
  for (const PutEntry& entry : call.more) {
    mixer.Add(entry.key).Add(entry.value);
    mixer.Add(entry.expected_revision.has_value()).Add(entry.expected_revision.value_or(0));
    mixer.Add(entry.expected_value.has_value()).Add(entry.expected_value.value_or(""));
  }
  return mixer.value();
}
uint64_t Fingerprint(const DeleteCall& call) {
  return Mixer(kDelete).Add(call.key).Add(call.prefix).value();
}
uint64_t Fingerprint(const AddCall& call) {
  return Mixer(kAdd).Add(call.key).Add(call.delta).value();
}
uint64_t Fingerprint(const AppendCall& call) {
  return Mixer(kAppend).Add(call.key).Add(call.value).value();
}
uint64_t Fingerprint(const QueuePushCall& call) {
  return Mixer(kPush).Add(call.queue).Add(call.value).value();
}

std::string DescribeRequest(const CancelRoundCall& call) {
  return absl::StrCat("cancel of barrier ", Quoted(call.name),
                      call.number == 0 ? "" : absl::StrCat(" #", call.number));
}
std::string DescribeRequest(const SendCall& call) {
  return absl::StrCat("send to rank ", call.destination,
                      call.tag.empty() ? "" : absl::StrCat(" tag ", Quoted(call.tag)),
                      call.order == 0 ? "" : absl::StrCat(" #", call.order),
                      call.value.blob != 0 ? absl::StrCat(" (blob ", call.value.blob, ")")
                                           : Bytes(call.value.bytes.size()));
}
std::string DescribeRequest(const ExpireCall&) { return "expire"; }
std::string DescribeRequest(const ProposeViewCall& call) {
  return absl::StrCat("propose view without ranks ", FormatRanges(call.remove).substr(0, 64),
                      " and with ", call.add.size(), " added members");
}
std::string DescribeRequest(const PutCall& call) {
  return absl::StrCat("put of key ", Quoted(call.key), Bytes(call.value.size()),
                      call.more.empty() ? "" : absl::StrCat(" and ", call.more.size(), " more"));
}
std::string DescribeRequest(const DeleteCall& call) {
  return absl::StrCat("delete of ", call.prefix ? "all keys that begin with " : "key ",
                      Quoted(call.key));
}
std::string DescribeRequest(const AddCall& call) {
  return absl::StrCat("add of ", call.delta, " to key ", Quoted(call.key));
}
std::string DescribeRequest(const AppendCall& call) {
  return absl::StrCat("append to key ", Quoted(call.key), Bytes(call.value.size()));
}
std::string DescribeRequest(const QueuePushCall& call) {
  return absl::StrCat("push to queue ", Quoted(call.queue), Bytes(call.value.size()));
}

}  // namespace cohort::coordinator
