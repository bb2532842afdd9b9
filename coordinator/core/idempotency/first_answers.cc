#include "coordinator/core/idempotency/first_answers.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

namespace cohort::coordinator {
namespace {

// The fields of an answer's numbers: one table for both directions.
template <typename T>
struct Layout {
  int64_t T::*first = nullptr;
  int64_t T::*second = nullptr;
  bool T::*flag = nullptr;
};

constexpr Layout<EmptyReply> LayoutOf(const EmptyReply&) { return {}; }
constexpr Layout<CreateGroupReply> LayoutOf(const CreateGroupReply&) {
  return {&CreateGroupReply::generation};
}
constexpr Layout<CancelRoundReply> LayoutOf(const CancelRoundReply&) {
  return {&CancelRoundReply::number};
}
constexpr Layout<SendReply> LayoutOf(const SendReply&) {
  return {&SendReply::sequence, nullptr, &SendReply::consumed};
}
constexpr Layout<ExpireReply> LayoutOf(const ExpireReply&) {
  return {&ExpireReply::object_count, &ExpireReply::size_bytes};
}
constexpr Layout<PutBlobReply> LayoutOf(const PutBlobReply&) { return {&PutBlobReply::blob}; }
constexpr Layout<PutReply> LayoutOf(const PutReply&) {
  return {&PutReply::revision, nullptr, &PutReply::written};
}
constexpr Layout<DeleteReply> LayoutOf(const DeleteReply&) {
  return {&DeleteReply::deleted_count, &DeleteReply::revision};
}
constexpr Layout<AddReply> LayoutOf(const AddReply&) {
  return {&AddReply::value, &AddReply::revision};
}
constexpr Layout<AppendReply> LayoutOf(const AppendReply&) {
  return {&AppendReply::size_bytes, &AppendReply::revision};
}
constexpr Layout<QueuePushReply> LayoutOf(const QueuePushReply&) {
  return {&QueuePushReply::sequence, &QueuePushReply::depth};
}

template <typename T, typename = void>
struct HasLayout : std::false_type {};
template <typename T>
struct HasLayout<T, std::void_t<decltype(LayoutOf(std::declval<const T&>()))>> : std::true_type {};

// Returns false if the window cannot keep this kind of answer.
template <typename T>
bool Pack(const T& answer, OperationRecord& record) {
  if constexpr (HasLayout<T>::value) {
    const auto layout = LayoutOf(answer);
    if (layout.first != nullptr) record.first = answer.*layout.first;
    if (layout.second != nullptr) record.second = answer.*layout.second;
    if (layout.flag != nullptr) record.flag = answer.*layout.flag;
    return true;
  }
  return false;
}
bool Pack(const ViewReply& answer, OperationRecord& record) {
  if (answer.outcome != ViewReply::Outcome::kCommitted) return false;
  record.first = answer.generation;
  record.second =
      (static_cast<int64_t>(answer.world_size) << 32) | static_cast<uint32_t>(answer.rank);
  record.flag = true;
  return true;
}

template <typename T>
void Unpack(const OperationRecord& record, T& answer) {
  const auto layout = LayoutOf(answer);
  if (layout.first != nullptr) answer.*layout.first = record.first;
  if (layout.second != nullptr) answer.*layout.second = record.second;
  if (layout.flag != nullptr) answer.*layout.flag = record.flag;
}
void Unpack(const OperationRecord& record, ViewReply& answer) {
  answer.outcome = ViewReply::Outcome::kCommitted;
  answer.generation = record.first;
  answer.world_size = static_cast<int>(record.second >> 32);
  answer.rank = static_cast<int32_t>(static_cast<uint32_t>(record.second));
}

// Describes the request of an answer, as far as the answer shows it.
std::string DescribeAnswered(const CancelRoundReply& answer) {
  return absl::StrCat("a cancel of a barrier (of number ", answer.number, ")");
}
std::string DescribeAnswered(const SendReply& answer) {
  return absl::StrCat("a send (its sequence: ", answer.sequence, ")");
}
std::string DescribeAnswered(const PutReply& answer) {
  return answer.written ? absl::StrCat("a put (its revision: ", answer.revision, ")")
                        : "a put that was not written";
}
std::string DescribeAnswered(const DeleteReply& answer) {
  return absl::StrCat("a delete (of ", answer.deleted_count, " keys)");
}
std::string DescribeAnswered(const AddReply& answer) {
  return absl::StrCat("an add (its value: ", answer.value, ")");
}
std::string DescribeAnswered(const AppendReply& answer) {
  return absl::StrCat("an append (to ", answer.size_bytes, " bytes)");
}
std::string DescribeAnswered(const QueuePushReply& answer) {
  return absl::StrCat("a push (its sequence: ", answer.sequence, ")");
}
std::string DescribeAnswered(const ExpireReply&) { return "an expire"; }
std::string DescribeAnswered(const ViewReply& answer) {
  return absl::StrCat("a propose view (of generation ", answer.generation, ")");
}
template <typename T>
std::string DescribeAnswered(const T&) {
  return "another call";
}

template <typename T>
bool UnpackAs(const OperationRecord& record, ReplyBody& answer) {
  if (record.reply_kind != static_cast<int>(ReplyIndex<T>())) return false;
  Unpack(record, answer.emplace<T>());
  return true;
}

bool Decode(const OperationRecord& record, ReplyBody& answer) {
  return UnpackAs<PutReply>(record, answer) || UnpackAs<AddReply>(record, answer) ||
         UnpackAs<SendReply>(record, answer) || UnpackAs<QueuePushReply>(record, answer) ||
         UnpackAs<DeleteReply>(record, answer) || UnpackAs<AppendReply>(record, answer) ||
         UnpackAs<ExpireReply>(record, answer) || UnpackAs<ViewReply>(record, answer) ||
         UnpackAs<EmptyReply>(record, answer) || UnpackAs<CreateGroupReply>(record, answer) ||
         UnpackAs<CancelRoundReply>(record, answer) || UnpackAs<PutBlobReply>(record, answer);
}

}  // namespace

const ReplyBody* FirstAnswers::Find(const Id128& id) const {
  if (id.empty()) return nullptr;
  auto it = by_id_.find(id);
  if (it == by_id_.end()) return nullptr;
  const Entry& entry = *it->second;
  if (entry.whole != nullptr) return entry.whole.get();
  Decode(entry.record, found_);
  return &found_;
}

absl::Status FirstAnswers::UsedBefore(const Id128& id, const std::string& again) const {
  const ReplyBody& first = *Find(id);
  return UsedBefore(
      id, std::visit([](const auto& answer) { return DescribeAnswered(answer); }, first), again);
}

absl::Status FirstAnswers::UsedBefore(const Id128& id, const std::string& first,
                                      const std::string& again) {
  return absl::InvalidArgumentError(absl::StrCat("scope.operation_id ", id.ToString(),
                                                 " was used before, for ", first,
                                                 "; it comes again with another request: ", again));
}

int64_t FirstAnswers::EntryCost(bool whole) {
  // Every entry may be its client's only one.
  return NodeCost<Entry>() + SlotCost<std::pair<Id128, Entries::iterator>>() +
         SlotCost<std::pair<uint64_t, Entries>>() + SlotCost<Rank>() +
         SlotCost<std::pair<int64_t, uint64_t>>() + (whole ? BlockCost(sizeof(ReplyBody)) : 0);
}

void FirstAnswers::DropOld(Step& step, const GroupKey& key) {
  while (!by_age_.empty()) {
    Entries& entries = clients_.at(by_age_.begin()->second);
    if (step.now() - entries.front().at <= kMaxAge) break;
    Drop(step, key, entries.begin());
  }
}

void FirstAnswers::Remember(Step& step, const GroupKey& key, const Id128& id, uint64_t fingerprint,
                            ReplyBody answer, const Limits& limits) {
  DropOld(step, key);
  if (id.empty() || by_id_.contains(id)) return;

  Entry entry;
  entry.record.id = id;
  entry.record.reply_kind = static_cast<int>(answer.index());
  entry.record.number = last_number_ + 1;
  entry.record.fingerprint = fingerprint;
  entry.at = step.now();
  const bool small = std::visit([&](const auto& body) { return Pack(body, entry.record); }, answer);
  if (!small) return;
  const auto* put = std::get_if<PutReply>(&answer);
  entry.recorded = put == nullptr || put->written;
  if (entry.recorded && step.keeps_records()) {
    step.Write(key, RecordKind::kOperation, id.ToString(), entry.record);
  }
  if (std::holds_alternative<ViewReply>(answer)) {
    entry.whole = std::make_unique<const ReplyBody>(std::move(answer));
  }
  Insert(std::move(entry));
  while (static_cast<int64_t>(by_id_.size()) > limits.max_operations_kept) {
    Drop(step, key, clients_.at(ranks_.rbegin()->client).begin());
  }
}

void FirstAnswers::Insert(Entry entry) {
  const uint64_t client = entry.record.id.high;
  charge_.Add(EntryCost(entry.whole != nullptr));
  last_number_ = std::max(last_number_, entry.record.number);
  Unrank(client);
  Entries& entries = clients_[client];
  // The newest but for those that come back from a journal, in any order.
  auto after = entries.end();
  while (after != entries.begin() && std::prev(after)->record.number > entry.record.number) --after;
  const Id128 id = entry.record.id;
  by_id_[id] = entries.insert(after, std::move(entry));
  Rerank(client);
}

void FirstAnswers::Unrank(uint64_t client) {
  const auto it = clients_.find(client);
  if (it == clients_.end()) return;
  const int64_t oldest = it->second.front().record.number;
  ranks_.erase(Rank{it->second.size(), oldest, client});
  by_age_.erase({oldest, client});
}

void FirstAnswers::Rerank(uint64_t client) {
  const auto it = clients_.find(client);
  const int64_t oldest = it->second.front().record.number;
  ranks_.insert(Rank{it->second.size(), oldest, client});
  by_age_.emplace(oldest, client);
}

void FirstAnswers::Forget(Step& step, const GroupKey& key, const Id128& id) {
  auto it = by_id_.find(id);
  if (it != by_id_.end()) Drop(step, key, it->second);
}

void FirstAnswers::Restore(const OperationRecord& record, Instant now) {
  if (record.id.empty() || by_id_.contains(record.id)) return;
  if (!Decode(record, found_)) return;
  Entry entry;
  entry.record = record;
  entry.at = now;
  Insert(std::move(entry));
}

void FirstAnswers::Drop(Step& step, const GroupKey& key, Entries::iterator entry) {
  if (entry->recorded && step.keeps_records()) {
    step.Erase(key, RecordKind::kOperation, entry->record.id.ToString());
  }
  const uint64_t client = entry->record.id.high;
  charge_.Add(-EntryCost(entry->whole != nullptr));
  by_id_.erase(entry->record.id);
  Unrank(client);
  Entries& entries = clients_.at(client);
  entries.erase(entry);
  if (entries.empty()) {
    clients_.erase(client);
  } else {
    Rerank(client);
  }
}

}  // namespace cohort::coordinator
