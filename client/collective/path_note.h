// How the ranks of a group reach each other, as one of them leaves it with the coordinator for
// people who ask.
#ifndef COHORT_CLIENT_COLLECTIVE_PATH_NOTE_H_
#define COHORT_CLIENT_COLLECTIVE_PATH_NOTE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace cohort::client {

// The group's key under which it lies.
inline constexpr absl::string_view kPathNoteKey = "cohort.paths";

struct PathNote {
  int64_t generation = 0;
  // Ranks that share memory, in order; one that shares with nobody is alone. Between them: TCP.
  std::vector<std::vector<int>> hosts;
  // Why ranks that might share memory do not, as they say it; each text once.
  std::vector<std::string> why_not;
};

std::string EncodePathNote(const PathNote& note);
// Absent: it is none.
std::optional<PathNote> DecodePathNote(absl::string_view bytes);

// Such as: shared memory: ranks 0-1; ranks 2-3. TCP between all others
std::string FormatPathNote(const PathNote& note);

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_PATH_NOTE_H_
