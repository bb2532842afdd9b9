#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "client/python/core/blocking.h"
#include "client/python/core/convert.h"
#include "client/python/core/coordinator_call.h"
#include "client/python/core/departures.h"
#include "client/python/core/errors.h"
#include "client/python/core/group_values.h"
#include "client/python/core/handle.h"
#include "client/python/core/method.h"
#include "client/python/core/rendezvous.h"
#include "client/rendezvous/call/cancellation.h"
#include "client/rendezvous/process_group/async_process_group.h"
#include "client/rendezvous/report/report.h"

namespace cohort::python {

bool ReadMembership(Options& options, client::ProcessGroupOptions* to) {
  std::vector<std::string> labels;
  Blob parameters_digest;
  if (!(options.Get("address", &to->connection.address) &&
        options.Get("tenant", &to->connection.tenant) && options.Get("group", &to->group) &&
        options.Get("rank", &to->rank) && options.Get("world_size", &to->world_size) &&
        options.Get("min_world_size", &to->min_world_size) && options.Get("member", &to->member) &&
        options.Get("host", &to->host) &&
        options.Get("parameters_digest", &parameters_digest) &&
        options.Get("join_timeout", &to->join_timeout) && options.Get("timeout", &to->timeout) &&
        options.Get("data_expiration", &to->data_expiration) && options.Get("lease", &to->lease) &&
        options.Get("share_fate", &to->share_fate) && options.Get("labels", &labels))) {
    return false;
  }
  to->parameters_digest = std::move(parameters_digest.bytes);
  for (size_t i = 0; i + 1 < labels.size(); i += 2) to->labels[labels[i]] = labels[i + 1];
  return true;
}

namespace {

// As the end of a ProcessGroup that gives no reason.
constexpr absl::Duration kTimeToLeave = absl::Seconds(1);

using client::ProcessGroup;
using client::RoundOptions;
using Group = Handle<ProcessGroup>;

PyObject* Join(PyObject* /*module*/, PyObject* dict) {
  Options options(dict);
  client::ProcessGroupOptions membership;
  if (!ReadMembership(options, &membership) || !options.Finish()) return nullptr;
  membership.cancellation = std::make_shared<client::Cancellation>();
  const auto end = [&](const absl::Status& reason) { membership.cancellation->Cancel(reason); };
  Blocking blocking(end);
  if (blocking.raised()) return nullptr;
  absl::StatusOr<std::unique_ptr<ProcessGroup>> group =
      blocking.Run([&] { return ProcessGroup::Create(membership); });
  if (!group.ok()) return blocking.Raise(group.status());
  Share<ProcessGroup> joined(std::shared_ptr<ProcessGroup>(*std::move(group)));
  if (blocking.raised()) return blocking.Raise(absl::OkStatus());
  return WriteInstance(std::make_unique<Group>(joined.get()));
}

PyObject* Send(Group& group, Bytes object, int destination, std::string tag,
               CallTimeout timeout) {
  return CallForStatus(
      group, [&](ProcessGroup& g) { return g.Send(object.view(), destination, tag, timeout); });
}

PyObject* Receive(Group& group, int source, std::string tag, CallTimeout timeout) {
  return CallForResult(
      group, [&](ProcessGroup& g) { return g.Receive(source, tag, timeout); },
      WriteObject);
}

PyObject* ReceiveAny(Group& group, std::string tag, CallTimeout timeout) {
  return CallForResult(
      group, [&](ProcessGroup& g) { return g.ReceiveAny(tag, timeout); },
      WriteReceived);
}

PyObject* Broadcast(Group& group, Bytes object, int root, std::string name,
                    std::vector<RankRange> participants, CallTimeout timeout) {
  const RoundOptions round = Round(std::move(name), std::move(participants), timeout);
  return CallForResult(
      group, [&](ProcessGroup& g) { return g.Broadcast(object.view(), root, round); },
      WriteObject);
}

PyObject* AllGather(Group& group, Bytes object, std::string name,
                    std::vector<RankRange> participants, CallTimeout timeout) {
  const RoundOptions round = Round(std::move(name), std::move(participants), timeout);
  return CallForResult(
      group, [&](ProcessGroup& g) { return g.AllGather(object.view(), round); },
      WriteObjects);
}

PyObject* Gather(Group& group, Bytes object, int root, std::string name,
                 std::vector<RankRange> participants, CallTimeout timeout) {
  const RoundOptions round = Round(std::move(name), std::move(participants), timeout);
  return CallForResult(
      group, [&](ProcessGroup& g) { return g.Gather(object.view(), root, round); },
      WriteObjects);
}

PyObject* Scatter(Group& group, std::vector<Blob> objects, int root, std::string name,
                  std::vector<RankRange> participants, CallTimeout timeout) {
  const RoundOptions round = Round(std::move(name), std::move(participants), timeout);
  const std::vector<std::string> bytes = BytesOf(std::move(objects));
  return CallForResult(
      group, [&](ProcessGroup& g) { return g.Scatter(bytes, root, round); },
      WriteObject);
}

PyObject* Barrier(Group& group, std::string name, std::vector<RankRange> participants,
                  CallTimeout timeout) {
  const RoundOptions round = Round(std::move(name), std::move(participants), timeout);
  return CallForStatus(group, [&](ProcessGroup& g) { return g.Barrier(round); });
}

// Takes this rank's turn in the rounds of `name`, whose ranks all get `refusal` as their error.
PyObject* Refuse(Group& group, std::string name, std::string refusal) {
  RoundOptions round = Round(std::move(name), {}, absl::ZeroDuration());
  round.refusal = std::move(refusal);
  return CallForStatus(group, [&](ProcessGroup& g) { return g.Barrier(round); });
}

PyObject* Vote(Group& group, int64_t value, int op, std::string name,
               std::vector<RankRange> participants, CallTimeout timeout) {
  const RoundOptions round = Round(std::move(name), std::move(participants), timeout);
  return CallForResult(
      group, [&](ProcessGroup& g) { return g.Vote(value, static_cast<client::VoteOp>(op), round); },
      WriteVote);
}

PyObject* AgreeAlive(Group& group, absl::Duration timeout) {
  return CallForResult(
      group, [&](ProcessGroup& g) { return g.AgreeAlive(timeout); },
      WriteRanks);
}

PyObject* ExpireData(Group& group, std::optional<absl::Duration> older_than) {
  return CallForResult(
      group, [&](ProcessGroup& g) { return g.ExpireData(older_than); },
      WriteNumber);
}

PyObject* CancelBarrier(Group& group, std::string name, std::string reason) {
  return CallForStatus(group, [&](ProcessGroup& g) { return g.CancelBarrier(name, reason); });
}

PyObject* ReportProgress(Group& group, int64_t counter, std::string operation) {
  const Share<ProcessGroup> used = group.Use();
  if (used == nullptr) return nullptr;
  used->ReportProgress(counter, operation);
  return WriteNone();
}

PyObject* ReportError(Group& group, std::string detail, bool fatal,
                      std::vector<RankRange> suspected) {
  return CallForStatus(group,
                       [&](ProcessGroup& g) { return g.ReportError(detail, fatal, suspected); });
}

PyObject* PublishUniqueIds(Group& group, std::string name, std::vector<Blob> ids) {
  const std::vector<std::string> bytes = BytesOf(std::move(ids));
  return CallForStatus(group, [&](ProcessGroup& g) { return g.PublishUniqueIds(name, bytes); });
}

PyObject* FetchUniqueIds(Group& group, std::string name, CallTimeout timeout) {
  return CallForResult(
      group, [&](ProcessGroup& g) { return g.FetchUniqueIds(name, timeout); },
      WriteIds);
}

PyObject* Describe(Group& group) {
  return CallForResult(
      group, [](ProcessGroup& g) { return g.Describe(); }, WriteGroupInfo);
}

PyObject* WhoIsMissing(Group& group) {
  return CallForResult(
      group, [](ProcessGroup& g) { return g.WhoIsMissing(); }, WriteOpenWaits);
}

PyObject* ProposeView(Group& group, std::vector<RankRange> remove, std::vector<std::string> add,
                      absl::Duration timeout, bool drop_silent) {
  return CallForResult(
      group,
      [&](ProcessGroup& g) { return g.ProposeView(remove, add, timeout, drop_silent); }, WriteView);
}

PyObject* AckView(Group& group, int64_t proposal, bool accept, std::string reason,
                  absl::Duration timeout) {
  return CallForResult(
      group, [&](ProcessGroup& g) { return g.AckView(proposal, accept, reason, timeout); },
      WriteView);
}

PyObject* Rejoin(Group& group, CallTimeout timeout) {
  return CallForStatus(group, [&](ProcessGroup& g) { return g.Rejoin(timeout); });
}

PyObject* Leave(Group& group, std::string reason) {
  return CallForStatus(group, [&](ProcessGroup& g) { return g.Leave(reason); });
}

PyObject* CloseForAll(Group& group, std::string reason) {
  return CallForStatus(group, [&](ProcessGroup& g) { return g.Close(reason); });
}

PyObject* Release(Group& group) {
  group.Close();
  return WriteNone();
}

// As Release, without waiting: see AwaitDepartures.
// Tells the other members why it leaves, unless that is empty.
PyObject* StartRelease(Group& group, std::string why) {
  Share<ProcessGroup> last = group.Take();
  if (last == nullptr) return WriteNone();
  Blocking::EndCallsOf(&*last, absl::CancelledError("its process ended"), Group::kEndOfCalls);
  Depart(std::move(last), [why = std::move(why)](ProcessGroup& leaving) {
    if (why.empty()) return;
    client::AsyncOptions options;
    options.timeout = kTimeToLeave;
    absl::Notification left;
    leaving.async().Leave(why, options, [&left](const absl::Status&) { left.Notify(); });
    left.WaitForNotification();
  });
  return WriteNone();
}

// The facts that may change with the generation.
PyObject* Facts(Group& group) {
  const Share<ProcessGroup> used = group.Use();
  if (used == nullptr) return nullptr;
  return Py_BuildValue("(NNiiL)", WriteText(used->group()), WriteText(used->member()), used->rank(),
                       used->world_size(),
                       static_cast<long long>(used->generation()));  // NOLINT: Python's type
}

// The last one is empty.
std::vector<PyMethodDef> AllMethods() {
  std::vector<PyMethodDef> methods = {
    Method<&Send>("send", {"obj", "destination", "tag", "timeout"}),
    Method<&Receive>("receive", {"source", "tag", "timeout"}),
    Method<&ReceiveAny>("receive_any", {"tag", "timeout"}),
    Method<&Broadcast>("broadcast", {"obj", "root", "name", "participants", "timeout"}),
    Method<&AllGather>("all_gather", {"obj", "name", "participants", "timeout"}),
    Method<&Gather>("gather", {"obj", "root", "name", "participants", "timeout"}),
    Method<&Scatter>("scatter", {"objs", "root", "name", "participants", "timeout"}),
    Method<&Barrier>("barrier", {"name", "participants", "timeout"}),
    Method<&Refuse>("refuse", {"name", "refusal"}),
    Method<&Vote>("vote", {"value", "op", "name", "participants", "timeout"}),
    Method<&AgreeAlive>("agree_alive", {"timeout"}),
    Method<&ExpireData>("expire_data", {"older_than"}),
    Method<&CancelBarrier>("cancel_barrier", {"name", "reason"}),
    Method<&ReportProgress>("report_progress", {"counter", "operation"}),
    Method<&ReportError>("report_error", {"detail", "fatal", "suspected"}),
    Method<&PublishUniqueIds>("publish_unique_ids", {"name", "ids"}),
    Method<&FetchUniqueIds>("fetch_unique_ids", {"name", "timeout"}),
    Method<&Describe>("describe"),
    Method<&WhoIsMissing>("who_is_missing"),
    Method<&ProposeView>("propose_view", {"remove", "add", "timeout", "drop_silent"}),
    Method<&AckView>("ack_view", {"proposal", "accept", "reason", "timeout"}),
    Method<&Rejoin>("rejoin", {"timeout"}),
    Method<&Leave>("leave", {"reason"}),
    Method<&CloseForAll>("close_for_all", {"reason"}),
    MethodAlsoInChild<&Release>("release"),
                         MethodAlsoInChild<&StartRelease>("start_release", {"why"}),
    Method<&Facts>("facts"),};
  const std::vector<PyMethodDef>& more = AsyncProcessGroupMethods();
  methods.insert(methods.end(), more.begin(), more.end());
  methods.push_back({});
  return methods;
}

PyMethodDef functions[] = {Function<&Join>("join_process_group"), {}};

}  // namespace

bool AddProcessGroup(PyObject* module) {
  static auto* const methods = new std::vector<PyMethodDef>(AllMethods());
  const Object type(MakeType<Group>("cohort._core.ProcessGroup", methods->data()));
  return type && PyModule_AddObjectRef(module, "ProcessGroup", type.get()) == 0 &&
         PyModule_AddFunctions(module, functions) == 0 && AddAsyncProcessGroup(module);
}

}  // namespace cohort::python
