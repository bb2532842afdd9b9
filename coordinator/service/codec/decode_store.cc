#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "base/text/printable.h"
#include "coordinator/service/codec/decode.h"
#include "coordinator/service/codec/field_checks.h"

namespace cohort::coordinator {
namespace {

constexpr int kMaxKeys = 1000;  // of one call
// A quiet watch gets a bookmark this often.
constexpr absl::Duration kBookmarkPeriod = absl::Seconds(10);

absl::Status DecodeExpiration(bool present, const google::protobuf::Duration& message,
                              std::optional<absl::Duration>* expiration) {
  if (!present) return absl::OkStatus();
  return DecodeDuration("expiration", message, absl::ZeroDuration(), kMaxExpiration,
                        &expiration->emplace());
}

// The conditions of a put, or of one of its entries.
template <typename Message, typename Put>
absl::Status DecodeConditions(Message& message, Put* put) {
  if (message.has_expected_revision()) {
    COHORT_RETURN_IF_ERROR(CheckNotNegative("expected_revision", message.expected_revision()));
    put->expected_revision = message.expected_revision();
  }
  if (message.has_expected_value()) {
    put->expected_value = std::move(*message.mutable_expected_value());
  }
  return absl::OkStatus();
}

absl::Status CheckKeysDiffer(const v1::PutRequest& request) {
  if (request.more().empty()) return absl::OkStatus();
  // Not constructed from an initializer list, which would copy the keys.
  absl::flat_hash_set<absl::string_view> keys;
  keys.insert(request.key());
  for (const v1::PutEntry& entry : request.more()) {
    if (!keys.insert(entry.key()).second) {
      return InvalidField("more", absl::StrCat("key ", Printable(entry.key()), " comes twice"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Decode(v1::PutRequest& request, const DecodeContext& context, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kOptional, &call->caller));
  COHORT_RETURN_IF_ERROR(CheckKey("key", request.key()));
  COHORT_RETURN_IF_ERROR(CheckValueSize("value", request.value().size(), context));
  auto& body = call->body.emplace<PutCall>();
  COHORT_RETURN_IF_ERROR(
      DecodeExpiration(request.has_expiration(), request.expiration(), &body.expiration));
  COHORT_RETURN_IF_ERROR(DecodeConditions(request, &body));
  if (request.more_size() > kMaxKeys - 1) {
    return InvalidField("more", absl::StrCat("needs at most ", kMaxKeys - 1, " keys"));
  }
  for (const v1::PutEntry& entry : request.more()) {
    COHORT_RETURN_IF_ERROR(CheckKey("more.key", entry.key()));
    COHORT_RETURN_IF_ERROR(CheckValueSize("more.value", entry.value().size(), context));
  }
  COHORT_RETURN_IF_ERROR(CheckKeysDiffer(request));
  body.more.reserve(request.more_size());
  for (v1::PutEntry& entry : *request.mutable_more()) {
    PutEntry& put = body.more.emplace_back();
    COHORT_RETURN_IF_ERROR(DecodeConditions(entry, &put));
    put.key = std::move(*entry.mutable_key());
    put.value = std::move(*entry.mutable_value());
  }
  body.key = std::move(*request.mutable_key());
  body.value = std::move(*request.mutable_value());
  body.bind_to_session = request.bind_to_session();
  return absl::OkStatus();
}

absl::Status Decode(v1::GetRequest& request, const DecodeContext& context, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kOptional, &call->caller));
  const int asked = request.keys_size() + request.queues_size();
  if (asked < 1 || asked > kMaxKeys) {
    return InvalidField("keys", absl::StrCat("needs 1 to ", kMaxKeys, " keys and queues"));
  }
  for (const std::string& key : request.keys()) COHORT_RETURN_IF_ERROR(CheckKey("keys", key));
  for (const std::string& queue : request.queues()) {
    COHORT_RETURN_IF_ERROR(CheckName("queues", queue));
  }
  COHORT_RETURN_IF_ERROR(CheckNotNegative("newer_than", request.newer_than()));
  COHORT_RETURN_IF_ERROR(
      DecodeWait(request.has_wait(), request.wait(), absl::ZeroDuration(), context, &call->wait));
  auto& body = call->body.emplace<GetCall>();
  body.keys.assign(std::make_move_iterator(request.mutable_keys()->begin()),
                   std::make_move_iterator(request.mutable_keys()->end()));
  body.wait = request.has_wait();
  body.newer_than = request.newer_than();
  body.queues.assign(std::make_move_iterator(request.mutable_queues()->begin()),
                     std::make_move_iterator(request.mutable_queues()->end()));
  body.or_queue = request.or_queue();
  return absl::OkStatus();
}

absl::Status Decode(v1::RangeRequest& request, const DecodeContext&, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kOptional, &call->caller));
  COHORT_RETURN_IF_ERROR(CheckPrefix("prefix", request.prefix()));
  COHORT_RETURN_IF_ERROR(CheckPrefix("page_token", request.page_token()));
  auto& body = call->body.emplace<RangeCall>();
  COHORT_RETURN_IF_ERROR(DecodePageSize("page_size", request.page_size(), &body.page_size));
  body.prefix = std::move(*request.mutable_prefix());
  body.after = std::move(*request.mutable_page_token());
  body.keys_only = request.keys_only();
  body.count_only = request.count_only();
  return absl::OkStatus();
}

absl::Status Decode(v1::DeleteRequest& request, const DecodeContext&, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kOptional, &call->caller));
  COHORT_RETURN_IF_ERROR(request.prefix() ? CheckPrefix("key", request.key())
                                          : CheckKey("key", request.key()));
  call->body = DeleteCall{std::move(*request.mutable_key()), request.prefix()};
  return absl::OkStatus();
}

absl::Status Decode(v1::AddRequest& request, const DecodeContext&, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kOptional, &call->caller));
  COHORT_RETURN_IF_ERROR(CheckKey("key", request.key()));
  call->body = AddCall{std::move(*request.mutable_key()), request.delta()};
  return absl::OkStatus();
}

absl::Status Decode(v1::AppendRequest& request, const DecodeContext& context, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kOptional, &call->caller));
  COHORT_RETURN_IF_ERROR(CheckKey("key", request.key()));
  COHORT_RETURN_IF_ERROR(CheckValueSize("value", request.value().size(), context));
  call->body = AppendCall{std::move(*request.mutable_key()), std::move(*request.mutable_value())};
  return absl::OkStatus();
}

absl::Status Decode(v1::QueuePushRequest& request, const DecodeContext& context, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kOptional, &call->caller));
  COHORT_RETURN_IF_ERROR(CheckName("queue", request.queue()));
  COHORT_RETURN_IF_ERROR(CheckValueSize("value", request.value().size(), context));
  auto& body = call->body.emplace<QueuePushCall>();
  COHORT_RETURN_IF_ERROR(
      DecodeExpiration(request.has_expiration(), request.expiration(), &body.expiration));
  body.queue = std::move(*request.mutable_queue());
  body.value = std::move(*request.mutable_value());
  return absl::OkStatus();
}

absl::Status Decode(v1::QueuePopRequest& request, const DecodeContext& context, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kOptional, &call->caller));
  COHORT_RETURN_IF_ERROR(CheckName("queue", request.queue()));
  COHORT_RETURN_IF_ERROR(
      DecodeWait(request.has_wait(), request.wait(), absl::ZeroDuration(), context, &call->wait));
  call->body = QueuePopCall{std::move(*request.mutable_queue())};
  return absl::OkStatus();
}

absl::Status Decode(v1::WatchRequest& request, const DecodeContext& context, Call* call) {
  COHORT_RETURN_IF_ERROR(DecodeScope(request.scope(), GroupName::kOptional, &call->caller));
  COHORT_RETURN_IF_ERROR(CheckPrefix("prefix", request.prefix()));
  COHORT_RETURN_IF_ERROR(CheckNotNegative("from_revision", request.from_revision()));
  call->wait = std::min(kBookmarkPeriod, context.max_wait);
  call->body = WatchKeysCall{std::move(*request.mutable_prefix()), request.from_revision()};
  return absl::OkStatus();
}

}  // namespace cohort::coordinator
