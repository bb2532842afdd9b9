// One process writes, many read: values in order, each to every reader.
//
//   ranks of one host    through memory they share: a copy in, a copy out, no needless wake-ups
//   other hosts          through a stream from the writer's process
//
// Both are one queue: the writer waits for the slowest reader, nothing is ever dropped, and how far
// readers may lag is the room of one ring. Values are bytes, which nobody interprets.
//
//   QueueOptions options;
//   auto queue = MessageQueue::Create(group, options);            // on all ranks
//   if ((*queue)->is_writer()) {
//     (*queue)->Enqueue("step 1").IgnoreError();
//   } else {
//     absl::StatusOr<std::string> value = (*queue)->Dequeue();
//   }
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_MESSAGE_QUEUE_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_MESSAGE_QUEUE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/collective/group.h"
#include "client/rendezvous/cancellation.h"

namespace cohort::parallel {

// The same on all ranks, but for what is said to be a rank's own.
struct QueueOptions {
  // Rank in the group.
  int writer_rank = 0;
  // handle() of a queue that a process outside of the group writes. Not empty: all ranks read it;
  // writer_rank and the ring's size are not looked at.
  std::string external_writer;

  // The ring has blocks * block_bytes, rounded up to whole pages. Values take what they need of it,
  // and 16 to 31 bytes each; those that take more than half of it go through it in parts.
  int64_t block_bytes = int64_t{4} << 20;
  int blocks = 6;
  // Of one value.
  int64_t max_value_bytes = int64_t{1} << 30;

  // Of making the queue, as a whole.
  absl::Duration join_timeout = absl::Seconds(60);
  // Of calls without a timeout of their own. InfiniteDuration: until they are cancelled.
  absl::Duration timeout = absl::Seconds(60);

  // A rank's own, for where it writes: "host:port" or "[IPv6]:port", port 0 for any, where readers
  // of other hosts reach it. Empty: it listens, at any port of all addresses, if there are such.
  std::string listen;
  // A rank's own: the host that they are told. Empty: where it listens; of all addresses, those of
  // this host.
  std::string advertise;
  // How long a writer that ends waits for its streams' readers to have read all. Readers of its
  // host read on in the memory, as long as they like.
  absl::Duration linger = absl::Seconds(5);
};

struct QueueCall {
  // Of this call as a whole, whatever it waits for; absent: the queue's. InfiniteDuration: none.
  std::optional<absl::Duration> timeout;
  // Ends it with its reason. Outlives the call.
  client::Cancellation* cancellation = nullptr;
};

// A reader, as its writer sees it.
struct QueueReader {
  std::string name;  // "rank 3"
  std::string path;  // "shared memory", "stream 10.0.0.4:4123"
  int64_t bytes_behind = 0;
  int64_t values_behind = 0;  // of a stream, at most: what it has read is told now and then
};
struct QueueDeparture {
  std::string name;
  std::string why;
};

// A writer's, or a reader's, of the process that made it: of a child that is forked it is not, and
// is neither used nor destroyed there. Enqueue, Broadcast, Dequeue and DequeueView by one thread at
// a time, the rest from any. All calls name the queue in their errors. What fails leaves the queue
// as it was: no value is lost, doubled or out of its order.
//
//   DEADLINE_EXCEEDED    the timeout has passed; of a writer: names the readers that lag, and by
//                        how much
//   CANCELLED            somebody shut the queue down, and why; or a cancellation's own reason
//   ABORTED              a reader: the writer is gone, after all that it had written was read; or
//                        the writer waits for it no more, and why; the writer: all readers are
//                        gone; names them
//   FAILED_PRECONDITION  not a call of a reader, or of a writer; or another thread is in it
//   DATA_LOSS            what the writer left does not make sense
class MessageQueue {
 public:
  // All ranks call it. Blocks until each reader has found its way to the writer, so no value is
  // missed. Memory where the ranks' hosts() are one, and the reader can map it: two facts, of which
  // the second decides; a stream where not. Errors, the same on all ranks: INVALID_ARGUMENT
  // (options that make no sense or differ; names ranks), RESOURCE_EXHAUSTED (no memory for the
  // ring: what it needs and what there is), UNAVAILABLE (a reader cannot reach the writer; names
  // it), DEADLINE_EXCEEDED (ranks did not come; names them), and those of Group::AllGatherObjects.
  // Seed: GroupCoordinator.create_mq_broadcaster.
  static absl::StatusOr<std::unique_ptr<MessageQueue>> Create(client::Group& group,
                                                              const QueueOptions& options = {});

  // Outside of any group: the writer of a new queue, to whose handle() readers come by Open, or as
  // the ranks of a group by `external_writer`. `name` is the queue's. Listens for other hosts only
  // with `listen`. Until the first reader has come, Enqueue is FAILED_PRECONDITION. Never blocks.
  // Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNAVAILABLE (it cannot listen there).
  static absl::StatusOr<std::unique_ptr<MessageQueue>> CreateExternal(
      const std::string& name, const QueueOptions& options = {});
  // One more reader, of any process; `reader` is its name. Reads what is written from its return
  // on. Of the options only the timeouts count. Errors: INVALID_ARGUMENT (not a handle),
  // UNAVAILABLE, DEADLINE_EXCEEDED, FAILED_PRECONDITION or PERMISSION_DENIED (the writer refuses).
  static absl::StatusOr<std::unique_ptr<MessageQueue>> Open(const std::string& handle,
                                                            const std::string& reader,
                                                            const QueueOptions& options = {});

  // Shuts it down. A writer lingers; what it has not sent by then, readers of streams do not get:
  // they hear ABORTED.
  virtual ~MessageQueue() = default;

  virtual bool is_writer() const = 0;
  virtual const std::string& name() const = 0;
  // Of a writer: by which any process can read the queue. Whoever has it may: not to be logged.
  virtual std::string handle() const = 0;
  // Of a reader: "shared memory", or "stream ADDRESS".
  virtual std::string path() const = 0;

  // The value's turn comes behind those before it. Returns once it is in the ring, however far
  // readers are. Errors besides: RESOURCE_EXHAUSTED (more than max_value_bytes; names it),
  // FAILED_PRECONDITION (nobody has come to read). With an error no reader ever gets the value.
  // Seed: MessageQueue.enqueue.
  virtual absl::Status Enqueue(absl::string_view value, const QueueCall& call = {}) = 0;

  // The next value. One that has come in part when the timeout passes, the next call gets.
  // Seed: MessageQueue.dequeue.
  virtual absl::StatusOr<std::string> Dequeue(const QueueCall& call = {}) = 0;
  // `use` sees it where it lies, without a copy, if it came as one; else a copy. The writer does
  // not get its place back before `use` has returned, but then, be it by an exception. Returns what
  // `use` does.
  virtual absl::Status DequeueView(absl::FunctionRef<absl::Status(absl::string_view)> use,
                                   const QueueCall& call = {}) = 0;

  // The writer enqueues and has its value back; a reader dequeues, and `value` is not looked at.
  // Seed: MessageQueue.broadcast_object.
  virtual absl::StatusOr<std::string> Broadcast(absl::string_view value,
                                                const QueueCall& call = {}) = 0;

  // A writer's: nothing more is written; readers read what is there, then hear CANCELLED with
  // `reason`. A reader's: it reads no more, and hears so; its writer does not wait for it once no
  // call looks at a value any more. Ends calls that wait.
  // Seed: MessageQueue.shutdown.
  virtual void Shutdown(absl::string_view reason) = 0;

  // Of a writer: who reads, and who did and has gone (the last thousand) while the queue went on.
  virtual std::vector<QueueReader> readers() const = 0;
  virtual std::vector<QueueDeparture> departures() const = 0;
  // Of a writer: until so many read. Errors: DEADLINE_EXCEEDED, CANCELLED.
  virtual absl::Status AwaitReaders(int count, const QueueCall& call = {}) = 0;
};

struct SingleReaderQueues {
  std::unique_ptr<MessageQueue> own;  // which this rank writes
  // On the reader: all ranks' queues by rank, its own too; elsewhere empty.
  std::vector<std::unique_ptr<MessageQueue>> all;
};

// All ranks call it: each writes a queue of its own, all of which `reader_rank` reads. Of the
// options, writer_rank and external_writer are not looked at. Errors: as Create.
// Seed: GroupCoordinator.create_single_reader_mq_broadcasters.
absl::StatusOr<SingleReaderQueues> CreateSingleReaderQueues(client::Group& group, int reader_rank,
                                                            const QueueOptions& options = {});

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_MESSAGE_QUEUE_H_
