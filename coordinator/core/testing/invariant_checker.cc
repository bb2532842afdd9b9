#include "coordinator/core/testing/invariant_checker.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/core/testing/round_script.h"

namespace cohort::coordinator {
namespace {

bool NeedsLiveSession(const CallBody& body) {
  return !std::holds_alternative<AttachCall>(body) && !std::holds_alternative<JoinCall>(body) &&
         !std::holds_alternative<GetGroupCall>(body) &&
         !std::holds_alternative<WatchGroupCall>(body) &&
         !std::holds_alternative<WatchKeysCall>(body);
}

bool NeedsPresentGeneration(const CallBody& body) {
  return std::holds_alternative<EnterRoundCall>(body) || std::holds_alternative<SendCall>(body) ||
         std::holds_alternative<ReceiveCall>(body) ||
         std::holds_alternative<PublishIdsCall>(body) ||
         std::holds_alternative<FetchIdsCall>(body) ||
         std::holds_alternative<CancelRoundCall>(body);
}

// The parts of an answer that the checker compares.
std::string Outcome(const Reply& reply) {
  if (const auto* round = std::get_if<RoundReply>(&reply.body)) {
    return absl::StrCat("outcome ", static_cast<int>(round->end->outcome));
  }
  if (const auto* object = std::get_if<ReceiveReply>(&reply.body)) {
    return object->timed_out
               ? "nothing"
               : absl::StrCat(object->payload.bytes(), " from ", object->source, " sequence ",
                              object->sequence, " receipt ", object->receipt);
  }
  if (const auto* pop = std::get_if<QueuePopReply>(&reply.body)) {
    return absl::StrCat(pop->value.bytes(), " sequence ", pop->sequence, " receipt ", pop->receipt);
  }
  if (const auto* send = std::get_if<SendReply>(&reply.body)) {
    return absl::StrCat("sequence ", send->sequence, send->consumed ? ", consumed" : "");
  }
  if (const auto* join = std::get_if<JoinReply>(&reply.body)) {
    return absl::StrCat(join->timed_out ? "timed out" : "joined", " rank ", join->rank,
                        " generation ", join->generation, " session ", join->session.low % 1000);
  }
  if (const auto* view = std::get_if<ViewReply>(&reply.body)) {
    return absl::StrCat("outcome ", static_cast<int>(view->outcome), " generation ",
                        view->generation);
  }
  return "ok";
}

}  // namespace

InvariantChecker::InvariantChecker(SimulatedWorld& world) : world_(world) {
  world_.on_step = [this](const StepView& view) { OnStep(view); };
  world_.on_release = [this](const Call& call, const Reply& reply) { OnRelease(call, reply); };
}

// --- Steps.

void InvariantChecker::OnStep(const StepView& view) {
  for (const auto& [call, reply] : view.replies) {
    if (world_.tracing() && !std::holds_alternative<GetGroupCall>(call->body)) {
      world_.Trace(absl::StrCat("reply ", reply->id, " to ", CallName(*call), " of ",
                                call->caller.key.group, ": ",
                                reply->status.ok() ? Outcome(*reply) : reply->status.ToString()));
    }
    CheckAdmission(*call, *reply);
    if (!reply->status.ok()) continue;
    if (const auto* receive = std::get_if<ReceiveReply>(&reply->body);
        receive != nullptr && !receive->timed_out) {
      handed_out_.insert({call->caller.key.group, receive->sequence});
    }
  }
  for (const auto& [call, reply] : view.replies) {
    const auto* send = std::get_if<SendReply>(&reply->body);
    if (send == nullptr || !reply->status.ok() || !send->consumed) continue;
    if (handed_out_.count({call->caller.key.group, send->sequence}) == 0) {
      Fail(absl::StrCat("R7: object ", send->sequence, " of ", call->caller.key.group,
                        " counts as consumed, but no member received it"));
    }
  }
  CheckIncarnations(view);
  CheckRelease(view);
}

void InvariantChecker::CheckIncarnations(const StepView& view) {
  const auto* join = view.call == nullptr ? nullptr : std::get_if<JoinCall>(&view.call->body);
  if (join == nullptr) return;
  const GroupMember who{view.call->caller.key.group, join->member};
  const Reply* own = nullptr;
  for (const auto& [call, reply] : view.replies) {
    if (call == view.call) own = reply;
  }
  if (own == nullptr || own->status.ok()) {
    incarnations_[who].insert(join->incarnation);
    last_incarnation_[who] = join->incarnation;
    return;
  }
  const bool refused_as_older = own->context != nullptr &&
                                own->context->cause.kind == CauseKind::kReplaced &&
                                absl::StrContains(own->status.message(), "older incarnation");
  if (!refused_as_older) return;
  if (incarnations_[who].count(join->incarnation) == 0 ||
      last_incarnation_[who] == join->incarnation) {
    Fail(absl::StrCat("R14: ", who.second, " of ", who.first,
                      " is refused as an older incarnation, but no other was taken in since"));
  }
}

void InvariantChecker::CheckAdmission(const Call& call, const Reply& reply) {
  if (!reply.status.ok()) return;
  if (NeedsLiveSession(call.body) && fenced_.count(call.caller.session) != 0) {
    Fail(absl::StrCat("R3: a fenced session gets a good answer to ", CallName(call)));
  }
  auto present = generation_.find(call.caller.key.group);
  if (NeedsPresentGeneration(call.body) && present != generation_.end() &&
      call.caller.generation < present->second) {
    Fail(absl::StrCat("R3: a call of generation ", call.caller.generation,
                      " gets a good answer to ", CallName(call), " in generation ",
                      present->second));
  }
}

void InvariantChecker::CheckRelease(const StepView& view) {
  std::map<RoundId, std::set<int>> now_released;
  for (const auto& [call, reply] : view.replies) {
    const auto* enter = std::get_if<EnterRoundCall>(&call->body);
    const auto* round = std::get_if<RoundReply>(&reply->body);
    if (enter == nullptr || round == nullptr || !reply->status.ok()) continue;
    if (round->end->outcome != RoundOutcome::kReleased || Rooted(enter->kind) ||
        enter->kind == RoundKind::kAgreeAlive) {
      continue;
    }
    const std::string& group = call->caller.key.group;
    const int64_t generation = call->caller.generation;
    auto rank = ranks_.find({group, generation, call->caller.session});
    if (rank == ranks_.end()) continue;
    now_released[{group, generation, enter->name, enter->number}].insert(rank->second);
  }
  for (const auto& [id, ranks] : now_released) {
    if (!released_.insert(id).second) continue;
    const auto& [group, generation, name, number] = id;
    const int size = sizes_.at({group, generation});
    const std::vector<int> expected = ScriptOf(name, number, size).participants.ToVector();
    if (std::vector<int>(ranks.begin(), ranks.end()) != expected) {
      Fail(absl::StrCat("R4: round ", name, " #", number, " of ", group, " generation ", generation,
                        " is released to ", absl::StrJoin(ranks, ","), " where ",
                        absl::StrJoin(expected, ","), " take part"));
    }
    ++rounds_released_;
  }
}

// --- Replies that became durable.

void InvariantChecker::OnRelease(const Call& call, const Reply& reply) {
  const std::string& group = call.caller.key.group;
  if (!reply.status.ok()) return;
  if (const auto* join = std::get_if<JoinReply>(&reply.body)) {
    CheckSession(group, std::get<JoinCall>(call.body).member, join->session);
    if (!join->timed_out) CheckGeneration(group, join->generation, "join");
  } else if (const auto* view = std::get_if<ViewReply>(&reply.body)) {
    // The repeat of a proposal gets the answer of the first, whatever came after.
    const bool is_repeat =
        std::holds_alternative<ProposeViewCall>(call.body) && view->generation < generation_[group];
    if (view->outcome == ViewReply::Outcome::kCommitted && !is_repeat) {
      CheckGeneration(group, view->generation, "view");
    }
  } else if (const auto* info = std::get_if<GetGroupReply>(&reply.body)) {
    CheckGeneration(group, info->group.generation, "get_group");
  } else if (const auto* create = std::get_if<CreateGroupReply>(&reply.body)) {
    CheckGeneration(group, create->generation, "create_group");
  } else if (const auto* put = std::get_if<PutReply>(&reply.body)) {
    if (put->written && !IsRepeat(call, put->revision, 0)) CheckRevision(call, put->revision, true);
  } else if (const auto* add = std::get_if<AddReply>(&reply.body)) {
    if (!IsRepeat(call, add->value, add->revision)) CheckRevision(call, add->revision, true);
  } else if (const auto* gone = std::get_if<DeleteReply>(&reply.body)) {
    if (!IsRepeat(call, gone->deleted_count, gone->revision)) {
      CheckRevision(call, gone->revision, gone->deleted_count > 0);
    }
  } else if (const auto* push = std::get_if<QueuePushReply>(&reply.body)) {
    IsRepeat(call, push->sequence, 0);
  } else if (const auto* send = std::get_if<SendReply>(&reply.body)) {
    IsRepeat(call, send->sequence, 0);
  } else if (const auto* cancel = std::get_if<CancelRoundReply>(&reply.body)) {
    IsRepeat(call, cancel->number, 0);
  } else if (const auto* receive = std::get_if<ReceiveReply>(&reply.body)) {
    if (!receive->timed_out) IsRepeat(call, receive->sequence, receive->receipt);
  } else if (const auto* pop = std::get_if<QueuePopReply>(&reply.body)) {
    if (pop->found) IsRepeat(call, pop->sequence, pop->receipt);
  }
}

bool InvariantChecker::IsRepeat(const Call& call, int64_t first, int64_t second) {
  const Id128& operation = call.caller.operation_id;
  if (operation.empty()) return false;
  const auto answer = std::make_tuple(call.body.index(), first, second);
  const auto [it, is_new] = first_answers_.emplace(operation, answer);
  if (!is_new && it->second != answer) {
    Fail(absl::StrCat("R8: a repeat of ", CallName(call), " is answered ", first, ", ", second,
                      " where the first answer was ", std::get<1>(it->second), ", ",
                      std::get<2>(it->second)));
  }
  return !is_new;
}

void InvariantChecker::CheckRevision(const Call& call, int64_t revision, bool moved) {
  // First answered by an earlier process, which died before it could say so.
  if (revision <= (world_.boot() - 1) << 32) return;
  int64_t& last = revisions_[call.caller.key.group];
  if (revision <= last && moved) {
    Fail(absl::StrCat("R8: ", CallName(call), " has revision ", revision, " in namespace \"",
                      call.caller.key.group, "\", which was at ", last));
  }
  last = std::max(last, revision);
}

void InvariantChecker::CheckGeneration(const std::string& group, int64_t generation,
                                       const char* where) {
  int64_t& last = generation_[group];
  if (generation < last) {
    Fail(absl::StrCat("R1: ", where, " says that ", group, " is in generation ", generation,
                      "; it was in ", last));
  }
  last = std::max(last, generation);
}

void InvariantChecker::CheckSession(const std::string& group, const std::string& member,
                                    const Id128& session) {
  Id128& present = sessions_[{group, member}];
  if (present == session) return;
  if (fenced_.count(session) != 0) Fail("R3: a join gives out a fenced session");
  if (!present.empty()) fenced_.insert(present);
  present = session;
}

// --- The answers that members got.

void InvariantChecker::OnJoined(const std::string& group, const std::string& member,
                                int64_t generation, const Id128& session, int rank,
                                int world_size) {
  const auto [size, is_first] = sizes_.emplace(std::make_pair(group, generation), world_size);
  if (!is_first && size->second != world_size) {
    Fail(absl::StrCat("R2: ", group, " generation ", generation, " has ", size->second, " and ",
                      world_size, " members"));
  }
  const auto [by_rank, is_free] =
      sessions_by_rank_.emplace(std::make_tuple(group, generation, rank), session);
  if (!is_free && by_rank->second != session) {
    Fail(absl::StrCat("R2: rank ", rank, " of ", group, " generation ", generation,
                      " belongs to two incarnations, one of ", member));
  }
  if (rank < 0 || rank >= world_size) {
    Fail(absl::StrCat("R2: ", member, " has rank ", rank, " of ", world_size, " in ", group,
                      " generation ", generation));
  }
  ranks_[{group, generation, session}] = rank;
}

void InvariantChecker::RoundEnded(const std::string& group, int64_t generation,
                                  const std::string& name, int64_t number, int rank,
                                  const RoundReply& reply) {
  const std::string title =
      absl::StrCat("round ", name, " #", number, " of ", group, " generation ", generation);
  const RoundEnd& end = *reply.end;
  const RoundScript script = ScriptOf(name, number, sizes_.at({group, generation}));
  const bool released = end.outcome == RoundOutcome::kReleased;
  if (end.number != number || (released && end.kind != script.kind)) {
    Fail(absl::StrCat("R4: ", title, " is answered with a ", RoundKindName(end.kind), " #",
                      end.number));
    return;
  }
  if (!Rooted(script.kind)) {
    const auto [known, is_first] = known_ends_.emplace(RoundId(group, generation, name, number),
                                                       std::make_pair(released, end.vote));
    if (!is_first && known->second.first != released) {
      Fail(absl::StrCat("R5: ", title, " has ended RELEASED for some, otherwise for others: rank ",
                        rank, " gets ", static_cast<int>(end.outcome), " ", end.reason));
    }
  }
  if (!released) return;
  const auto value_of = [&](int of) { return RoundValue(group, generation, name, number, of); };
  const bool all_values = script.kind == RoundKind::kAllGather ||
                          (script.kind == RoundKind::kGather && rank == script.root);
  if (all_values) {
    const std::vector<int> ranks = script.participants.ToVector();
    bool right = reply.with_values && end.values.size() == ranks.size();
    for (size_t i = 0; right && i < ranks.size(); ++i) {
      right = end.values[i].bytes() == value_of(ranks[i]);
    }
    if (!right) Fail(absl::StrCat("R4: ", title, " gives rank ", rank, " the wrong values"));
  }
  if (Rooted(script.kind) && rank != script.root) {
    const std::string expected =
        value_of(script.kind == RoundKind::kBroadcast ? script.root : rank);
    if (reply.own.bytes() != expected) {
      Fail(absl::StrCat("R4: ", title, " gives rank ", rank, " \"", reply.own.bytes(), "\""));
    }
  }
  if (script.kind == RoundKind::kVote && end.vote != ExpectedVote(script, generation, number)) {
    Fail(absl::StrCat("R4: ", title, " counts ", end.vote));
  }
}

void InvariantChecker::AgreedAlive(const std::string& group, int64_t generation, int64_t number,
                                   const RoundEnd& end) {
  if (end.outcome != RoundOutcome::kReleased) return;
  const auto [it, is_first] =
      alive_.emplace(std::make_tuple(group, generation, number), end.alive.ToString());
  if (!is_first && it->second != end.alive.ToString()) {
    Fail(absl::StrCat("R13: agreement #", number, " of ", group, " generation ", generation, " is ",
                      it->second, " and ", end.alive.ToString()));
  }
}

}  // namespace cohort::coordinator
