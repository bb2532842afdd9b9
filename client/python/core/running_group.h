// A group that moves tensors, as the module holds it.
#ifndef COHORT_CLIENT_PYTHON_CORE_RUNNING_GROUP_H_
#define COHORT_CLIENT_PYTHON_CORE_RUNNING_GROUP_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/collective/async_calls.h"
#include "client/collective/group.h"
#include "client/parallel/messages/messages.h"
#include "client/python/core/blocking.h"
#include "client/python/core/convert.h"
#include "client/python/core/errors.h"
#include "client/python/core/group_form.h"
#include "client/python/core/handle.h"
#include "client/rendezvous/call/cancellation.h"

namespace cohort::python {

// With the thread of its asynchronous calls, which starts with the first of them, and its messages.
struct RunningGroup {
  RunningGroup(std::shared_ptr<client::Group> made, GroupForm joined,
               std::shared_ptr<client::Cancellation> of_membership)
      : form(std::move(joined)),
        cancellation(std::move(of_membership)),
        group(std::move(made)),
        async_calls(std::make_unique<client::AsyncCalls>(*group)) {}
  // Leaves, which may wait: see End.
  ~RunningGroup() { End("the last reference to it was dropped"); }

  // How this process joined it. The groups of a layout are joined in the same way.
  const GroupForm form;
  // With a reason, ends the calls of the membership; the group then leaves with this reason.
  const std::shared_ptr<client::Cancellation> cancellation;
  const std::shared_ptr<client::Group> group;
  const std::unique_ptr<client::AsyncCalls> async_calls;
  // The rest changes with the interpreter's lock.
  std::unique_ptr<parallel::Messages> messages;  // of tensor maps, pipelines and rings
  bool in_messages = false;                      // a thread uses `messages`

  parallel::Messages& MakeMessages() {
    if (messages == nullptr) messages = std::make_unique<parallel::Messages>(*group);
    return *messages;
  }

  // Waits until the call is over, and returns its status. DEADLINE_EXCEEDED: it has waited for the
  // calls before it until its timeout. Then the group is aborted on all ranks, unless the call is
  // `alone`, so that no other rank waits for it.
  absl::Status AwaitCall(const client::PendingCall& call, const client::CallOptions& options,
                         bool alone = false) const {
    // A call that began at once reports its timeout itself.
    constexpr absl::Duration kMargin = absl::Milliseconds(100);
    const absl::Duration timeout = options.timeout.value_or(form.timeout());
    absl::Status status = call.Wait(timeout + kMargin);
    if (!absl::IsDeadlineExceeded(status) || call.Test().has_value()) return status;
    status = absl::DeadlineExceededError(
        absl::StrCat("a call of rank ", group->rank(), " in group ", group->name(),
                     " did not end within ", absl::FormatDuration(timeout),
                     ": it waited for asynchronous calls that were pending"));
    if (alone) return status;
    group->Abort(status);
    call.Wait().IgnoreError();
    return status;
  }

  // Waits up to a second for asynchronous calls that are not over. Then it aborts the group on all
  // ranks, which ends them. Without the interpreter's lock.
  void End(absl::string_view why) {
    if (async_calls->idle()) return;
    const client::PendingCall last =
        async_calls->Start([](client::Group&) { return absl::OkStatus(); });
    if (!absl::IsDeadlineExceeded(last.Wait(absl::Seconds(1)))) return;
    group->Abort(absl::CancelledError(absl::StrCat(why, ", while a call was pending")));
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

// Runs `call(group)`, which returns a Status, as a blocking call, after the asynchronous calls that
// are pending, for which the timeout of `options` counts too. Returns None, or null with an exception.
// If a handler of a signal raises, the call
// aborts the group on all ranks, because the other ranks wait for this one; and so `other`, in which
// the call waits, too, if it is not null. FailedPrecondition: a handler calls it in the middle of a
// call of the same group.
template <typename Call>
PyObject* RunOnAllRanks(RunningGroup& running, const client::CallOptions& options,
                        const Call& call, RunningGroup* other = nullptr) {
  if (Blocking::IsWithinCallOf(&running)) {
    return Raise(absl::FailedPreconditionError(absl::StrCat(
        "group ", running.group->name(),
        ": a signal handler called it in the middle of another call of this thread; let the handler "
        "set a flag, and call the group afterwards")));
  }
  const auto end = [&](const absl::Status& reason) {
    running.group->Abort(reason);
    if (other != nullptr) other->group->Abort(reason);
  };
  Blocking blocking(end, &running);
  if (blocking.raised()) return nullptr;
  const absl::Status status = blocking.Run([&] {
    if (running.async_calls->idle()) return call(*running.group);
    return running.AwaitCall(
        running.async_calls->Start([&](client::Group& group) { return call(group); }), options);
  });
  return status.ok() && !blocking.raised() ? WriteNone() : blocking.Raise(status);
}

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_RUNNING_GROUP_H_
