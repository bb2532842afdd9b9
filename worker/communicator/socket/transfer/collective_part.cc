#include "worker/communicator/socket/transfer/collective_part.h"

namespace cohort::worker {

bool Needs(const FlatCall& flat, int to, int from) {
  if (flat.count == 0) return false;
  switch (flat.collective) {
    case Collective::kAllReduce:
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return true;
    case Collective::kReduce:
    case Collective::kGather:
      return to == flat.root;
    case Collective::kBroadcast:
    case Collective::kScatter:
      return from == flat.root;
    default:
      return false;
  }
}

const char* PartFor(const Call& call, int to) {
  switch (call.flat.collective) {
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
    case Collective::kScatter:
      return call.input + to * call.bytes;
    default:
      return call.input;
  }
}

char* OutputFor(const Call& call, int from) {
  switch (call.flat.collective) {
    case Collective::kAllGather:
    case Collective::kAllToAll:
    case Collective::kGather:
      return call.output + from * call.bytes;
    default:
      return call.output;
  }
}

}  // namespace cohort::worker
