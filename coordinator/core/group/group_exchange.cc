// Calls on rounds, objects and unique ids. This file admits the calls and resolves their values;
// Rounds, Mailboxes and UniqueIds do the rest.
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/group/group.h"

namespace cohort::coordinator {
namespace {

constexpr absl::Duration kBlobLife = absl::Seconds(60);
// The most memory that an object, a round or a blob needs beside its value.
constexpr int64_t kAroundValue = 1024;

}  // namespace

// --- Rounds.

absl::StatusOr<Payload> Group::Resolve(const Member& member, Value& value, MemoryKind kind) {
  if (value.blob != 0) {
    auto it = blobs_.find(value.blob);
    if (it == blobs_.end() || it->second.member != member.name) {
      return absl::NotFoundError(absl::StrCat("blob ", value.blob, " is not there: it was used, expired, "
                                              "or uploaded by another member; upload it again"));
    }
    it->second.payload.Become(kind);
    return it->second.payload;
  }
  if (absl::Status room =
          context_.CheckRoom(kind, static_cast<int64_t>(value.bytes.size()), kAroundValue);
      !room.ok()) {
    return room;
  }
  return Payload(std::move(value.bytes), context_.ledger, kind);
}

// Cuts one value that holds several, one after the other.
absl::Status Group::Cut(const std::vector<int64_t>& sizes, std::vector<Payload>& values) const {
  const Payload whole = values[0];
  int64_t offset = 0;
  std::vector<Payload> parts;
  for (int64_t size : sizes) {
    if (size < 0 || size > whole.size() - offset) break;
    parts.emplace_back(whole.bytes().substr(offset, size), context_.ledger, MemoryKind::kRounds);
    offset += size;
  }
  if (parts.size() != sizes.size() || offset != whole.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("values.sizes_bytes do not add up to the ", whole.size(), " bytes of the blob"));
  }
  values = std::move(parts);
  return absl::OkStatus();
}

void Group::Answer(Step& step, Call& call, EnterRoundCall& body) {
  const AllowedIn allowed_in =
      body.kind == RoundKind::kAgreeAlive ? AllowedIn::kActiveOrBroken : AllowedIn::kActiveOnly;
  Member* member = Admit(step, call, RoundKindName(body.kind), allowed_in);
  if (member == nullptr) return;
  std::vector<Payload> values;
  const bool brings = body.kind == RoundKind::kAllGather || body.kind == RoundKind::kGather ||
                      (body.root == member->rank && (body.kind == RoundKind::kBroadcast ||
                                                     body.kind == RoundKind::kScatter));
  if (brings) {
    if (body.values.empty()) body.values.resize(1);  // no value is an empty one
    for (Value& value : body.values) {
      absl::StatusOr<Payload> payload = Resolve(*member, value, MemoryKind::kRounds);
      if (!payload.ok()) {
        step.Fail(call.id, payload.status());
        return;
      }
      values.push_back(*std::move(payload));
    }
    if (!body.sizes.empty()) {
      absl::Status cut = Cut(body.sizes, values);
      if (!cut.ok()) {
        step.Fail(call.id, cut);
        return;
      }
    }
  }
  rounds_.Enter(step, call.id, *member, call.wait, body, std::move(values));
  for (const Value& value : body.values) DropBlob(value.blob);
}

void Group::Answer(Step& step, Call& call, CancelRoundCall& body) {
  if (Admit(step, call, "cancel barrier", AllowedIn::kActiveOnly) == nullptr) return;
  const Id128& operation = call.caller.operation_id;
  const uint64_t asked = Fingerprint(body);
  if (operations_.Repeated<CancelRoundReply>(step, call.id, operation, asked, body)) return;
  const CancelRoundReply reply{rounds_.Cancel(step, body.name, body.number, body.reason)};
  operations_.Remember(step, context_.key, operation, asked, reply, shard_.limits);
  step.Answer(call.id, reply);
}

// --- Objects.

void Group::Answer(Step& step, Call& call, SendCall& body) {
  Member* member = Admit(step, call, "send", AllowedIn::kActiveOnly);
  if (member == nullptr) return;
  const Id128& operation = call.caller.operation_id;
  const uint64_t asked = operation.empty() ? 0 : Fingerprint(body);
  if (absl::Status same = operations_.CheckSame<SendReply>(operation, asked, body); !same.ok()) {
    step.Fail(call.id, same);
    return;
  }
  if (const ReplyBody* again = operations_.Find(operation); again != nullptr) {
    const SendReply first = std::get<SendReply>(*again);
    if (!body.wait_consumed) {
      step.Answer(call.id, first);
    } else {
      mailboxes_.AwaitConsumed(step, call.id, call.wait, first.sequence);
    }
    return;
  }
  member->Begin("send", body.tag, body.order, step.now());
  absl::StatusOr<Payload> payload = Resolve(*member, body.value, MemoryKind::kObjects);
  if (!payload.ok()) {
    step.Fail(call.id, payload.status());
    return;
  }
  HeldSend send;
  send.id = call.id;
  send.operation = operation;
  send.fingerprint = asked;
  send.payload = *std::move(payload);
  send.blob = body.value.blob;
  send.deadline = step.now() + call.wait;
  body.value = Value{};
  send.call = std::move(body);
  if (send.call.order == 0) {
    Accept(step, member->rank, send);
    return;
  }
  // The send is accepted; held sends with the next numbers may follow.
  const SendCall mailbox = send.call;
  NumberedSends& sends = mailboxes_.numbered_sends();
  absl::Status held = mailboxes_.CheckDestination(member->rank, mailbox);
  if (held.ok()) held = sends.Hold(step, *member, std::move(send));
  if (!held.ok()) {
    const Cause* why = context_.WhyGone(mailbox.destination);
    step.Fail(call.id, held, why == nullptr ? nullptr : context_.Explain("send", *why));
    return;
  }
  while (std::optional<HeldSend> next = sends.TakeNext(member->rank, mailbox)) {
    if (!Accept(step, member->rank, *next)) return;
    sends.MarkSent(step, member->rank, next->call);
  }
}

bool Group::Accept(Step& step, int sender, HeldSend& send) {
  const absl::StatusOr<int64_t> sequence = mailboxes_.Send(step, sender, send);
  if (!sequence.ok()) {
    const Cause* why = context_.WhyGone(send.call.destination);
    step.Fail(send.id, sequence.status(),
              why == nullptr ? nullptr : context_.Explain("send", *why));
    return false;
  }
  DropBlob(send.blob);
  operations_.Remember(step, context_.key, send.operation, send.fingerprint,
                       SendReply{*sequence, false}, shard_.limits);
  if (!send.call.wait_consumed) step.Answer(send.id, SendReply{*sequence, false});
  return true;
}

void Group::Answer(Step& step, Call& call, ReceiveCall& body) {
  Member* member = Admit(step, call, "receive", AllowedIn::kActiveOnly);
  if (member == nullptr) return;
  member->Begin("receive", body.tag, 0, step.now());
  mailboxes_.Receive(step, call.id, *member, call.caller.operation_id, call.wait, body);
}

void Group::Answer(Step& step, Call& call, ExpireCall& body) {
  if (Admit(step, call, "expire", AllowedIn::kActiveOnly) == nullptr) return;
  const Id128& operation = call.caller.operation_id;
  const uint64_t asked = Fingerprint(body);
  if (operations_.Repeated<ExpireReply>(step, call.id, operation, asked, body)) return;
  ExpireReply reply;
  const absl::Duration older_than = body.older_than.value_or(context_.spec.data_expiration);
  mailboxes_.Expire(step, older_than, reply.object_count, reply.size_bytes);
  rounds_.Expire(step, older_than, reply.object_count, reply.size_bytes);
  operations_.Remember(step, context_.key, operation, asked, reply, shard_.limits);
  step.Answer(call.id, reply);
}

// --- Values that travel in parts.

void Group::Answer(Step& step, Call& call, PutBlobCall& body) {
  Member* member = Admit(step, call, "upload", AllowedIn::kActiveOnly);
  if (member == nullptr) return;
  if (static_cast<int64_t>(blobs_.size()) >= shard_.limits.max_blobs) {
    step.Fail(call.id, absl::ResourceExhaustedError(
                           absl::StrCat("group ", context_.key.group, " has ", blobs_.size(),
                                        " unused blobs; max_blobs is ", shard_.limits.max_blobs)));
    return;
  }
  Value value;
  value.bytes = std::move(body.bytes);
  absl::StatusOr<Payload> payload = Resolve(*member, value, MemoryKind::kUploads);
  if (!payload.ok()) {
    step.Fail(call.id, payload.status());
    return;
  }
  if (body.crc32.has_value()) payload->NoteCrc32(*body.crc32);
  const int64_t id = context_.NextNumber();
  Blob& blob = blobs_[id];
  blob.payload = *std::move(payload);
  blob.member = member->name;
  blob.expiry = shard_.timers.Schedule(step.now() + kBlobLife, [this, id](Step&) { DropBlob(id); });
  step.Answer(call.id, PutBlobReply{id});
}

void Group::Answer(Step& step, Call& call, GetBlobCall& body) {
  Member* member = Admit(step, call, "download", AllowedIn::kActiveOnly);
  if (member == nullptr) return;
  auto it = blobs_.find(body.blob);
  if (it == blobs_.end() || it->second.member != member->name) {
    step.Fail(call.id, absl::NotFoundError(absl::StrCat("blob ", body.blob, " is not there")));
    return;
  }
  step.Answer(call.id, GetBlobReply{it->second.payload});
}

void Group::DropBlob(int64_t id) {
  auto it = blobs_.find(id);
  if (it == blobs_.end()) return;
  shard_.timers.Cancel(it->second.expiry);
  blobs_.erase(it);
}

// --- Unique ids.

void Group::Answer(Step& step, Call& call, PublishIdsCall& body) {
  Member* member = Admit(step, call, "publish unique ids", AllowedIn::kActiveOnly);
  if (member != nullptr) unique_ids_.Publish(step, call.id, *member, body);
}

void Group::Answer(Step& step, Call& call, FetchIdsCall& body) {
  Member* member = Admit(step, call, "fetch unique ids", AllowedIn::kActiveOnly);
  if (member == nullptr) return;
  member->Begin("fetch unique ids", body.name, 0, step.now());
  unique_ids_.Fetch(step, call.id, *member, call.wait, body);
}

void Group::Answer(Step& step, Call& call, ReportInitCall& body) {
  Member* member = Admit(step, call, "report init", AllowedIn::kActiveOnly);
  if (member != nullptr) unique_ids_.Report(step, call.id, *member, body);
}

}  // namespace cohort::coordinator
