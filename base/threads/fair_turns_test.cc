#include "base/threads/fair_turns.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/threads/event_loop.h"
#include "base/threads/notification.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

class FairTurnsTest : public ::testing::Test {
 protected:
  // A turn of this many milliseconds. `then` runs in it.
  class Turn final : public FairTurns::Work {
   public:
    Turn(FairTurnsTest& test, const std::string& name, int milliseconds, std::function<void()> then)
        : test_(test), name_(name), milliseconds_(milliseconds), then_(std::move(then)) {}
    void OnTurn() override {
      test_.order_ += name_;
      test_.time_ += absl::Milliseconds(milliseconds_);
      if (then_) then_();
    }

   private:
    FairTurnsTest& test_;
    const std::string name_;
    const int milliseconds_;
    const std::function<void()> then_;
  };

  void Add(const std::string& client, int milliseconds, std::function<void()> then = nullptr) {
    turns_.Add(turns_.ClientOf(client),
               std::make_shared<Turn>(*this, client, milliseconds, std::move(then)));
  }
  // Runs `add` on the loop's thread, and all turns that follow from it. Returns their order.
  std::string Order(const std::function<void()>& add) {
    order_.clear();
    InLoop(add);
    // Turns and this task alternate until no turn is left.
    for (size_t seen = std::string::npos; seen != order_.size();) {
      seen = order_.size();
      InLoop([] {});
    }
    return order_;
  }
  void InLoop(const std::function<void()>& task) {
    Notification done;
    loop_.Post([&] {
      task();
      done.Notify();
    });
    ASSERT_TRUE(done.WaitWithTimeout(absl::Seconds(20)));
  }

  absl::Duration time_;  // that the thread has used
  std::string order_;
  EventLoop loop_{"turns"};
  FairTurns turns_{loop_, [this] { return time_; }};
  // Clients are the same as long as they have an owner.
  const std::shared_ptr<FairTurns::Client> clients_[3] = {
      turns_.ClientOf("a"), turns_.ClientOf("b"), turns_.ClientOf("x")};
};

TEST_F(FairTurnsTest, ClientsThatHaveUsedAsMuchHaveTheirTurnsInOrder) {
  EXPECT_EQ(Order([&] {
              for (const char* const name : {"a", "b", "x"}) Add(name, 1);
            }),
            "abx");
}

TEST_F(FairTurnsTest, MuchWorkOfOneClientLetsOthersPass) {
  EXPECT_EQ(Order([&] {
              for (int i = 0; i < 4; ++i) Add("x", 2);
              for (int i = 0; i < 3; ++i) Add("a", 1);
              Add("b", 1);
            }),
            "xabaxaxx");
}

TEST_F(FairTurnsTest, WorkThatComesDuringALongTurnIsNext) {
  EXPECT_EQ(Order([&] {
              Add("x", 5, [&] { Add("a", 1, [&] { Add("a", 1); }); });
              Add("x", 5);
              Add("x", 5);
            }),
            "xaxax");
}

TEST_F(FairTurnsTest, WorkMayAddItself) {
  int left = 3;
  std::function<void()> again = [&] {
    if (--left > 0) Add("x", 2, again);
  };
  EXPECT_EQ(Order([&] {
              Add("x", 2, again);
              Add("a", 1);
            }),
            "xaxx");
}

TEST_F(FairTurnsTest, APauseGivesNoCredit) {
  EXPECT_EQ(Order([&] {
              for (int i = 0; i < 100; ++i) Add("x", 1);
            }),
            std::string(100, 'x'));
  // b was away, and does not go before a hundred turns of x.
  EXPECT_EQ(Order([&] {
              for (int i = 0; i < 3; ++i) Add("x", 1);
              for (int i = 0; i < 4; ++i) Add("b", 1);
            }),
            "xbxbxbb");
}

TEST_F(FairTurnsTest, ATurnForWhichNoClientWaitsIsFree) {
  EXPECT_EQ(Order([&] { Add("x", 50); }), "x");
  EXPECT_EQ(Order([&] {
              for (int i = 0; i < 2; ++i) Add("x", 1);
              for (int i = 0; i < 2; ++i) Add("a", 1);
            }),
            "xaxa");
}

TEST(FairTurnsEndTest, WorkIsDroppedAlthoughItOwnsItsClient) {
  class Endless final : public FairTurns::Work, public std::enable_shared_from_this<Endless> {
   public:
    explicit Endless(FairTurns& turns) : turns_(turns), client_(turns.ClientOf("a")) {}
    void OnTurn() override { turns_.Add(client_, shared_from_this()); }

   private:
    FairTurns& turns_;
    const std::shared_ptr<FairTurns::Client> client_;
  };
  std::optional<EventLoop> loop("turns");
  std::optional<FairTurns> turns(*loop);
  std::weak_ptr<Endless> work;
  loop->Post([&] {
    const auto endless = std::make_shared<Endless>(*turns);
    work = endless;
    endless->OnTurn();
  });
  loop.reset();
  ASSERT_FALSE(work.expired());
  turns.reset();
  EXPECT_TRUE(work.expired());
}

TEST_F(FairTurnsTest, AClientIsForgottenWithItsLastOwnerAlone) {
  InLoop([&] {
    const std::shared_ptr<FairTurns::Client> kept = turns_.ClientOf("kept");
    for (int i = 0; i < 1000; ++i) turns_.ClientOf(std::to_string(i));
    EXPECT_EQ(turns_.ClientOf("kept"), kept);
  });
}

}  // namespace
}  // namespace cohort
