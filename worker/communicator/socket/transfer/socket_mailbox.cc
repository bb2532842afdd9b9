#include "worker/communicator/socket/transfer/socket_mailbox.h"

#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/communicator/arguments.h"
#include "worker/communicator/socket/transfer/transfer_plan.h"

namespace cohort::worker {
namespace {

int64_t BytesOf(const Transfer& transfer) { return transfer.count * SizeOf(transfer.type); }

FrameHeader Make(FrameKind kind, const CollectiveKey& key = {}, int64_t payload_bytes = 0) {
  FrameHeader header;
  header.kind = kind;
  header.key = key;
  header.payload_bytes = static_cast<uint32_t>(payload_bytes);
  return header;
}

absl::Status Mismatch(const Posted& posted, const CollectiveKey& other) {
  const Transfer& transfer = posted.transfer;
  return absl::InvalidArgumentError(absl::StrCat(
      Describe(transfer), ": ", transfer.sends ? "it wants " : "it has sent ",
      DescribeMessage(other), transfer.tag == other.tag() ? "" : " in a call of another kind"));
}

absl::Status Broken(absl::string_view what) { return absl::InternalError(what); }

}  // namespace

void Mailbox::Post(Posted* posted, int* open) {
  open_ = open;
  ++*open_;
  (posted->transfer.sends ? sends_ : receives_).push_back(posted);
  posted->transfer.sends ? SendMore() : Match();
}

void Mailbox::Drop() {
  sends_.clear();
  offers_.clear();
  receives_.clear();
  direct_ = nullptr;
  open_ = nullptr;
}

void Mailbox::FailWaiting(const absl::Status& cause) {
  for (std::deque<Posted*>* waiting : {&sends_, &offers_, &receives_}) {
    for (Posted* const posted : *waiting) Complete(*posted, cause);
    waiting->clear();
  }
  direct_ = nullptr;
}

void Mailbox::Complete(Posted& posted, absl::Status status) {
  posted.completed = true;
  posted.status = std::move(status);
  --*open_;
}

void Mailbox::StartFlows(const Transfer& transfer) {
  PlanMessage(transfer.peer, transfer.sends, static_cast<char*>(transfer.data), BytesOf(transfer),
              open_, &traffic_);
}

void Mailbox::SendMore() {
  while (!sends_.empty()) {
    Posted& send = *sends_.front();
    const int64_t bytes = BytesOf(send.transfer);
    const bool small = bytes <= small_bytes();
    const int64_t cost = kFrameHeaderBytes + (small ? bytes : 0);
    if (cost > credit_) return;
    credit_ -= cost;
    sends_.pop_front();
    const CollectiveKey key = KeyOf(send.transfer);
    if (small) {
      link_.Send(Make(message_, key, bytes),
                 {static_cast<const char*>(send.transfer.data), static_cast<size_t>(bytes)});
      Complete(send, absl::OkStatus());
    } else {
      link_.Send(Make(FrameKind::kOffer, key));
      offers_.push_back(&send);
    }
  }
}

void Mailbox::Match() {
  while (!receives_.empty() && !arrivals_.empty() && arrivals_.front().complete) {
    Posted& receive = *receives_.front();
    receives_.pop_front();
    const Arrival arrival = std::move(arrivals_.front());
    arrivals_.pop_front();
    Deliver(receive, arrival);
  }
}

void Mailbox::Deliver(Posted& receive, const Arrival& arrival) {
  const CollectiveKey wanted = KeyOf(receive.transfer);
  GiveCredit(kFrameHeaderBytes + static_cast<int64_t>(arrival.payload.size()));
  if (arrival.key != wanted) {
    if (arrival.offered) link_.Send(Make(FrameKind::kReject, wanted));
    return Complete(receive, Mismatch(receive, arrival.key));
  }
  if (arrival.offered) {
    link_.Send(Make(FrameKind::kAccept));
    StartFlows(receive.transfer);
  } else if (!arrival.payload.empty()) {
    std::memcpy(receive.transfer.data, arrival.payload.data(), arrival.payload.size());
  }
  Complete(receive, absl::OkStatus());
}

void Mailbox::GiveCredit(int64_t bytes) {
  taken_ += bytes;
  if (taken_ < window_ / 2) return;
  FrameHeader header = Make(credit_kind_);
  header.number = static_cast<uint64_t>(taken_);
  link_.Send(header);
  on_way_ -= taken_;
  taken_ = 0;
}

absl::Status Mailbox::CheckMessage(const FrameHeader& header) {
  const CollectiveKey& key = header.key;
  if (key.collective() != static_cast<int>(Collective::kExchange) || !IsDataType(key.type()) ||
      key.count < 0) {
    return Broken("a message with an invalid type or count");
  }
  const int64_t element = SizeOf(static_cast<DataType>(key.type()));
  if (key.count > std::numeric_limits<int64_t>::max() / element) {
    return Broken("a message whose size in bytes overflows");
  }
  const int64_t bytes = key.count * element;
  const bool small = header.kind == message_;
  if ((bytes <= small_bytes()) != small || header.payload_bytes != (small ? bytes : 0)) {
    return Broken("a message with a wrong payload size");
  }
  on_way_ += kFrameHeaderBytes + header.payload_bytes;
  return on_way_ <= window_ ? absl::OkStatus() : Broken("more bytes of messages than its window");
}

absl::Status Mailbox::OnHeader(const FrameHeader& header, char** sink) {
  if (header.kind != message_ && header.kind != FrameKind::kOffer) {
    return header.payload_bytes == 0 ? absl::OkStatus() : Broken("a control frame with a payload");
  }
  if (absl::Status status = CheckMessage(header); !status.ok()) return status;
  const bool small = header.kind == message_;
  if (small && arrivals_.empty() && !receives_.empty() &&
      KeyOf(receives_.front()->transfer) == header.key) {
    direct_ = receives_.front();
    *sink = static_cast<char*>(direct_->transfer.data);
    return absl::OkStatus();
  }
  Arrival& arrival = arrivals_.emplace_back();
  arrival.key = header.key;
  arrival.offered = !small;
  arrival.payload.resize(header.payload_bytes);
  *sink = &arrival.payload[0];
  return absl::OkStatus();
}

absl::Status Mailbox::OnFrame(const FrameHeader& header) {
  if (header.kind == message_ || header.kind == FrameKind::kOffer) return OnArrived(header);
  if (header.kind == credit_kind_) return OnCredit(header);
  if (header.kind != FrameKind::kAccept && header.kind != FrameKind::kReject) {
    return Broken("a frame of an unknown kind");
  }
  if (offers_.empty()) return Broken("an answer without an offer");
  Posted& offer = *offers_.front();
  offers_.pop_front();
  if (header.kind == FrameKind::kReject) {
    Complete(offer, Mismatch(offer, header.key));
    return absl::OkStatus();
  }
  StartFlows(offer.transfer);
  Complete(offer, absl::OkStatus());
  return absl::OkStatus();
}

absl::Status Mailbox::OnArrived(const FrameHeader& header) {
  if (direct_ != nullptr) {
    receives_.pop_front();
    GiveCredit(kFrameHeaderBytes + header.payload_bytes);
    Complete(*std::exchange(direct_, nullptr), absl::OkStatus());
    return absl::OkStatus();
  }
  arrivals_.back().complete = true;
  Match();
  return absl::OkStatus();
}

absl::Status Mailbox::OnCredit(const FrameHeader& header) {
  if (header.number > static_cast<uint64_t>(window_ - credit_)) {
    return Broken("more credit than it used");
  }
  credit_ += static_cast<int64_t>(header.number);
  SendMore();
  return absl::OkStatus();
}

}  // namespace cohort::worker
