#include "worker/communicator/nccl/agreement/operation_agreement.h"

#include <sched.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "worker/communicator/mismatch.h"

namespace cohort::worker {
namespace {

constexpr char kEndMark[] = "cohort/ranks-enqueued-different-things";
// How many earlier operations are compared when ranks find that they differ.
constexpr int64_t kRemembered = 64;

// The data that each rank brings to a barrier.
struct Said {
  OperationLogLine line;
  int64_t before = 0;
  uint64_t chain = 0;
  uint64_t shares_device = 0;
};

constexpr uint8_t kOffer = 1;
constexpr uint8_t kAnswer = 2;
// How long ready messages wait, to be posted together with others that the other side has not
// called yet. It may call those later, and only after it has these.
constexpr absl::Duration kTimeout = absl::Milliseconds(100);
// How often a rank looks for control messages, first without a pause and then with yields. After
// that it sleeps between two looks, so that a long wait costs little.
constexpr int kLooks = 2000;
constexpr int kYields = 3000;
constexpr absl::Duration kPause = absl::Microseconds(100);
// The longest wait for the rest of a control message that has begun to arrive.
constexpr absl::Duration kRestOfMessage = absl::Seconds(10);

std::string DescribeMessage(const Transfer& own, int64_t count, uint8_t type, uint32_t other_tag) {
  const bool same = count == own.count && type == static_cast<uint8_t>(own.type);
  return absl::StrCat(
      count, " ",
      IsDataType(type) ? NameOf(static_cast<DataType>(type)) : absl::string_view("elements"),
      same && own.tag != other_tag ? " in a call of another kind" : "");
}

void Rest(int look) {
  if (look > kYields) {
    absl::SleepFor(kPause);
  } else if (look > kLooks) {
    sched_yield();
  }
}

}  // namespace

Agreement::Agreement(Communicator* host, const NcclOperationLog* operation_log)
    : host_(*host), operation_log_(*operation_log), peers_(static_cast<size_t>(host->size())) {}

absl::Status Agreement::OnOperation(const OperationLogLine& line, bool shares_device,
                                    Instant deadline) {
  const NcclOperationLog::Entry last = Last();
  const Said own{line, operation_log_.posted(host_.rank()), last.chain, shares_device ? 1u : 0u};
  std::vector<Said> said(peers_.size());
  COHORT_RETURN_IF_ERROR(host_.AllGather(&own, said.data(), sizeof(own), DataType::kU8, deadline));
  is_device_shared_ = false;
  for (const Said& other : said) is_device_shared_ |= other.shares_device != 0;
  for (const Said& other : said) {
    if (other.before != said[0].before || other.chain != said[0].chain) {
      return FindDifference(deadline);
    }
  }
  for (size_t rank = 1; rank < said.size(); ++rank) {
    if (Same(said[0].line, said[rank].line)) continue;
    return MismatchError(Describe(said[0].line), static_cast<int>(rank), Describe(said[rank].line));
  }
  return absl::OkStatus();
}

NcclOperationLog::Entry Agreement::Last() const {
  return operation_log_.Read(host_.rank(), operation_log_.posted(host_.rank()))
      .value_or(NcclOperationLog::Entry());
}

absl::Status Agreement::FindDifference(Instant deadline) {
  struct Remembered {
    int64_t sequence;  // 0: none
    NcclOperationLog::Entry entry;
  };
  std::vector<Remembered> own(kRemembered);
  const int64_t posted = operation_log_.posted(host_.rank());
  for (int64_t at = std::max<int64_t>(1, posted - kRemembered + 1); at <= posted; ++at) {
    const auto entry = operation_log_.Read(host_.rank(), at);
    if (entry.has_value()) own[static_cast<size_t>(at % kRemembered)] = {at, *entry};
  }
  std::vector<Remembered> all(own.size() * peers_.size());
  const auto bytes = static_cast<int64_t>(own.size() * sizeof(Remembered));
  COHORT_RETURN_IF_ERROR(host_.AllGather(own.data(), all.data(), bytes, DataType::kU8, deadline));
  // The earliest entry in which two ranks differ, or that only one has.
  std::optional<NcclOperationLog::Difference> first;
  for (size_t rank = 1; rank < peers_.size(); ++rank) {
    for (size_t i = 0; i < own.size(); ++i) {
      const Remembered& mine = all[i];
      const Remembered& theirs = all[rank * own.size() + i];
      if (mine.sequence == theirs.sequence && mine.entry.chain == theirs.entry.chain) continue;
      const bool both = mine.sequence == theirs.sequence;
      NcclOperationLog::Difference found;
      found.rank = static_cast<int>(rank);
      found.sequence = both ? mine.sequence : std::max(mine.sequence, theirs.sequence);
      if (mine.sequence == found.sequence) found.mine = mine.entry.line;
      if (theirs.sequence == found.sequence) found.theirs = theirs.entry.line;
      if (!first.has_value() || found.sequence < first->sequence) first = found;
    }
  }
  if (first.has_value() && first->sequence > 1) {
    // Whether both ranks have kept the entry before, which was the same.
    const auto before = static_cast<size_t>((first->sequence - 1) % kRemembered);
    const Remembered& mine = all[before];
    const Remembered& theirs = all[static_cast<size_t>(first->rank) * own.size() + before];
    first->is_first = mine.sequence == first->sequence - 1 && theirs.sequence == mine.sequence;
  }
  return DifferenceError(0, first.value_or(NcclOperationLog::Difference()));
}

absl::Status DifferenceError(int rank, const NcclOperationLog::Difference& difference) {
  const auto name = [](const OperationLogLine& line, const std::string& refusal) {
    if (line.key.collective() == 0) return std::string("nothing");
    return refusal.empty() ? Describe(line) : absl::StrCat(Describe(line), ": ", refusal);
  };
  const std::string mine = name(difference.mine, difference.my_refusal);
  const std::string theirs = name(difference.theirs, difference.their_refusal);
  const std::string& lower = rank < difference.rank ? mine : theirs;
  const std::string& higher = rank < difference.rank ? theirs : mine;
  absl::Status status = absl::InvalidArgumentError(absl::StrCat(
      "ranks called different things as operation ", difference.sequence,
      difference.is_first ? "" : " or before it", ": rank ", std::min(rank, difference.rank), " ",
      lower, "; rank ", std::max(rank, difference.rank), " ", higher,
      lower == higher ? ", of another tag" : "",
      "; devices may hang in it: this group has ended, and is to be formed anew"));
  status.SetPayload(kEndMark, absl::Cord());
  return status;
}

bool IsDifference(const absl::Status& status) {
  return absl::IsInvalidArgument(status) && status.GetPayload(kEndMark).has_value();
}

absl::Status Agreement::OnTransfers(
    absl::Span<const Transfer> transfers, Instant deadline,
    absl::FunctionRef<absl::Status(const std::vector<size_t>&)> post) {
  transfers_ = transfers;
  ready_.clear();
  mismatches_.clear();
  std::vector<int>& peers = talks_with_;
  peers.clear();
  for (const Transfer& transfer : transfers) {
    if (std::find(peers.begin(), peers.end(), transfer.peer) != peers.end()) continue;
    // Drops the transfers of a call that ended early.
    Peer& peer = peers_[static_cast<size_t>(transfer.peer)];
    peer.sends.clear();
    peer.receives.clear();
    peers.push_back(transfer.peer);
  }
  for (size_t i = 0; i < transfers.size(); ++i) {
    const Transfer& transfer = transfers[i];
    Peer& peer = peers_[static_cast<size_t>(transfer.peer)];
    (transfer.sends ? peer.sends : peer.receives).push_back(i);
    if (!transfer.sends) continue;
    ControlMessage offer;
    offer.kind = kOffer;
    offer.type = static_cast<uint8_t>(transfer.type);
    offer.tag = transfer.tag;
    offer.count = transfer.count;
    COHORT_RETURN_IF_ERROR(Say(transfer.peer, offer, deadline));
  }
  Instant wait_ends = absl::InfiniteFuture();
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
    if (!ready_.empty() && wait_ends == absl::InfiniteFuture()) {
      wait_ends = Clock::Steady().Now() + kTimeout;
    }
    if (!ready_.empty() && (!open || now >= wait_ends)) {
      std::sort(ready_.begin(), ready_.end());
      COHORT_RETURN_IF_ERROR(post(ready_));
      ready_.clear();
      wait_ends = absl::InfiniteFuture();
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
    Rest(look);
  }
  return mismatches_.empty() ? absl::OkStatus()
                             : absl::InvalidArgumentError(absl::StrJoin(mismatches_, "; "));
}

absl::StatusOr<bool> Agreement::HasOffer(int peer) {
  Peer& state = peers_[static_cast<size_t>(peer)];
  // Drops the transfers of a call that ended early.
  state.sends.clear();
  state.receives.clear();
  for (bool heard = true; heard;) {
    COHORT_ASSIGN_OR_RETURN(heard, Listen(peer, Clock::Steady().Now() + kRestOfMessage));
  }
  return !state.offers.empty();
}

absl::StatusOr<MessageInfo> Agreement::AwaitOffer(absl::Span<const int> peers, Instant deadline) {
  for (int look = 0;; ++look) {
    for (const int peer : peers) {
      COHORT_ASSIGN_OR_RETURN(const bool has_offer, HasOffer(peer));
      if (!has_offer) continue;
      const ControlMessage& offer = peers_[static_cast<size_t>(peer)].offers.front();
      if (!IsDataType(offer.type)) {
        return absl::InternalError(
            absl::StrCat("rank ", peer, " announces a message of type ", offer.type));
      }
      return MessageInfo{peer, static_cast<DataType>(offer.type), offer.count};
    }
    if (Clock::Steady().Now() >= deadline) return no_message_.Of(peers);
    Rest(look);
  }
}

absl::Status Agreement::Say(int peer, const ControlMessage& message, Instant deadline) {
  // Reads first: ranks with more messages than there is room for would wait for each other, two
  // of them or all around a ring.
  for (bool more = true; more;) {
    more = false;
    for (const int other : talks_with_) {
      COHORT_ASSIGN_OR_RETURN(const bool heard, Listen(other, deadline));
      more = more || heard;
    }
  }
  const Transfer send = Transfer::Send(peer, &message, sizeof(message), DataType::kU8);
  return host_.Exchange(absl::MakeConstSpan(&send, 1), deadline, MessageChannel::kControl);
}

absl::StatusOr<bool> Agreement::Listen(int peer, Instant deadline) {
  COHORT_ASSIGN_OR_RETURN(const bool come, host_.HasMessage(peer, MessageChannel::kControl));
  if (!come) return false;
  ControlMessage message;
  const Transfer receive = Transfer::Receive(peer, &message, sizeof(message), DataType::kU8);
  COHORT_RETURN_IF_ERROR(
      host_.Exchange(absl::MakeConstSpan(&receive, 1), deadline, MessageChannel::kControl));
  if (message.kind == kOffer) {
    peers_[static_cast<size_t>(peer)].offers.push_back(message);
  } else if (message.kind == kAnswer) {
    OnAnswer(message, peer);
  }
  return true;
}

void Agreement::OnAnswer(const ControlMessage& answer, int peer) {
  std::deque<size_t>& sends = peers_[static_cast<size_t>(peer)].sends;
  if (sends.empty()) return;  // of a call that ended early
  const size_t index = sends.front();
  sends.pop_front();
  if (answer.same != 0) {
    ready_.push_back(index);
    return;
  }
  const Transfer& transfer = transfers_[index];
  mismatches_.push_back(
      absl::StrCat(Describe(transfer), ": it expected ",
                   DescribeMessage(transfer, answer.count, answer.type, answer.tag)));
}

absl::Status Agreement::AnswerOffers(int peer, Instant deadline) {
  Peer& state = peers_[static_cast<size_t>(peer)];
  while (!state.receives.empty() && !state.offers.empty()) {
    const size_t index = state.receives.front();
    const ControlMessage offer = state.offers.front();
    state.receives.pop_front();
    state.offers.pop_front();
    const Transfer& transfer = transfers_[index];
    ControlMessage answer;
    answer.kind = kAnswer;
    answer.type = static_cast<uint8_t>(transfer.type);
    answer.tag = transfer.tag;
    answer.count = transfer.count;
    answer.same =
        offer.type == answer.type && offer.tag == transfer.tag && offer.count == answer.count;
    COHORT_RETURN_IF_ERROR(Say(peer, answer, deadline));
    if (answer.same != 0) {
      ready_.push_back(index);
      continue;
    }
    mismatches_.push_back(
        absl::StrCat(Describe(transfer), ": it sent ",
                     DescribeMessage(transfer, offer.count, offer.type, offer.tag)));
  }
  return absl::OkStatus();
}

}  // namespace cohort::worker
