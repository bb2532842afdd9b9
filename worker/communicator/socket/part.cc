#include "worker/communicator/socket/part.h"

namespace cohort::worker {

bool Needs(const Operation& operation, int to, int from) {
  if (operation.count == 0) return false;
  switch (operation.verb) {
    case Verb::kAllReduce:
    case Verb::kAllGather:
    case Verb::kReduceScatter:
    case Verb::kAllToAll:
      return true;
    case Verb::kReduce:
    case Verb::kGather:
      return to == operation.root;
    case Verb::kBroadcast:
    case Verb::kScatter:
      return from == operation.root;
    case Verb::kBarrier:
      return false;
  }
  return false;
}

const char* PartFor(const Call& call, int to) {
  switch (call.operation.verb) {
    case Verb::kReduceScatter:
    case Verb::kAllToAll:
    case Verb::kScatter:
      return call.input + to * call.bytes;
    default:
      return call.input;
  }
}

char* PlaceOf(const Call& call, int from) {
  switch (call.operation.verb) {
    case Verb::kAllGather:
    case Verb::kAllToAll:
    case Verb::kGather:
      return call.output + from * call.bytes;
    default:
      return call.output;
  }
}

}  // namespace cohort::worker
