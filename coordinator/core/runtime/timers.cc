#include "coordinator/core/runtime/timers.h"

namespace cohort::coordinator {

TimerId Timers::Schedule(Instant at, Action action) {
  const TimerId id = ++last_id_;
  due_.emplace(Key{at, id}, std::move(action));
  when_.emplace(id, at);
  return id;
}

void Timers::Cancel(TimerId& id) {
  auto it = when_.find(id);
  if (it != when_.end()) {
    due_.erase(Key{it->second, id});
    when_.erase(it);
  }
  id = 0;
}

void Timers::Run(Step& step) {
  while (!due_.empty() && due_.begin()->first.first <= step.now()) {
    auto node = due_.extract(due_.begin());
    when_.erase(node.key().second);
    node.mapped()(step);
  }
}

}  // namespace cohort::coordinator
