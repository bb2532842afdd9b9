#include "worker/communicator/socket/transfer/traffic.h"

#include <errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "worker/communicator/host/reduce/reduce_kernel.h"
#include "worker/communicator/socket/transfer/link.h"

namespace cohort::worker {
namespace {

// The most bytes of one system call or copy, so that no stream waits for long.
constexpr int64_t kSendBytes = int64_t{256} << 10;
constexpr int64_t kReceiveBytes = int64_t{256} << 10;
constexpr int64_t kCopyBytes = int64_t{256} << 10;

// How far the flow may go.
int64_t Limit(const Flow& flow, bool sends) {
  if (flow.gate == nullptr) return flow.size;
  return sends ? *flow.gate : std::min(flow.size, *flow.gate + flow.ring);
}

// From byte `at` on, up to the end of the ring.
int64_t Straight(int64_t at, int64_t bytes, int64_t ring) {
  return ring == 0 ? bytes : std::min(bytes, ring - at % ring);
}
template <typename Byte>
Byte* At(Byte* data, int64_t at, int64_t ring) {
  return data + (ring == 0 ? at : at % ring);
}

bool IsNothing(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

Traffic::Traffic(std::vector<std::vector<RankSocket>> streams) : index_(streams.size()) {
  for (size_t rank = 0; rank < streams.size(); ++rank) {
    for (RankSocket& socket : streams[rank]) {
      index_[rank].push_back(static_cast<int>(all_.size()));
      Stream& stream = all_.emplace_back();
      stream.rank = static_cast<int>(rank);
      stream.socket = std::move(socket);
    }
    streams_ = std::max(streams_, static_cast<int>(index_[rank].size()));
  }
}

Flow* Traffic::Add(int peer, int stream, const Flow& flow, bool sends) {
  Flow* const added = &flows_.emplace_back(flow);
  if (flow.size == 0) {
    if (flow.waiting != nullptr) --*flow.waiting;
    return added;
  }
  Stream& carrier =
      all_[static_cast<size_t>(index_[static_cast<size_t>(peer)][static_cast<size_t>(stream)])];
  if (carrier.sends.empty() && carrier.receives.empty()) active_.push_back(&carrier);
  (sends ? carrier.sends : carrier.receives).push_back(added);
  ++open_;
  return added;
}

Reducer* Traffic::Reduce(Reducer reducer) {
  if (reducer.size > 0) ++open_;
  return &reducers_.emplace_back(std::move(reducer));
}

void Traffic::Copy(char* to, const char* from, int64_t bytes) {
  if (to == from || bytes == 0) return;
  copies_.push_back({to, from, bytes});
  ++open_;
}

void Traffic::Clear() {
  for (Stream* stream : active_) {
    stream->sends.clear();
    stream->receives.clear();
  }
  active_.clear();
  flows_.clear();
  reducers_.clear();
  copies_.clear();
  open_ = 0;
}

void Traffic::Finish(std::deque<Flow*>& flows) {
  if (flows.front()->waiting != nullptr) --*flows.front()->waiting;
  flows.pop_front();
  --open_;
}

int64_t Traffic::Push(Stream& stream, std::string* reason) {
  Flow& flow = *stream.sends.front();
  const int64_t bytes =
      Straight(flow.done, std::min(Limit(flow, true) - flow.done, kSendBytes), flow.ring);
  if (bytes <= 0) return 0;
  const ssize_t sent = stream.socket.stream().Send(
      {At(flow.data, flow.done, flow.ring), static_cast<size_t>(bytes)});
  if (sent < 0) {
    if (IsNothing(errno)) return 0;
    *reason = ReasonOfEnd(sent, errno);
    return -1;
  }
  flow.done += sent;
  if (flow.done == flow.size) Finish(stream.sends);
  return sent;
}

int64_t Traffic::Pull(Stream& stream, std::string* reason) {
  Flow& flow = *stream.receives.front();
  const int64_t bytes =
      Straight(flow.done, std::min(Limit(flow, false) - flow.done, kReceiveBytes), flow.ring);
  if (bytes <= 0) return 0;
  const ssize_t got = stream.socket.stream().Receive(At(flow.data, flow.done, flow.ring),
                                                     static_cast<size_t>(bytes));
  if (got <= 0) {
    if (got < 0 && IsNothing(errno)) return 0;
    *reason = ReasonOfEnd(got, errno);
    return -1;
  }
  flow.done += got;
  if (flow.done == flow.size) Finish(stream.receives);
  return got;
}

bool Traffic::Step(Reducer& reducer) {
  const int64_t element = SizeOf(reducer.type);
  bool any = false;
  while (reducer.done < reducer.size) {
    const int64_t wanted = std::min(reducer.size - reducer.done, reducer.step);
    int64_t bytes = Straight(reducer.done, wanted, reducer.output_ring);
    for (const Operand& operand : reducer.operands) {
      bytes = Straight(reducer.done, bytes, operand.ring);
      if (operand.here != nullptr) bytes = std::min(bytes, *operand.here - reducer.done);
    }
    if (bytes < wanted) break;
    absl::InlinedVector<const void*, 16> inputs;
    for (const Operand& operand : reducer.operands) {
      inputs.push_back(At(operand.data, reducer.done, operand.ring));
    }
    void* const output = At(reducer.output, reducer.done, reducer.output_ring);
    worker::Reduce(reducer.type, reducer.reduction, inputs, absl::MakeConstSpan(&output, 1),
                   bytes / element);
    reducer.done += bytes;
    any = true;
    if (reducer.done == reducer.size) --open_;
  }
  return any;
}

bool Traffic::CopySome() {
  if (copies_.empty()) return false;
  LocalCopy& copy = copies_.back();
  const int64_t bytes = std::min(copy.left, kCopyBytes);
  std::memcpy(copy.to, copy.from, static_cast<size_t>(bytes));
  copy.to += bytes;
  copy.from += bytes;
  copy.left -= bytes;
  if (copy.left > 0) return true;
  copies_.pop_back();
  --open_;
  return true;
}

Traffic::Moved Traffic::Move() {
  Moved moved;
  for (size_t i = 0; i < active_.size(); ++i) {
    Stream& stream = *active_[i];
    const int64_t sent = stream.sends.empty() ? 0 : Push(stream, &moved.reason);
    const int64_t got = sent < 0 || stream.receives.empty() ? 0 : Pull(stream, &moved.reason);
    if (sent < 0 || got < 0) {
      moved.lost_rank = stream.rank;
      return moved;
    }
    moved.any = moved.any || sent > 0 || got > 0;
    if (got > 0) {
      for (Reducer& reducer : reducers_) Step(reducer);
    }
    if (stream.sends.empty() && stream.receives.empty()) {
      active_[i--] = active_.back();
      active_.pop_back();
    }
  }
  for (Reducer& reducer : reducers_) moved.any = Step(reducer) || moved.any;
  if (!moved.any) moved.any = CopySome();
  return moved;
}

bool Traffic::AddInterest(std::vector<pollfd>* polled) const {
  bool has_input = false;
  for (const Stream* stream : active_) {
    short events = 0;
    if (!stream->sends.empty()) {
      const Flow& flow = *stream->sends.front();
      if (Limit(flow, true) > flow.done) events |= POLLOUT;
    }
    if (!stream->receives.empty()) {
      const Flow& flow = *stream->receives.front();
      if (Limit(flow, false) > flow.done) {
        events |= POLLIN;
        has_input = has_input || stream->socket.stream().HasInput();
      }
    }
    if (events != 0) polled->push_back({stream->socket.fd(), events, 0});
  }
  return has_input;
}

RankSet Traffic::Unfinished() const {
  RankSet ranks;
  for (const Stream* stream : active_) ranks.Add(stream->rank);
  return ranks;
}

bool Traffic::Needs(int peer) const {
  return std::any_of(active_.begin(), active_.end(),
                     [peer](const Stream* stream) { return stream->rank == peer; });
}

}  // namespace cohort::worker
