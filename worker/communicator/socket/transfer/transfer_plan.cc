#include "worker/communicator/socket/transfer/transfer_plan.h"

#include <algorithm>
#include <cstring>

namespace cohort::worker {
namespace {

// The size of a ring for the elements that one rank sends to be reduced.
constexpr int64_t kMaxRingBytes = int64_t{512} << 10;
constexpr int64_t kMinRingBytes = int64_t{4} << 10;
// The result of one step of a reduction; it fits into a core's cache together with its operands.
constexpr int64_t kMaxReduceBytes = int64_t{64} << 10;
// A smaller part is not worth a stream of its own.
constexpr int64_t kMinPartBytes = int64_t{256} << 10;
// Slices begin at multiples of this many elements, if there are enough.
constexpr int64_t kSliceElements = 64;

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

// The `index`th of `parts` parts of 0..count-1.
Range Slice(int64_t count, int parts, int index) {
  const auto boundary = [&](int i) {
    if (i == parts) return count;
    const int64_t at = count / parts * i + count % parts * i / parts;
    return at - at % kSliceElements;
  };
  return {boundary(index), boundary(index + 1)};
}

// How many streams share a transfer of `bytes`.
int Parts(int64_t bytes, int streams) {
  return static_cast<int>(std::clamp<int64_t>(bytes / kMinPartBytes, 1, streams));
}

// Sends to or receives from a rank a whole that is there, over all streams.
void Move(int peer, bool sends, char* data, int64_t bytes, int* waiting, Traffic* traffic) {
  const int parts = Parts(bytes, traffic->streams());
  if (waiting != nullptr) *waiting += parts;
  for (int part = 0; part < parts; ++part) {
    const Range range = Slice(bytes, parts, part);
    Flow flow;
    flow.data = data + range.begin;
    flow.size = range.size();
    flow.waiting = waiting;
    sends ? traffic->Send(peer, part, flow) : traffic->Receive(peer, part, flow);
  }
}

class Planner {
 public:
  Planner(const Call& call, std::vector<char>* scratch, Traffic* traffic)
      : call_(call), element_(SizeOf(call.flat.type)), scratch_(scratch), traffic_(*traffic) {}

  void Moves();
  void Broadcast();
  void Reduces();

 private:
  template <typename Body>
  void ForEachPeer(const Body& body) const {
    for (int step = 1; step < call_.size; ++step) body((call_.rank + step) % call_.size);
  }
  // The range that `owner` reduces, of the elements that all ranks have.
  Range OwnedBy(int owner) const;
  bool WantsResult(int rank) const {
    return call_.flat.collective == Collective::kAllReduce || rank == call_.flat.root;
  }
  // One of the parts of all slices, through one stream for inputs and one for results.
  void ReducePart(int part, int parts, int64_t ring);

  const Call& call_;
  const int64_t element_;
  std::vector<char>* const scratch_;
  Traffic& traffic_;
};

void Planner::Moves() {
  const FlatCall& flat = call_.flat;
  ForEachPeer([&](int peer) {
    if (Needs(flat, peer, call_.rank)) {
      Move(peer, true, const_cast<char*>(PartFor(call_, peer)), call_.bytes, nullptr, &traffic_);
    }
    if (Needs(flat, call_.rank, peer)) {
      Move(peer, false, OutputFor(call_, peer), call_.bytes, nullptr, &traffic_);
    }
  });
  if (!Needs(flat, call_.rank, call_.rank)) return;
  traffic_.Copy(OutputFor(call_, call_.rank), PartFor(call_, call_.rank), call_.bytes);
}

void Planner::Broadcast() {
  const int root = call_.flat.root;
  const int others = call_.size - 1;
  const auto slice_of = [&](int rank) {
    return Slice(call_.bytes, others, (rank - root + call_.size) % call_.size - 1);
  };
  // The parts of a slice, each through a stream of its own from the root and onwards.
  const auto flow_of = [&](const char* memory, const Range& slice, int parts, int part) {
    const Range range = Slice(slice.size(), parts, part);
    Flow flow;
    flow.data = const_cast<char*>(memory) + slice.begin + range.begin;
    flow.size = range.size();
    return flow;
  };
  const auto parts_of = [&](const Range& slice) { return Parts(slice.size(), traffic_.streams()); };
  if (call_.rank == root) {
    ForEachPeer([&](int peer) {
      const Range slice = slice_of(peer);
      const int parts = parts_of(slice);
      for (int part = 0; part < parts; ++part) {
        traffic_.Send(peer, part, flow_of(call_.input, slice, parts, part));
      }
    });
    traffic_.Copy(call_.output, call_.input, call_.bytes);
    return;
  }
  const Range own = slice_of(call_.rank);
  const int own_parts = parts_of(own);
  for (int part = 0; part < own_parts; ++part) {
    const Flow flow = flow_of(call_.output, own, own_parts, part);
    const Flow* const received = traffic_.Receive(root, part, flow);
    ForEachPeer([&](int peer) {
      if (peer == root) return;
      Flow onwards = flow;
      onwards.gate = &received->done;
      traffic_.Send(peer, part, onwards);
    });
  }
  ForEachPeer([&](int peer) {
    if (peer == root) return;
    const Range slice = slice_of(peer);
    const int parts = parts_of(slice);
    for (int part = 0; part < parts; ++part) {
      traffic_.Receive(peer, part, flow_of(call_.output, slice, parts, part));
    }
  });
}

Range Planner::OwnedBy(int owner) const {
  const int64_t count = call_.flat.count;
  switch (call_.flat.collective) {
    case Collective::kReduceScatter:
      return {owner * count, (owner + 1) * count};
    case Collective::kReduce:
      // With two ranks, the root would send half of its elements to and fro.
      if (call_.size == 2) return owner == call_.flat.root ? Range{0, count} : Range{};
      return Slice(count, call_.size, owner);
    default:
      return Slice(count, call_.size, owner);
  }
}

void Planner::ReducePart(int part, int parts, int64_t ring) {
  const bool scatters = call_.flat.collective == Collective::kReduceScatter;
  const int result_stream = traffic_.streams() == 1 ? 0 : parts + part;
  const auto bytes_of = [&](int owner) {
    const Range owned = OwnedBy(owner);
    const Range range = Slice(owned.size(), parts, part);
    return Range{(owned.begin + range.begin) * element_, (owned.begin + range.end) * element_};
  };
  const Range own = bytes_of(call_.rank);
  const bool keeps = scatters || WantsResult(call_.rank);

  Reducer reducer;
  reducer.operands.resize(static_cast<size_t>(call_.size));
  reducer.size = own.size();
  reducer.step = std::min(ring, kMaxReduceBytes);
  reducer.type = call_.flat.type;
  reducer.reduction = call_.flat.reduction;
  char* const rings = scratch_->data() + part * ring * (call_.size - 1);
  if (scatters) {
    const Range whole = OwnedBy(call_.rank);
    reducer.output = call_.output + own.begin - whole.begin * element_;
  } else if (keeps) {
    reducer.output = call_.output + own.begin;
  } else {
    // The result replaces the first operand that arrived, until it has been sent.
    reducer.output = rings;
    reducer.output_ring = ring;
  }
  Reducer* const added = traffic_.Reduce(std::move(reducer));
  added->operands[static_cast<size_t>(call_.rank)] = {call_.input + own.begin, 0, nullptr};

  // A ring's bytes are used once they are reduced; or, if the result lies there, once it is sent.
  const int64_t* used = &added->done;
  std::vector<Flow*> inputs;
  ForEachPeer([&](int peer) {
    const Range other = bytes_of(peer);
    traffic_.Send(peer, part, {const_cast<char*>(call_.input) + other.begin, other.size()});
    Flow input;
    input.data = rings + static_cast<int64_t>(inputs.size()) * ring;
    input.size = own.size();
    input.ring = ring;
    inputs.push_back(traffic_.Receive(peer, part, input));
    added->operands[static_cast<size_t>(peer)] = {input.data, ring, &inputs.back()->done};
    if (scatters) return;
    // Results come behind the inputs, should they share a stream.
    if (keeps) {
      traffic_.Receive(peer, result_stream, {call_.output + other.begin, other.size()});
    }
    if (WantsResult(peer)) {
      Flow result;
      result.data = added->output;
      result.size = own.size();
      result.ring = added->output_ring;
      result.gate = &added->done;
      const Flow* const sent = traffic_.Send(peer, result_stream, result);
      if (!keeps) used = &sent->done;
    }
  });
  for (Flow* const input : inputs) input->gate = used;
}

void Planner::Reduces() {
  const int64_t largest = call_.flat.collective == Collective::kReduceScatter
                              ? call_.bytes
                              : call_.bytes / std::max(1, call_.size - 1);
  const int parts = Parts(largest, std::max(1, traffic_.streams() / 2));
  int64_t ring = kMaxRingBytes;
  while (ring > kMinRingBytes && ring * parts * (call_.size - 1) > kScratchBytes) ring /= 2;
  const auto needed = static_cast<size_t>(ring * parts * (call_.size - 1));
  if (scratch_->size() < needed) scratch_->resize(needed);
  for (int part = 0; part < parts; ++part) ReducePart(part, parts, ring);
}

}  // namespace

void Plan(const Call& call, std::vector<char>* scratch, Traffic* traffic) {
  Planner planner(call, scratch, traffic);
  if (call.flat.collective == Collective::kBroadcast) return planner.Broadcast();
  return Reduces(call.flat.collective) ? planner.Reduces() : planner.Moves();
}

void PlanMessage(int peer, bool sends, char* data, int64_t bytes, int* waiting, Traffic* traffic) {
  Move(peer, sends, data, bytes, waiting, traffic);
}

}  // namespace cohort::worker
