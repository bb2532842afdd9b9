// Which number a member's next round under a name has. Every kind of round counts under the same
// name.
#ifndef COHORT_CLIENT_RENDEZVOUS_SESSION_ROUND_NUMBERS_H_
#define COHORT_CLIENT_RENDEZVOUS_SESSION_ROUND_NUMBERS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace cohort::client {

// Confined to one thread at a time.
class RoundNumbers {
 public:
  // In the order of the calls; a number that was given back goes first.
  int64_t Take(const std::string& name) {
    Sequence& sequence = sequences_[name];
    if (!sequence.returned.empty()) {
      const int64_t number = *sequence.returned.begin();
      sequence.returned.erase(sequence.returned.begin());
      return number;
    }
    return sequence.next++;
  }

  // The round did not end, as far as this member knows: its next call takes part in the same one.
  void GiveBack(const std::string& name, int64_t number) {
    Sequence& sequence = sequences_[name];
    sequence.returned.insert(number);
    // Keeps the set small: numbers returned at the end just become untaken again.
    while (!sequence.returned.empty() && *sequence.returned.rbegin() == sequence.next - 1) {
      --sequence.next;
      sequence.returned.erase(sequence.next);
    }
  }

  // The coordinator named the number to use after `number`.
  void Continue(const std::string& name, int64_t number, int64_t next) {
    if (next <= number) {
      GiveBack(name, number);
      return;
    }
    Sequence& sequence = sequences_[name];
    sequence.next = std::max(sequence.next, next);
    sequence.returned.erase(sequence.returned.begin(), sequence.returned.lower_bound(next));
  }

  void Clear() { sequences_.clear(); }

 private:
  struct Sequence {
    int64_t next = 1;
    std::set<int64_t> returned;
  };
  std::map<std::string, Sequence> sequences_;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_SESSION_ROUND_NUMBERS_H_
