#include "tests/fuzz/decode_check.h"

#include <algorithm>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "cohort/v1/messaging.pb.h"
#include "coordinator/core/interface/call.h"
#include "coordinator/service/codec/decode.h"
#include "coordinator/service/dispatch/method_table.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace cohort::coordinator::fuzz {
namespace {

constexpr size_t kMaxErrorBytes = 2048;

absl::Status Violation(const MethodInfo& method, absl::string_view what) {
  return absl::InternalError(absl::StrCat(method.name, ": ", absl::CHexEscape(what)));
}

// The bounds of a decoded call, one overload for each kind that has some.
class BoundsCheck {
 public:
  explicit BoundsCheck(const DecodeContext& context) : limits_(context.limits) {}

  // Empty if all bounds hold.
  const std::string& broken() const { return broken_; }

  void Expect(bool holds, absl::string_view what) {
    if (!holds && broken_.empty()) broken_ = std::string(what);
  }
  void ExpectName(const std::string& name, absl::string_view what) {
    Expect(name.size() <= 128 &&
               std::none_of(name.begin(), name.end(), [](char c) { return c <= ' ' || c > '~'; }),
           what);
  }
  void ExpectRanges(const std::vector<RankRange>& ranges, absl::string_view what) {
    int64_t before = -1;
    for (const RankRange& range : ranges) {
      Expect(range.first > before && range.first <= range.last, what);
      before = range.last;
    }
    Expect(before < limits_.max_members, what);
  }
  void ExpectKey(const std::string& key) {
    Expect(key.size() <= 1024 && key.find('\0') == std::string::npos, "key");
  }
  void ExpectValue(const Value& value) {
    Expect(value.blob >= 0 && static_cast<int64_t>(value.bytes.size()) <= limits_.max_inline_bytes,
           "value");
  }

  template <typename Body>
  void operator()(const Body&) {}
  void operator()(const CreateGroupCall& call) { CheckSpec(call.spec); }
  void operator()(const JoinCall& call) {
    ExpectName(call.member, "member");
    Expect(!call.member.empty() && call.incarnation != 0, "member and incarnation");
    Expect(!call.rank.has_value() || (*call.rank >= 0 && *call.rank < limits_.max_members), "rank");
    Expect(call.addresses.size() <= 16 && call.labels.size() <= 32, "addresses and labels");
    if (call.spec.has_value()) CheckSpec(*call.spec);
  }
  void operator()(const ListGroupsCall& call) {
    Expect(call.page_size >= 1 && call.page_size <= 1000, "page_size");
  }
  void operator()(const ProposeViewCall& call) {
    ExpectRanges(call.remove, "remove");
    for (const std::string& name : call.add) ExpectName(name, "add");
  }
  void operator()(const ReportErrorCall& call) { ExpectRanges(call.suspected, "suspected"); }
  void operator()(const EnterRoundCall& call) {
    ExpectName(call.name, "round name");
    Expect(call.number >= 0 && call.digest.size() <= 64, "number and digest");
    // The root may be any number: the round refuses a wrong one on all its ranks.
    ExpectRanges(call.participants, "participants");
    for (const Value& value : call.values) ExpectValue(value);
  }
  void operator()(const SendCall& call) {
    Expect(call.destination >= 0 && call.destination < limits_.max_members, "destination");
    ExpectName(call.tag, "tag");
    ExpectValue(call.value);
    Expect(call.expiration.value_or(absl::ZeroDuration()) >= absl::ZeroDuration(), "expiration");
  }
  void operator()(const PutCall& call) {
    ExpectKey(call.key);
    Expect(call.expected_revision.value_or(0) >= 0, "expected_revision");
    Expect(call.more.size() < 1000, "more");
    std::set<std::string> keys = {call.key};
    for (const PutEntry& entry : call.more) {
      ExpectKey(entry.key);
      Expect(keys.insert(entry.key).second, "a key of more");
      Expect(entry.expected_revision.value_or(0) >= 0, "expected_revision of more");
    }
  }
  void operator()(const GetCall& call) {
    const size_t asked = call.keys.size() + call.queues.size();
    Expect(asked >= 1 && asked <= 1000 && call.newer_than >= 0, "keys and queues");
    for (const std::string& key : call.keys) ExpectKey(key);
    for (const std::string& queue : call.queues) ExpectName(queue, "queues");
  }
  void operator()(const RangeCall& call) {
    ExpectKey(call.prefix);
    Expect(call.page_size >= 1 && call.page_size <= 1000, "page_size");
  }
  void operator()(const WatchKeysCall& call) { Expect(call.from_revision >= 0, "from_revision"); }
  void operator()(const WatchGroupCall& call) { Expect(call.from_revision >= 0, "from_revision"); }
  void operator()(const PublishIdsCall& call) {
    Expect(!call.ids.empty() && call.ids.size() <= 64, "ids");
  }

 private:
  void CheckSpec(const GroupSpec& spec) {
    Expect(spec.min_members >= 1 && spec.min_members <= spec.max_members &&
               spec.max_members <= limits_.max_members,
           "members of a spec");
    Expect(spec.lease > absl::ZeroDuration() && spec.disconnect_grace >= absl::ZeroDuration() &&
               spec.data_expiration > absl::ZeroDuration() &&
               spec.progress_timeout >= absl::ZeroDuration() &&
               spec.join_window >= absl::ZeroDuration(),
           "durations of a spec");
    Expect(spec.parameters_digest.size() <= 64, "parameters_digest");
  }

  const Limits& limits_;
  std::string broken_;
};

absl::Status Decode(const MethodInfo& method, absl::string_view request,
                    const DecodeContext& context, Call* call) {
  google::protobuf::io::ArrayInputStream stream(request.data(), static_cast<int>(request.size()));
  if (method.decode != nullptr) return method.decode(&stream, context, call);
  v1::UploadRequest part;
  if (!part.ParseFromZeroCopyStream(&stream)) return absl::InvalidArgumentError("not a part");
  return coordinator::Decode(part, context, call);
}

}  // namespace

absl::Status CheckDecode(absl::string_view input, bool* accepted) {
  if (accepted != nullptr) *accepted = false;
  if (input.size() < 2) return absl::OkStatus();
  const MethodInfo& method =
      GetMethod(static_cast<Method>(static_cast<uint8_t>(input[0]) % kMethodCount));
  // A method that the shell answers itself has no call.
  if (method.decode == nullptr && method.method != Method::kUpload) return absl::OkStatus();
  DecodeContext context;
  const int exponent = static_cast<uint8_t>(input[1]);
  if (exponent <= 62) context.time_left = absl::Milliseconds(int64_t{1} << exponent);

  Call call;
  const absl::Status status = Decode(method, input.substr(2), context, &call);
  if (!status.ok()) {
    const bool expected = status.code() == absl::StatusCode::kInvalidArgument ||
                          status.code() == absl::StatusCode::kResourceExhausted;
    if (!expected || status.message().empty() || status.message().size() > kMaxErrorBytes) {
      return Violation(method, status.ToString());
    }
    return absl::OkStatus();
  }
  if (accepted != nullptr) *accepted = true;
  BoundsCheck bounds(context);
  const Caller& caller = call.caller;
  bounds.ExpectName(caller.key.tenant, "tenant");
  bounds.ExpectName(caller.key.group, "group");
  bounds.Expect(!caller.key.tenant.empty() && caller.generation >= 0, "scope");
  bounds.Expect(caller.acknowledged.size() <= 4096 &&
                    std::all_of(caller.acknowledged.begin(), caller.acknowledged.end(),
                                [](int64_t receipt) { return receipt > 0; }),
                "acknowledged_receipts");
  bounds.Expect(caller.abandoned.size() <= 1024, "abandoned_operations");
  bounds.Expect(call.wait >= absl::ZeroDuration() && call.wait <= context.max_wait, "wait");
  std::visit([&bounds](const auto& body) { bounds(body); }, call.body);
  if (!bounds.broken().empty()) return Violation(method, bounds.broken());
  return absl::OkStatus();
}

}  // namespace cohort::coordinator::fuzz
