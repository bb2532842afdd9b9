#include "coordinator/core/testing/linearizability.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace cohort::coordinator {
namespace {

// A register with a revision; revision 0 is an absent key.
struct State {
  std::string value;
  int64_t revision = 0;

  bool present() const { return revision != 0; }
  friend bool operator<(const State& a, const State& b) {
    return std::tie(a.revision, a.value) < std::tie(b.revision, b.value);
  }
};

// Whether the operation can have given its answer in this state. If so, applies it to the state.
bool Apply(const KeyOperation& operation, State* state) {
  const State after_write{operation.value, operation.revision};
  switch (operation.kind) {
    case KeyOperation::Kind::kPut:
      if (operation.revision <= state->revision) return false;
      *state = after_write;
      return true;
    case KeyOperation::Kind::kCompareAndPut:
      if (operation.done != (operation.expected_revision == state->revision)) return false;
      if (!operation.done) return true;
      if (operation.revision <= state->revision) return false;
      *state = after_write;
      return true;
    case KeyOperation::Kind::kGet:
      if (operation.done != state->present()) return false;
      return !operation.done ||
             (operation.value == state->value && operation.revision == state->revision);
    case KeyOperation::Kind::kAdd: {
      int64_t old = 0;
      if (state->present() && !absl::SimpleAtoi(state->value, &old)) return false;
      if (operation.value != absl::StrCat(old + operation.delta)) return false;
      if (operation.revision <= state->revision) return false;
      *state = after_write;
      return true;
    }
    case KeyOperation::Kind::kDelete:
      if (operation.done != state->present()) return false;
      *state = State{};
      return true;
  }
  return false;
}

class Search {
 public:
  explicit Search(const std::vector<KeyOperation>& history)
      : history_(history), taken_(history.size(), false) {}

  bool Run() { return From(State{}, history_.size()); }

 private:
  bool From(const State& state, size_t left) {
    if (left == 0) return true;
    if (!seen_.insert({taken_, state}).second) return false;
    int64_t first_end = std::numeric_limits<int64_t>::max();
    for (size_t i = 0; i < history_.size(); ++i) {
      if (!taken_[i]) first_end = std::min(first_end, history_[i].responded);
    }
    for (size_t i = 0; i < history_.size(); ++i) {
      if (taken_[i] || history_[i].invoked > first_end) continue;
      State next = state;
      if (!Apply(history_[i], &next)) continue;
      taken_[i] = true;
      if (From(next, left - 1)) return true;
      taken_[i] = false;
    }
    return false;
  }

  const std::vector<KeyOperation>& history_;
  std::vector<bool> taken_;
  std::set<std::pair<std::vector<bool>, State>> seen_;
};

}  // namespace

std::string KeyOperation::ToString() const {
  static constexpr const char* kNames[] = {"put", "compare_and_put", "get", "add", "delete"};
  return absl::StrCat("[", invoked, ", ", responded, "] ", kNames[static_cast<int>(kind)],
                      " expected=", expected_revision, " delta=", delta, " -> done=", done,
                      " value=", value, " revision=", revision);
}

bool IsLinearizable(const std::vector<KeyOperation>& history) { return Search(history).Run(); }

}  // namespace cohort::coordinator
