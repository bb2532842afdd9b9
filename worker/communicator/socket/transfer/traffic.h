// Large data between this rank and the others: the bytes to send and to receive, and their
// reductions on the way. The calling thread moves them.
#ifndef COHORT_WORKER_COMMUNICATOR_SOCKET_TRANSFER_TRAFFIC_H_
#define COHORT_WORKER_COMMUNICATOR_SOCKET_TRANSFER_TRAFFIC_H_

#include <poll.h>

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/collective/reduction.h"
#include "base/rank_set.h"
#include "base/tensor/data_type.h"
#include "worker/communicator/socket/mesh/rank_socket.h"

namespace cohort::worker {

// Bytes that pass in order through one stream in one direction.
struct Flow {
  char* data = nullptr;  // of a flow that is sent: read only
  int64_t size = 0;
  int64_t done = 0;
  // In a flow that is sent: the number of its bytes that may be sent by now; null: all. In a flow
  // that is received into a ring: the number of its bytes that have been used.
  const int64_t* gate = nullptr;
  int64_t ring = 0;        // `data` is a ring of this many bytes; 0: it holds them all
  int* waiting = nullptr;  // counted down when the flow is done
};

// One operand of a reduction, as its bytes arrive.
struct Operand {
  const char* data = nullptr;
  int64_t ring = 0;
  const int64_t* here = nullptr;  // bytes; null: all
};

// Reduces as far as all operands are there.
struct Reducer {
  std::vector<Operand> operands;  // by rank
  char* output = nullptr;
  int64_t output_ring = 0;
  int64_t size = 0;  // bytes
  int64_t step = 0;  // bytes at once; rings have room for whole steps
  int64_t done = 0;
  DataType type = DataType::kU8;
  Reduction reduction;
};

// Confined to one thread at a time.
class Traffic {
 public:
  // By rank and stream; none for this rank.
  explicit Traffic(std::vector<std::vector<RankSocket>> streams);

  int streams() const { return streams_; }

  // In one stream and direction, each flow begins when the one before it is done. Flows, and the
  // numbers that their gates point to, live until Clear.
  Flow* Send(int peer, int stream, const Flow& flow) { return Add(peer, stream, flow, true); }
  Flow* Receive(int peer, int stream, const Flow& flow) { return Add(peer, stream, flow, false); }
  Reducer* Reduce(Reducer reducer);
  // Copies within this rank, while nothing else can be done.
  void Copy(char* to, const char* from, int64_t bytes);

  bool idle() const { return open_ == 0; }
  void Clear();

  struct Moved {
    bool any = false;
    int lost_rank = -1;  // whose connection has ended
    std::string reason;
  };
  // Moves the bytes that can be moved without waiting.
  Moved Move();
  // Returns whether Move can move bytes although no socket is ready.
  bool AddInterest(std::vector<pollfd>* polled) const;
  // The ranks whose flows are not done.
  RankSet Unfinished() const;
  bool Needs(int peer) const;

 private:
  struct Stream {
    int rank = 0;
    RankSocket socket;
    std::deque<Flow*> sends;
    std::deque<Flow*> receives;
  };
  struct LocalCopy {
    char* to;
    const char* from;
    int64_t left;
  };

  Flow* Add(int peer, int stream, const Flow& flow, bool sends);
  void Finish(std::deque<Flow*>& flows);
  // How many bytes were sent or received; -1 when the connection has ended.
  int64_t Push(Stream& stream, std::string* reason);
  int64_t Pull(Stream& stream, std::string* reason);
  bool Step(Reducer& reducer);
  bool CopySome();

  int streams_ = 0;
  std::vector<Stream> all_;
  std::vector<std::vector<int>> index_;  // into all_, by rank and stream
  std::vector<Stream*> active_;
  std::deque<Flow> flows_;
  std::deque<Reducer> reducers_;
  std::vector<LocalCopy> copies_;
  int open_ = 0;  // flows, reductions and copies that are not done
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_SOCKET_TRANSFER_TRAFFIC_H_
