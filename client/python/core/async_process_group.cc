#include "client/rendezvous/process_group/async_process_group.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/python/core/async_call.h"
#include "client/python/core/completions.h"
#include "client/python/core/convert.h"
#include "client/python/core/group_values.h"
#include "client/python/core/handle.h"
#include "client/python/core/method.h"
#include "client/python/core/rendezvous.h"
#include "client/rendezvous/process_group/process_group.h"

namespace cohort::python {
namespace {

using client::AsyncOptions;
using client::AsyncProcessGroup;
using client::ProcessGroup;
using client::RoundOptions;
using Group = Handle<ProcessGroup>;
using Queue = std::shared_ptr<Completions>;
using Call = Completions::Call;

AsyncOptions Options(const Call& call, absl::Duration timeout = absl::ZeroDuration()) {
  return {timeout, call.cancellation};
}

RoundOptions Round(const Call& call, std::string name, std::vector<RankRange> participants,
                   absl::Duration timeout) {
  RoundOptions options = python::Round(std::move(name), std::move(participants), timeout);
  options.cancellation = call.cancellation;
  return options;
}

PyObject* Join(PyObject* /*module*/, PyObject* arguments) {
  PyObject* queue = nullptr;  // borrowed
  PyObject* dict = nullptr;   // borrowed
  Queue completions;
  if (!PyArg_ParseTuple(arguments, "OO", &queue, &dict) ||
      !Read(queue, "completions", &completions)) {
    return nullptr;
  }
  python::Options options(dict);
  client::ProcessGroupOptions membership;
  if (!ReadMembership(options, &membership) || !options.Finish()) return nullptr;
  return StartCall(completions, [&](const Call& call) {
    membership.cancellation = call.cancellation;
    using Made = std::unique_ptr<ProcessGroup>;
    ProcessGroup::CreateAsync(membership, call.Slot<Made>([](Made& group) {
      return WriteInstance(std::make_unique<Group>(std::shared_ptr<ProcessGroup>(std::move(group))));
    }));
  });
}

PyObject* Send(Group& group, Queue queue, Bytes object, int destination, std::string tag,
               CallTimeout timeout) {
  return StartCall(group, queue, [&](AsyncProcessGroup& g, const Call& call) {
    g.Send(object.view(), destination, tag, Options(call, timeout), call.StatusSlot());
  });
}

PyObject* Receive(Group& group, Queue queue, std::optional<int> source, std::string tag,
                  CallTimeout timeout) {
  return StartCall(group, queue, [&](AsyncProcessGroup& g, const Call& call) {
    g.Receive(source, tag, Options(call, timeout),
              call.Slot<client::ReceivedObject>(WriteReceived));
  });
}

PyObject* Broadcast(Group& group, Queue queue, Bytes object, int root, std::string name,
                    std::vector<RankRange> participants, CallTimeout timeout) {
  return StartCall(group, queue, [&](AsyncProcessGroup& g, const Call& call) {
    g.Broadcast(object.view(), root, Round(call, name, participants, timeout),
                call.Slot<std::string>(WriteObject));
  });
}

PyObject* AllGather(Group& group, Queue queue, Bytes object, std::string name,
                    std::vector<RankRange> participants, CallTimeout timeout) {
  return StartCall(group, queue, [&](AsyncProcessGroup& g, const Call& call) {
    g.AllGather(object.view(), Round(call, name, participants, timeout),
                call.Slot<client::ObjectList>(WriteObjects));
  });
}

PyObject* Gather(Group& group, Queue queue, Bytes object, int root, std::string name,
                 std::vector<RankRange> participants, CallTimeout timeout) {
  return StartCall(group, queue, [&](AsyncProcessGroup& g, const Call& call) {
    g.Gather(object.view(), root, Round(call, name, participants, timeout),
             call.Slot<client::ObjectList>(WriteObjects));
  });
}

PyObject* Scatter(Group& group, Queue queue, std::vector<Blob> objects, int root,
                  std::string name, std::vector<RankRange> participants, CallTimeout timeout) {
  const std::vector<std::string> bytes = BytesOf(std::move(objects));
  return StartCall(group, queue, [&](AsyncProcessGroup& g, const Call& call) {
    g.Scatter(bytes, root, Round(call, name, participants, timeout),
              call.Slot<std::string>(WriteObject));
  });
}

PyObject* Barrier(Group& group, Queue queue, std::string name, std::vector<RankRange> participants,
                  CallTimeout timeout) {
  return StartCall(group, queue, [&](AsyncProcessGroup& g, const Call& call) {
    g.Barrier(Round(call, name, participants, timeout),
              [done = call.StatusSlot()](absl::Status status, const client::RoundReport&) {
                done(std::move(status));
              });
  });
}

PyObject* Refuse(Group& group, Queue queue, std::string name, std::string refusal) {
  return StartCall(group, queue, [&](AsyncProcessGroup& g, const Call& call) {
    RoundOptions round = Round(call, name, {}, absl::ZeroDuration());
    round.refusal = refusal;
    g.Barrier(round, [done = call.StatusSlot()](absl::Status status, const client::RoundReport&) {
      done(std::move(status));
    });
  });
}

PyObject* CancelBarrier(Group& group, Queue queue, std::string name, std::string reason) {
  return StartCall(group, queue, [&](AsyncProcessGroup& g, const Call& call) {
    g.CancelBarrier(name, reason, Options(call), call.StatusSlot());
  });
}

PyObject* Vote(Group& group, Queue queue, int64_t value, int op, std::string name,
               std::vector<RankRange> participants, CallTimeout timeout) {
  return StartCall(group, queue, [&](AsyncProcessGroup& g, const Call& call) {
    g.Vote(value, static_cast<client::VoteOp>(op), Round(call, name, participants, timeout),
           call.Slot<client::VoteResult>(WriteVote));
  });
}

PyObject* AgreeAlive(Group& group, Queue queue, absl::Duration timeout) {
  return StartCall(group, queue, [&](AsyncProcessGroup& g, const Call& call) {
    g.AgreeAlive(Options(call, timeout), call.Slot<std::vector<RankRange>>(WriteRanks));
  });
}

PyObject* ExpireData(Group& group, Queue queue, std::optional<absl::Duration> older_than) {
  return StartCall(group, queue, [&](AsyncProcessGroup& g, const Call& call) {
    g.ExpireData(older_than, Options(call), call.Slot<int64_t>(WriteNumber));
  });
}

PyObject* ReportError(Group& group, Queue queue, std::string detail, bool fatal,
                      std::vector<RankRange> suspected) {
  return StartCall(group, queue, [&](AsyncProcessGroup& g, const Call& call) {
    g.ReportError(detail, fatal, suspected, Options(call), call.StatusSlot());
  });
}

PyObject* PublishUniqueIds(Group& group, Queue queue, std::string name,
                           std::vector<Blob> ids) {
  const std::vector<std::string> bytes = BytesOf(std::move(ids));
  return StartCall(group, queue, [&](AsyncProcessGroup& g, const Call& call) {
    g.PublishUniqueIds(name, bytes, Options(call), call.StatusSlot());
  });
}

PyObject* FetchUniqueIds(Group& group, Queue queue, std::string name, CallTimeout timeout) {
  return StartCall(group, queue, [&](AsyncProcessGroup& g, const Call& call) {
    g.FetchUniqueIds(name, Options(call, timeout), call.Slot<std::vector<std::string>>(WriteIds));
  });
}

PyObject* Describe(Group& group, Queue queue) {
  return StartCall(group, queue, [&](AsyncProcessGroup& g, const Call& call) {
    g.Describe(Options(call), call.Slot<client::GroupInfo>(WriteGroupInfo));
  });
}

PyObject* WhoIsMissing(Group& group, Queue queue) {
  return StartCall(group, queue, [&](AsyncProcessGroup& g, const Call& call) {
    g.WhoIsMissing(Options(call), call.Slot<client::WhoIsMissingReport>(WriteOpenWaits));
  });
}

PyObject* ProposeView(Group& group, Queue queue, std::vector<RankRange> remove,
                      std::vector<std::string> add, absl::Duration timeout, bool drop_silent) {
  return StartCall(group, queue, [&](AsyncProcessGroup& g, const Call& call) {
    g.ProposeView(remove, add, drop_silent, Options(call, timeout),
                  call.Slot<client::ViewResult>(WriteView));
  });
}

PyObject* AckView(Group& group, Queue queue, int64_t proposal, bool accept, std::string reason,
                  absl::Duration timeout) {
  return StartCall(group, queue, [&](AsyncProcessGroup& g, const Call& call) {
    g.AckView(proposal, accept, reason, Options(call, timeout),
              call.Slot<client::ViewResult>(WriteView));
  });
}

PyObject* Rejoin(Group& group, Queue queue, CallTimeout timeout) {
  return StartCall(group, queue, [&](AsyncProcessGroup& g, const Call& call) {
    g.Rejoin(Options(call, timeout), call.StatusSlot());
  });
}

PyObject* Leave(Group& group, Queue queue, std::string reason) {
  return StartCall(group, queue, [&](AsyncProcessGroup& g, const Call& call) {
    g.Leave(reason, Options(call), call.StatusSlot());
  });
}

PyObject* CloseForAll(Group& group, Queue queue, std::string reason) {
  return StartCall(group, queue, [&](AsyncProcessGroup& g, const Call& call) {
    g.Close(reason, Options(call), call.StatusSlot());
  });
}

PyMethodDef functions[] = {Function<&Join>("start_join_process_group", METH_VARARGS), {}};

}  // namespace

const std::vector<PyMethodDef>& AsyncProcessGroupMethods() {
  static const auto* const methods = new std::vector<PyMethodDef>{
      Method<&Send>("start_send", {"completions", "obj", "destination", "tag", "timeout"}),
      Method<&Receive>("start_receive", {"completions", "source", "tag", "timeout"}),
      Method<&Broadcast>("start_broadcast",
                         {"completions", "obj", "root", "name", "participants", "timeout"}),
      Method<&AllGather>("start_all_gather",
                         {"completions", "obj", "name", "participants", "timeout"}),
      Method<&Gather>("start_gather",
                      {"completions", "obj", "root", "name", "participants", "timeout"}),
      Method<&Scatter>("start_scatter",
                       {"completions", "objs", "root", "name", "participants", "timeout"}),
      Method<&Barrier>("start_barrier", {"completions", "name", "participants", "timeout"}),
      Method<&Refuse>("start_refuse", {"completions", "name", "refusal"}),
      Method<&CancelBarrier>("start_cancel_barrier", {"completions", "name", "reason"}),
      Method<&Vote>("start_vote",
                    {"completions", "value", "op", "name", "participants", "timeout"}),
      Method<&AgreeAlive>("start_agree_alive", {"completions", "timeout"}),
      Method<&ExpireData>("start_expire_data", {"completions", "older_than"}),
      Method<&ReportError>("start_report_error", {"completions", "detail", "fatal", "suspected"}),
      Method<&PublishUniqueIds>("start_publish_unique_ids", {"completions", "name", "ids"}),
      Method<&FetchUniqueIds>("start_fetch_unique_ids", {"completions", "name", "timeout"}),
      Method<&Describe>("start_describe", {"completions"}),
      Method<&WhoIsMissing>("start_who_is_missing", {"completions"}),
      Method<&ProposeView>("start_propose_view",
                           {"completions", "remove", "add", "timeout", "drop_silent"}),
      Method<&AckView>("start_ack_view",
                       {"completions", "proposal", "accept", "reason", "timeout"}),
      Method<&Rejoin>("start_rejoin", {"completions", "timeout"}),
      Method<&Leave>("start_leave", {"completions", "reason"}),
      Method<&CloseForAll>("start_close_for_all", {"completions", "reason"}),
  };
  return *methods;
}

bool AddAsyncProcessGroup(PyObject* module) {
  return PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace cohort::python
