// Converts the coordinator's messages to the plain values of report.h.
#ifndef COHORT_CLIENT_RENDEZVOUS_REPORT_REPORT_CODEC_H_
#define COHORT_CLIENT_RENDEZVOUS_REPORT_REPORT_CODEC_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/rendezvous/report/report.h"
#include "cohort/v1/admin.pb.h"
#include "cohort/v1/common.pb.h"
#include "cohort/v1/group.pb.h"

namespace cohort::client {

absl::Duration FromProto(const google::protobuf::Duration& duration);
// Infinite durations become the largest that the wire holds.
void ToProto(absl::Duration duration, google::protobuf::Duration* out);

template <typename Ranges>
std::vector<RankRange> RangesFromProto(const Ranges& ranges) {
  std::vector<RankRange> result;
  result.reserve(ranges.size());
  for (const auto& range : ranges) result.push_back({range.first(), range.last()});
  return result;
}
template <typename Ranges>
void RangesToProto(const std::vector<RankRange>& ranges, Ranges* out) {
  for (const RankRange& range : ranges) {
    auto* added = out->Add();
    added->set_first(range.first);
    added->set_last(range.last);
  }
}

Cause FromProto(const v1::Cause& cause);
MissingReport FromProto(const v1::MissingReport& report);
Member FromProto(const v1::Member& member);
ViewProposal FromProto(const v1::ViewProposal& proposal);
// Without the proposal, which travels beside the group.
GroupInfo FromProto(const v1::Group& group);
GroupInfo FromProto(const v1::GetGroupResponse& response);
GroupState FromProto(v1::GroupState state);
GroupEvent FromProto(const v1::GroupEvent& event);
TensorReport FromProto(const v1::TensorReport& report);
void ToProto(const TensorReport& report, v1::TensorReport* out);
WhoIsMissingReport FromProto(const v1::WhoIsMissingResponse& response);
ParkedCall FromProto(const v1::ParkedCall& call);

// One sentence: the member, what happened, the generation.
std::string CauseText(const v1::Cause& cause);

v1::ErrorDetails MakeErrorDetails(absl::string_view group, int64_t current_generation,
                                  absl::string_view operation);
// A status of this library with the details that the coordinator would have sent with it.
absl::Status StatusWithDetails(absl::StatusCode code, absl::string_view text,
                               const v1::ErrorDetails& details);

// Returns `status` with the ranks that it names (base/error_ranks.h) in its details, which travel.
absl::Status WithRanksInDetails(absl::Status status);

// From now on `<<` and ToString of a status print its payload as text, not as bytes. Does nothing
// in a program that has set its own printer of payloads. Thread-safe.
void PrintErrorDetailsAsText();

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_REPORT_REPORT_CODEC_H_
