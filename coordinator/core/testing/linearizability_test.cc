#include "coordinator/core/testing/linearizability.h"

#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/id128.h"
#include "coordinator/core/interface/call.h"
#include "coordinator/core/interface/effects.h"
#include "coordinator/core/interface/reply.h"
#include "coordinator/core/testing/store_harness.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

using Kind = KeyOperation::Kind;
using History = std::vector<KeyOperation>;

KeyOperation Put(int64_t invoked, int64_t responded, std::string value, int64_t revision) {
  return {Kind::kPut, invoked, responded, 0, 0, true, std::move(value), revision};
}
KeyOperation CompareAndPut(int64_t invoked, int64_t responded, int64_t expected, bool done,
                           std::string value, int64_t revision) {
  return {Kind::kCompareAndPut, invoked, responded, expected, 0, done, std::move(value), revision};
}
KeyOperation Get(int64_t invoked, int64_t responded, std::string value, int64_t revision) {
  return {Kind::kGet, invoked, responded, 0, 0, revision != 0, std::move(value), revision};
}
KeyOperation Add(int64_t invoked, int64_t responded, int64_t delta, std::string value,
                 int64_t revision) {
  return {Kind::kAdd, invoked, responded, 0, delta, true, std::move(value), revision};
}
KeyOperation Delete(int64_t invoked, int64_t responded, bool done) {
  return {Kind::kDelete, invoked, responded, 0, 0, done};
}

TEST(IsLinearizable, AcceptsOneOperationAfterTheOther) {
  EXPECT_TRUE(IsLinearizable({Get(1, 2, "", 0), Put(3, 4, "5", 10), Add(5, 6, 2, "7", 11),
                              Get(7, 8, "7", 11), Delete(9, 10, true), Get(11, 12, "", 0)}));
}

TEST(IsLinearizable, AcceptsAnyOrderOfOperationsThatOverlap) {
  EXPECT_TRUE(IsLinearizable({Put(1, 10, "1", 2), Put(1, 10, "2", 1), Get(11, 12, "1", 2)}));
  EXPECT_TRUE(IsLinearizable({Put(1, 10, "1", 1), Get(2, 3, "1", 1), Get(4, 5, "1", 1)}));
}

TEST(IsLinearizable, RejectsAStaleRead) {
  EXPECT_FALSE(IsLinearizable({Put(1, 2, "1", 1), Put(3, 4, "2", 2), Get(5, 6, "1", 1)}));
}

TEST(IsLinearizable, RejectsAReadThatGoesBackInTime) {
  EXPECT_FALSE(IsLinearizable(
      {Put(1, 2, "1", 1), Put(3, 20, "2", 2), Get(4, 5, "2", 2), Get(6, 7, "1", 1)}));
}

TEST(IsLinearizable, RejectsALostUpdate) {
  EXPECT_FALSE(IsLinearizable({Add(1, 10, 1, "1", 1), Add(1, 10, 1, "1", 2)}));
}

TEST(IsLinearizable, RejectsAnAddThatActedTwice) {
  EXPECT_FALSE(IsLinearizable({Add(1, 2, 5, "5", 1), Get(3, 4, "10", 2)}));
}

TEST(IsLinearizable, RejectsTwoWinnersOfOneCompare) {
  EXPECT_FALSE(IsLinearizable(
      {CompareAndPut(1, 10, 0, true, "1", 1), CompareAndPut(1, 10, 0, true, "2", 2)}));
  EXPECT_TRUE(IsLinearizable(
      {CompareAndPut(1, 10, 0, true, "1", 1), CompareAndPut(1, 10, 0, false, "2", 0)}));
}

TEST(IsLinearizable, RejectsADeleteThatMissedAnEarlierPut) {
  EXPECT_FALSE(IsLinearizable({Put(1, 2, "1", 1), Delete(3, 4, false)}));
}

// Clients that call a store over a bad network: calls arrive late, in any order and more than once;
// answers are late or lost, and the client then asks again under the same operation id. A client is
// given what the first answer to reach it says.
class Clients {
 public:
  explicit Clients(uint32_t seed) : random_(seed) {}

  std::map<std::string, History> Run(int operations) {
    while (begun_ < operations || !open_.empty()) Move(begun_ < operations);
    return std::move(histories_);
  }

 private:
  struct Open {
    std::string key;
    CallBody body;
    Id128 operation_id;
    KeyOperation seen;
    std::vector<CallId> deliveries;
    int in_flight = 0;  // copies of the call that have not arrived
  };

  int Pick(int below) { return static_cast<int>(random_() % static_cast<uint32_t>(below)); }

  void Move(bool may_begin) {
    ++time_;
    const int move = Pick(10);
    if (may_begin && open_.size() < 5 && move < 3) return Begin();
    if (open_.empty()) return;
    auto it = std::next(open_.begin(), Pick(static_cast<int>(open_.size())));
    Open& open = it->second;
    if (move < 6) {
      if (open.in_flight > 0) Deliver(open);
    } else if (move < 9) {
      if (Receive(open)) {
        // Copies that are still in flight arrive after the client went on.
        while (open.in_flight > 0 && Pick(2) == 0) Deliver(open);
        open_.erase(it);
      }
    } else if (open.in_flight == 0) {
      // All answers are lost.
      if (Pick(2) == 0 && !open.deliveries.empty()) {
        harness_.Cancel(open.deliveries.back());
        open.deliveries.clear();
      }
      ++open.in_flight;
    }
    if (Pick(20) == 0) harness_.Advance(absl::Seconds(1));
  }

  void Begin() {
    Open open;
    open.key = absl::StrCat("key", Pick(2));
    open.operation_id = StoreHarness::Operation(++begun_);
    open.in_flight = 1 + Pick(2);
    KeyOperation& seen = open.seen;
    seen.invoked = time_;
    const std::string value = absl::StrCat(begun_);
    switch (Pick(6)) {
      case 0:
        seen.kind = Kind::kPut;
        seen.value = value;
        open.body = PutCall{open.key, value};
        break;
      case 1: {
        seen.kind = Kind::kCompareAndPut;
        seen.value = value;
        seen.expected_revision = Pick(3) == 0 ? 0 : last_seen_[open.key];
        PutCall put{open.key, value};
        put.expected_revision = seen.expected_revision;
        open.body = put;
        break;
      }
      case 2:
        seen.kind = Kind::kAdd;
        seen.delta = 1 + Pick(5);
        open.body = AddCall{open.key, seen.delta};
        break;
      case 3:
        seen.kind = Kind::kDelete;
        open.body = DeleteCall{open.key};
        break;
      default:
        seen.kind = Kind::kGet;
        open.body = GetCall{{open.key}, Pick(2) == 0, Pick(2) == 0 ? last_seen_[open.key] : 0};
        break;
    }
    open_.emplace(begun_, std::move(open));
  }

  void Deliver(Open& open) {
    --open.in_flight;
    harness_.With(open.operation_id);
    open.deliveries.push_back(std::visit([&](const auto& call) { return Send(call); }, open.body));
  }
  CallId Send(const PutCall& call) { return harness_.Begin(call); }
  CallId Send(const AddCall& call) { return harness_.Begin(call); }
  CallId Send(const DeleteCall& call) { return harness_.Begin(call); }
  CallId Send(const GetCall& call) { return harness_.Begin(call, absl::Seconds(3)); }
  template <typename Other>
  CallId Send(const Other&) {
    return 0;
  }

  // Whether an answer reached the client.
  bool Receive(Open& open) {
    for (const CallId id : open.deliveries) {
      if (!harness_.Answered(id)) continue;
      EXPECT_EQ(harness_.AnswerCount(id), 1);
      EXPECT_TRUE(harness_.StatusOf(id).ok()) << harness_.StatusOf(id);
      KeyOperation& seen = open.seen;
      seen.responded = time_;
      switch (seen.kind) {
        case Kind::kPut:
        case Kind::kCompareAndPut: {
          const auto reply = harness_.Take<PutReply>(id);
          seen.done = reply.written;
          if (reply.written) seen.revision = reply.revision;
          break;
        }
        case Kind::kAdd: {
          const auto reply = harness_.Take<AddReply>(id);
          seen.done = true;
          seen.value = absl::StrCat(reply.value);
          seen.revision = reply.revision;
          break;
        }
        case Kind::kDelete:
          seen.done = harness_.Take<DeleteReply>(id).deleted_count == 1;
          break;
        case Kind::kGet: {
          const auto reply = harness_.Take<GetReply>(id);
          seen.done = !reply.values.empty();
          if (seen.done) {
            seen.value = reply.values[0].value.bytes();
            seen.revision = reply.values[0].revision;
          }
          break;
        }
      }
      if (seen.revision != 0) last_seen_[open.key] = seen.revision;
      histories_[open.key].push_back(seen);
      return true;
    }
    return false;
  }

  std::mt19937 random_;
  StoreHarness harness_;
  int64_t time_ = 0;
  int begun_ = 0;
  std::map<int, Open> open_;
  std::map<std::string, int64_t> last_seen_;
  std::map<std::string, History> histories_;
};

TEST(Store, IsLinearizablePerKeyUnderLateRepeatedAndLostCalls) {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    const auto histories = Clients(seed).Run(80);
    EXPECT_EQ(histories.size(), 2u);
    for (const auto& [key, history] : histories) {
      EXPECT_TRUE(IsLinearizable(history)) << "seed " << seed << ", " << key << [&] {
        std::string all;
        for (const KeyOperation& operation : history)
          absl::StrAppend(&all, "\n", operation.ToString());
        return all;
      }();
    }
  }
}

// The checker is worth nothing if it accepts the same histories with an answer forged.
TEST(IsLinearizable, RejectsHistoriesOfTheStoreWithOneForgedAnswer) {
  int forged = 0;
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    for (auto& [key, history] : Clients(seed).Run(80)) {
      for (size_t i = 0; i < history.size(); ++i) {
        if (history[i].kind != Kind::kAdd) continue;
        History wrong = history;
        int64_t value = 0;
        ASSERT_TRUE(absl::SimpleAtoi(wrong[i].value, &value));
        wrong[i].value = absl::StrCat(value + 100000);  // no put and no sum comes near that
        EXPECT_FALSE(IsLinearizable(wrong)) << "seed " << seed << ": " << wrong[i].ToString();
        ++forged;
        break;
      }
    }
  }
  EXPECT_GT(forged, 20);
}

}  // namespace
}  // namespace cohort::coordinator
