// A group that moves tensors, as the module holds it.
#ifndef COHORT_CLIENT_PYTHON_CORE_RUNNING_GROUP_H_
#define COHORT_CLIENT_PYTHON_CORE_RUNNING_GROUP_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "client/collective/async_calls.h"
#include "client/collective/group.h"
#include "client/parallel/messages/messages.h"
#include "client/python/core/blocking.h"
#include "client/python/core/convert.h"
#include "client/python/core/errors.h"
#include "client/python/core/group_form.h"
#include "client/python/core/handle.h"

namespace cohort::python {

// With the thread of its asynchronous calls, which starts with the first of them, and its messages.
struct RunningGroup {
  RunningGroup(std::shared_ptr<client::Group> made, GroupForm joined)
      : form(std::move(joined)),
        group(std::move(made)),
        async_calls(std::make_unique<client::AsyncCalls>(*group)) {}

  // How this process joined it. The groups of a layout are joined in the same way.
  const GroupForm form;
  const std::shared_ptr<client::Group> group;
  // The rest changes with the interpreter's lock.
  std::unique_ptr<client::AsyncCalls> async_calls;  // null: closed
  std::unique_ptr<parallel::Messages> messages;     // of tensor maps, pipelines and rings
  bool in_messages = false;                         // a thread uses `messages`

  parallel::Messages& MakeMessages() {
    if (messages == nullptr) messages = std::make_unique<parallel::Messages>(*group);
    return *messages;
  }
};
using GroupHandle = Handle<RunningGroup>;

// One call that uses the group's messages. Made and destroyed with the interpreter's lock.
class MessagesUse {
 public:
  explicit MessagesUse(RunningGroup& running) : running_(running), is_free_(!running.in_messages) {
    if (is_free_) {
      running_.MakeMessages();
      running_.in_messages = true;
    } else {
      Raise(absl::FailedPreconditionError(
          "another thread sends or receives a tensor map or an array of a pipeline in this group"));
    }
  }
  ~MessagesUse() {
    if (is_free_) running_.in_messages = false;
  }
  MessagesUse(const MessagesUse&) = delete;
  MessagesUse& operator=(const MessagesUse&) = delete;

  // False, with an exception: another thread uses the messages.
  bool is_free() const { return is_free_; }

 private:
  RunningGroup& running_;
  const bool is_free_;
};

// Runs `call(group)`, which returns a Status, as a blocking call. Returns None, or null with an
// exception. A signal aborts the group on all ranks, because the other ranks wait for this one; and
// so `other`, in which the call waits, too, if it is not null.
template <typename Call>
PyObject* RunOnAllRanks(RunningGroup& running, const Call& call, RunningGroup* other = nullptr) {
  const auto end = [&](const absl::Status& reason) {
    running.group->Abort(reason);
    if (other != nullptr) other->group->Abort(reason);
  };
  const Blocking blocking(end, /*is_frequent=*/true);
  if (blocking.raised()) return nullptr;
  const absl::Status status = blocking.Run([&] { return call(*running.group); });
  return status.ok() ? WriteNone() : blocking.Raise(status);
}

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_RUNNING_GROUP_H_
