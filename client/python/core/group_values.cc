#include "client/python/core/group_values.h"

#include <map>
#include <optional>
#include <string>

#include "client/python/core/convert.h"

namespace cohort::python {
namespace {

PyObject* WriteTexts(const std::map<std::string, std::string>& texts) {
  Object dict(PyDict_New());
  if (!dict) return nullptr;
  for (const auto& [key, text] : texts) {
    const Object name(WriteText(key)), value(WriteText(text));
    if (!name || !value || PyDict_SetItem(dict.get(), name.get(), value.get()) != 0) return nullptr;
  }
  return dict.release();
}

PyObject* WriteMember(const client::Member& member) {
  return Py_BuildValue("(NisNNdN)", WriteText(member.name), member.rank,
                       client::MemberStateName(member.state), WriteText(member.host),
                       WriteTexts(member.labels), absl::ToDoubleSeconds(member.last_heard),
                       WriteText(member.progress_operation));
}

PyObject* WriteProposal(const std::optional<client::ViewProposal>& proposal) {
  if (!proposal.has_value()) return WriteNone();
  return Py_BuildValue("(NNNNi)", Write(proposal->id), WriteText(proposal->proposer),
                       WriteRanks(proposal->remove), WriteList(proposal->add, WriteText),
                       proposal->world_size);
}

}  // namespace

PyObject* WriteObject(const std::string& object) { return WriteBytes(object); }

PyObject* WriteObjects(const client::ObjectList& objects) { return WriteList(objects, WriteBytes); }

PyObject* WriteReceived(const client::ReceivedObject& object) {
  return Py_BuildValue("(y#i)", object.bytes.data(), static_cast<Py_ssize_t>(object.bytes.size()),
                       object.source);
}

PyObject* WriteVote(const client::VoteResult& result) {
  return Py_BuildValue("(LN)", static_cast<long long>(result.value),  // NOLINT: Python's type
                       WriteRanks(result.dissenting));
}

PyObject* WriteIds(const std::vector<std::string>& ids) { return WriteList(ids, WriteBytes); }

PyObject* WriteNumber(int64_t number) { return Write(number); }

PyObject* WriteView(const client::ViewResult& view) {
  return Py_BuildValue("(Nii)", Write(view.generation), view.rank, view.world_size);
}

PyObject* WriteGroupInfo(const client::GroupInfo& info) {
  return Py_BuildValue("(NNsiiiNN)", WriteText(info.name), Write(info.generation),
                       client::GroupStateName(info.state), info.min_members, info.max_members,
                       info.world_size, WriteList(info.members, WriteMember),
                       WriteProposal(info.proposal));
}

PyObject* WriteOpenWaits(const client::WhoIsMissingReport& report) {
  return WriteList(report.waits, [](const client::OpenWait& wait) {
    return Py_BuildValue("(NNNdd)", WriteText(wait.operation), WriteRanks(wait.missing.missing),
                         WriteRanks(wait.missing.arrived), absl::ToDoubleSeconds(wait.age),
                         absl::ToDoubleSeconds(wait.remaining));
  });
}

}  // namespace cohort::python
