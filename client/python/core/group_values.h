// Results of a ProcessGroup as Python's objects. All functions need the interpreter's lock, and return
// null with an exception if there is no memory.
#ifndef COHORT_CLIENT_PYTHON_CORE_GROUP_VALUES_H_
#define COHORT_CLIENT_PYTHON_CORE_GROUP_VALUES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/rank_set.h"
#include "client/python/core/python_api.h"
#include "client/rendezvous/process_group/process_group.h"
#include "client/rendezvous/report/report.h"

namespace cohort::python {

// The options of a round. An empty list of participants stands for all ranks.
inline client::RoundOptions Round(std::string name, std::vector<RankRange> participants,
                                  absl::Duration timeout) {
  client::RoundOptions options;
  options.name = std::move(name);
  options.participants = std::move(participants);
  options.timeout = timeout;
  return options;
}

PyObject* WriteObject(const std::string& object);
PyObject* WriteObjects(const client::ObjectList& objects);
PyObject* WriteReceived(const client::ReceivedObject& object);  // the bytes and their source
PyObject* WriteVote(const client::VoteResult& result);
PyObject* WriteIds(const std::vector<std::string>& ids);
PyObject* WriteNumber(int64_t number);
PyObject* WriteView(const client::ViewResult& view);
PyObject* WriteGroupInfo(const client::GroupInfo& info);
// A list with a tuple for each open wait.
PyObject* WriteOpenWaits(const client::WhoIsMissingReport& report);

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_GROUP_VALUES_H_
