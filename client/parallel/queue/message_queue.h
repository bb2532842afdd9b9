// A queue with one writing process and many reading ones: every reader gets every value, in order.
//
//   ranks of one host    through memory they share: a copy in, a copy out, no needless wake-ups
//   other hosts          through a stream from the writer's process
//
// Both are one queue: the writer waits for the slowest reader, and no value is ever dropped. The
// size of one ring limits how far readers may lag. Values are bytes, which the queue does not
// interpret.
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
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/collective/group.h"
#include "client/parallel/queue/ring/queue_reader.h"
#include "client/rendezvous/call/cancellation.h"

namespace cohort::parallel {

// The same on all ranks, except for the fields that are a rank's own.
struct QueueOptions {
  // Rank in the group.
  int writer_rank = 0;
  // The handle() of a queue whose writer is a process outside of the group. If not empty, all ranks
  // read that queue and ignore writer_rank and the ring's size.
  std::string external_writer;

  // The ring has blocks * block_bytes bytes, rounded up to whole pages. Each value takes its size
  // and 16 to 31 bytes. A value that takes more than half of the ring goes through it in parts.
  int64_t block_bytes = int64_t{4} << 20;
  int blocks = 6;
  // The most bytes of one value.
  int64_t max_value_bytes = int64_t{1} << 30;

  // Limits making the queue as a whole.
  absl::Duration join_timeout = absl::Seconds(60);
  // Limits calls without a timeout of their own. InfiniteDuration: until they are cancelled.
  absl::Duration timeout = absl::Seconds(60);
  // A rank's own: ends making the queue, on this rank, with the cancellation's reason. Outlives
  // that call.
  client::Cancellation* cancellation = nullptr;

  // A rank's own, used by the writer: the address at which readers of other hosts reach it.
  // "host:port" or "[IPv6]:port", port 0 for any. Empty: if there are such readers, the writer
  // listens at any port of all addresses.
  std::string listen;
  // A rank's own: the host that the writer tells those readers. Empty: the host where it listens;
  // if it listens at all addresses, those of this host.
  std::string advertise;
  // How long a writer that ends waits until the readers of its streams have read everything.
  // Readers of its host may read on in the shared memory, as long as they like.
  absl::Duration linger = absl::Seconds(5);
  // A rank's own: not OK if the rank cannot take part, for example because an argument is wrong.
  // All ranks get the error.
  absl::Status failure;
};

struct QueueCall {
  // Limits this call as a whole; absent: the queue's timeout. InfiniteDuration: no limit.
  std::optional<absl::Duration> timeout;
  // Ends the call with the cancellation's reason. Outlives the call.
  client::Cancellation* cancellation = nullptr;
};

class MessageQueue;

// A value that its reader sees in place. While the view lives, the writer keeps the value's place,
// and other calls that read are FAILED_PRECONDITION. Any thread may destroy it. The queue outlives
// it; Shutdown leaves it valid.
class QueueView {
 public:
  QueueView(QueueView&& other) noexcept
      : queue_(std::exchange(other.queue_, nullptr)), value_(other.value_) {}
  QueueView& operator=(QueueView&&) = delete;
  ~QueueView();

  absl::string_view value() const { return value_; }

 private:
  friend class ReaderQueue;
  QueueView(MessageQueue& queue, absl::string_view value) : queue_(&queue), value_(value) {}

  MessageQueue* queue_;  // null: moved away
  absl::string_view value_;
};

// One end of a queue: the writer's or a reader's. It belongs to the process that made it: a forked
// child neither uses nor destroys it. One thread at a time calls Enqueue, Broadcast, Dequeue,
// DequeueView and AcquireView; any thread calls the other methods. All calls name the queue in
// their errors. A failed call leaves the queue as it was: no value is lost, doubled or out of
// order.
//
//   DEADLINE_EXCEEDED    The timeout has passed. A writer's error names the readers that lag, and
//                        by how much.
//   CANCELLED            A rank shut the queue down; the text has its reason. Or a cancellation's
//                        own reason.
//   ABORTED              On a reader: the writer is gone, and the reader has read all its values;
//                        or the writer let this reader go, and why. On the writer: all readers are
//                        gone; names them.
//   FAILED_PRECONDITION  The call is for the other end of the queue, another thread is in it, or a
//                        view is open.
//   DATA_LOSS            The bytes from the writer do not follow the layout.
class MessageQueue {
 public:
  // All ranks call it. It blocks until each reader is connected to the writer, so that no reader
  // misses a value. A reader whose hosts() text is the writer's tries to map the writer's memory.
  // If it cannot map it, or runs on another host, it reads a stream. Errors, the same on all ranks:
  // INVALID_ARGUMENT (options make no sense or differ; names ranks), RESOURCE_EXHAUSTED (no memory
  // for the ring: names the bytes needed and available), UNAVAILABLE (a reader cannot reach the
  // writer; names it), DEADLINE_EXCEEDED (ranks did not come; names them), and those of
  // Group::AllGatherObjects. Source: GroupCoordinator.create_mq_broadcaster.
  static absl::StatusOr<std::unique_ptr<MessageQueue>> Create(client::Group& group,
                                                              const QueueOptions& options = {});

  // Makes the writer of a new queue outside of any group; `name` is the queue's name. Readers come
  // with its handle() by Open, or as the ranks of a group by `external_writer`. The writer listens
  // for other hosts only if `listen` is set. Until the first reader has come, Enqueue is
  // FAILED_PRECONDITION. Never blocks. Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNAVAILABLE
  // (it cannot listen there).
  static absl::StatusOr<std::unique_ptr<MessageQueue>> CreateExternal(
      const std::string& name, const QueueOptions& options = {});
  // Adds a reader, in any process; `reader` is its name. It reads the values that are written after
  // Open returns. Only the timeouts of the options count. Errors: INVALID_ARGUMENT (not a handle),
  // UNAVAILABLE, DEADLINE_EXCEEDED, FAILED_PRECONDITION or PERMISSION_DENIED (the writer refuses).
  static absl::StatusOr<std::unique_ptr<MessageQueue>> Open(const std::string& handle,
                                                            const std::string& reader,
                                                            const QueueOptions& options = {});

  // Shuts the queue down. A writer lingers first. Readers of streams do not get the values that it
  // has not sent by then: they get ABORTED.
  virtual ~MessageQueue() = default;

  virtual bool is_writer() const = 0;
  virtual const std::string& name() const = 0;
  // On a writer: a text with which any process can read the queue, so it should not be logged.
  virtual std::string handle() const = 0;
  // On a reader: "shared memory", "stream ADDRESS" or, with TLS, "tls stream ADDRESS".
  virtual std::string path() const = 0;

  // Appends the value. Returns once the value is in the ring, however far readers are. Errors
  // besides: RESOURCE_EXHAUSTED (more than max_value_bytes; names it), FAILED_PRECONDITION (no
  // reader has come yet). After an error no reader ever gets the value. Source:
  // MessageQueue.enqueue.
  virtual absl::Status Enqueue(absl::string_view value, const QueueCall& call = {}) = 0;

  // Returns the next value. If a part of it has come when the timeout passes, the next call gets
  // the value. Source: MessageQueue.dequeue.
  virtual absl::StatusOr<std::string> Dequeue(const QueueCall& call = {}) = 0;
  // Calls `use` with the next value: in place, without a copy, if it came in one piece; else with a
  // copy. The writer gets the value's place back when `use` has returned or thrown, not before.
  // Returns the status of `use`.
  absl::Status DequeueView(absl::FunctionRef<absl::Status(absl::string_view)> use,
                           const QueueCall& call = {});
  // Returns the next value as DequeueView shows it, until the view is destroyed.
  virtual absl::StatusOr<QueueView> AcquireView(const QueueCall& call = {}) = 0;

  // The writer enqueues the value and returns it; a reader dequeues, and `value` is ignored.
  // Source: MessageQueue.broadcast_object.
  virtual absl::StatusOr<std::string> Broadcast(absl::string_view value,
                                                const QueueCall& call = {}) = 0;

  // On a writer: ends the queue. Readers read the values that are there, then get CANCELLED with
  // `reason`. On a reader: it reads no more, and its calls get CANCELLED. The writer stops waiting
  // for it once no call looks at a value. Ends calls that wait. Source: MessageQueue.shutdown.
  virtual void Shutdown(absl::string_view reason) = 0;

  // On a writer: the current readers, and the last thousand that left while the queue went on.
  virtual std::vector<QueueReader> readers() const = 0;
  virtual std::vector<QueueDeparture> departures() const = 0;
  // On a writer: blocks until `count` readers read. Errors: DEADLINE_EXCEEDED, CANCELLED.
  virtual absl::Status AwaitReaders(int count, const QueueCall& call = {}) = 0;

 private:
  friend class QueueView;
  // The view's value has been read.
  virtual void EndView() = 0;
};

inline QueueView::~QueueView() {
  if (queue_ != nullptr) queue_->EndView();
}

struct SingleReaderQueues {
  std::unique_ptr<MessageQueue> own;  // the queue that this rank writes
  // On the reader: the queues of all ranks, by rank, its own included; on other ranks empty.
  std::vector<std::unique_ptr<MessageQueue>> all;
};

// All ranks call it: each writes a queue of its own, and `reader_rank` reads all of them. The
// options writer_rank and external_writer are ignored. Errors: those of Create. Source:
// GroupCoordinator.create_single_reader_mq_broadcasters.
absl::StatusOr<SingleReaderQueues> CreateSingleReaderQueues(client::Group& group, int reader_rank,
                                                            const QueueOptions& options = {});

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_MESSAGE_QUEUE_H_
