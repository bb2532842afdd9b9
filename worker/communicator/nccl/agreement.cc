#include "worker/communicator/nccl/agreement.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "worker/communicator/mismatch.h"

namespace cohort::worker {
namespace {

// What all ranks have to have in common, as it travels.
struct Line {
  uint8_t verb = 0;
  uint8_t type = 0;
  uint8_t op = 0;
  int32_t root = 0;
  uint32_t tag = 0;
  int64_t count = 0;
  double scale = 0;
};

Line LineOf(const Operation& operation) {
  Line line;
  std::memset(static_cast<void*>(&line), 0, sizeof(line));  // compared with what lies between
  line.verb = static_cast<uint8_t>(operation.verb);
  line.type = static_cast<uint8_t>(operation.type);
  line.count = operation.count;
  line.tag = operation.tag;
  if (HasRoot(operation.verb)) line.root = operation.root;
  if (Reduces(operation.verb)) {
    line.op = static_cast<uint8_t>(operation.reduction.op);
    line.scale = operation.reduction.scale;
  }
  return line;
}

std::string Describe(const Line& line) {
  Operation operation;
  operation.verb = static_cast<Verb>(line.verb);
  operation.count = line.count;
  operation.root = line.root;
  if (!IsDataType(line.type) || (line.op != 0 && !IsReduceOp(line.op))) return "what nobody knows";
  operation.type = static_cast<DataType>(line.type);
  if (Reduces(operation.verb)) operation.reduction = {static_cast<ReduceOp>(line.op), line.scale};
  return worker::Describe(operation);
}

constexpr uint8_t kOffer = 1;
constexpr uint8_t kAnswer = 2;
// Of messages that could go together with others that the other side has not called yet: it may
// call those later, and not before it has these.
constexpr absl::Duration kPatience = absl::Milliseconds(100);
// How often others' notes are looked for at once, and with offers of the processor; then with
// pauses, so that who waits for long burns nothing.
constexpr int kLooks = 2000;
constexpr int kYields = 3000;
constexpr absl::Duration kPause = absl::Microseconds(100);

std::string DescribeMessage(const Transfer& own, uint32_t tag, int64_t count, uint8_t type,
                            uint32_t other_tag) {
  const bool same = count == own.count && type == static_cast<uint8_t>(own.type);
  return absl::StrCat(
      count, " ",
      IsDataType(type) ? NameOf(static_cast<DataType>(type)) : absl::string_view("elements"),
      same && tag != other_tag ? " in a call of another kind" : "");
}

}  // namespace

Agreement::Agreement(Communicator* host)
    : host_(*host), peers_(static_cast<size_t>(host->size())) {}

absl::Status Agreement::OnOperation(const Operation& operation, Instant deadline) {
  const Line own = LineOf(operation);
  std::vector<Line> lines(peers_.size());
  host_.set_tag(0);
  COHORT_RETURN_IF_ERROR(host_.AllGather(&own, lines.data(), sizeof(own), DataType::kU8, deadline));
  for (size_t rank = 1; rank < lines.size(); ++rank) {
    if (std::memcmp(&lines[0], &lines[rank], sizeof(Line)) == 0) continue;
    return MismatchError(Describe(lines[0]), static_cast<int>(rank), Describe(lines[rank]));
  }
  return absl::OkStatus();
}

absl::Status Agreement::OnTransfers(
    absl::Span<const Transfer> transfers, uint32_t tag, Instant deadline,
    absl::FunctionRef<absl::Status(const std::vector<size_t>&)> post) {
  transfers_ = transfers;
  tag_ = tag;
  ready_.clear();
  refusals_.clear();
  std::vector<int> peers;
  for (size_t i = 0; i < transfers.size(); ++i) {
    const Transfer& transfer = transfers[i];
    Peer& peer = peers_[static_cast<size_t>(transfer.peer)];
    if (std::find(peers.begin(), peers.end(), transfer.peer) == peers.end()) {
      // Of a call that ended early.
      peer.sends.clear();
      peer.receives.clear();
      peers.push_back(transfer.peer);
    }
    (transfer.sends ? peer.sends : peer.receives).push_back(i);
    if (!transfer.sends) continue;
    Note offer;
    offer.kind = kOffer;
    offer.type = static_cast<uint8_t>(transfer.type);
    offer.tag = tag;
    offer.count = transfer.count;
    COHORT_RETURN_IF_ERROR(Say(transfer.peer, offer, deadline));
  }
  Instant patience_ends = absl::InfiniteFuture();
  for (int look = 0;; ++look) {
    bool open = false;
    for (const int peer : peers) {
      COHORT_RETURN_IF_ERROR(AnswerOffers(peer, deadline));
      while (true) {
        COHORT_ASSIGN_OR_RETURN(const bool heard, Listen(peer, deadline));
        if (!heard) break;
        COHORT_RETURN_IF_ERROR(AnswerOffers(peer, deadline));
      }
      const Peer& state = peers_[static_cast<size_t>(peer)];
      open = open || !state.sends.empty() || !state.receives.empty();
    }
    const bool looks_at_clock = look % 64 == 0;
    const Instant now = looks_at_clock || !open ? Clock::Steady().Now() : absl::InfinitePast();
    if (!ready_.empty() && patience_ends == absl::InfiniteFuture()) {
      patience_ends = Clock::Steady().Now() + kPatience;
    }
    if (!ready_.empty() && (!open || now >= patience_ends)) {
      std::sort(ready_.begin(), ready_.end());
      COHORT_RETURN_IF_ERROR(post(ready_));
      ready_.clear();
      patience_ends = absl::InfiniteFuture();
    }
    if (!open) break;
    if (now >= deadline) {
      std::vector<std::string> waiting;
      for (const int peer : peers) {
        const Peer& state = peers_[static_cast<size_t>(peer)];
        for (const size_t i : state.sends) waiting.push_back(Describe(transfers[i]));
        for (const size_t i : state.receives) waiting.push_back(Describe(transfers[i]));
      }
      return absl::DeadlineExceededError(
          absl::StrCat(absl::StrJoin(waiting, ", "), ": it did not come"));
    }
    if (look > kYields) {
      absl::SleepFor(kPause);
    } else if (look > kLooks) {
      sched_yield();
    }
  }
  return refusals_.empty() ? absl::OkStatus()
                           : absl::InvalidArgumentError(absl::StrJoin(refusals_, "; "));
}

absl::Status Agreement::Say(int peer, const Note& note, Instant deadline) {
  const Transfer message = Transfer::Send(peer, &note, sizeof(note), DataType::kU8);
  host_.set_tag(0);
  return host_.Exchange(absl::MakeConstSpan(&message, 1), deadline);
}

absl::StatusOr<bool> Agreement::Listen(int peer, Instant deadline) {
  COHORT_ASSIGN_OR_RETURN(const bool come, host_.HasMessage(peer));
  if (!come) return false;
  Note note;
  const Transfer message = Transfer::Receive(peer, &note, sizeof(note), DataType::kU8);
  host_.set_tag(0);
  COHORT_RETURN_IF_ERROR(host_.Exchange(absl::MakeConstSpan(&message, 1), deadline));
  if (note.kind == kOffer) {
    peers_[static_cast<size_t>(peer)].offers.push_back(note);
  } else if (note.kind == kAnswer) {
    OnAnswer(note, peer);
  }
  return true;
}

void Agreement::OnAnswer(const Note& note, int peer) {
  std::deque<size_t>& sends = peers_[static_cast<size_t>(peer)].sends;
  if (sends.empty()) return;  // of a call that ended early
  const size_t place = sends.front();
  sends.pop_front();
  if (note.same != 0) {
    ready_.push_back(place);
    return;
  }
  const Transfer& transfer = transfers_[place];
  refusals_.push_back(
      absl::StrCat(Describe(transfer), ": it expected ",
                   DescribeMessage(transfer, tag_, note.count, note.type, note.tag)));
}

absl::Status Agreement::AnswerOffers(int peer, Instant deadline) {
  Peer& state = peers_[static_cast<size_t>(peer)];
  while (!state.receives.empty() && !state.offers.empty()) {
    const size_t place = state.receives.front();
    const Note offer = state.offers.front();
    state.receives.pop_front();
    state.offers.pop_front();
    const Transfer& transfer = transfers_[place];
    Note answer;
    answer.kind = kAnswer;
    answer.type = static_cast<uint8_t>(transfer.type);
    answer.tag = tag_;
    answer.count = transfer.count;
    answer.same = offer.type == answer.type && offer.tag == tag_ && offer.count == answer.count;
    COHORT_RETURN_IF_ERROR(Say(peer, answer, deadline));
    if (answer.same != 0) {
      ready_.push_back(place);
      continue;
    }
    refusals_.push_back(
        absl::StrCat(Describe(transfer), ": it sent ",
                     DescribeMessage(transfer, tag_, offer.count, offer.type, offer.tag)));
  }
  return absl::OkStatus();
}

}  // namespace cohort::worker
