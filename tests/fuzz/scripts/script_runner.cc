#include "tests/fuzz/scripts/script_runner.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/rpc/status_conversion.h"
#include "base/status_macros.h"
#include "cohort/v1/admin.pb.h"
#include "cohort/v1/group.pb.h"
#include "cohort/v1/store.pb.h"
#include "coordinator/service/codec/outgoing_blobs.h"
#include "coordinator/service/testing/in_process_coordinator.h"
#include "google/protobuf/message.h"
#include "tests/fuzz/scripts/wire_types.h"

namespace cohort::coordinator::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr size_t kMaxErrorBytes = 2048;
constexpr size_t kMaxParked = 32;
constexpr size_t kNumbersKept = 8;
constexpr char kGroup[] = "g";

// Only the script moves it, so that an input has the same effect each time.
class ScriptClock final : public Clock {
 public:
  Instant Now() const override { return absl::FromUnixNanos(nanos_.load()); }
  void Advance(absl::Duration by) { nanos_.fetch_add(absl::ToInt64Nanoseconds(by)); }

 private:
  std::atomic<int64_t> nanos_{int64_t{1000000000000}};
};

absl::Status Violation(absl::string_view what, absl::string_view detail) {
  return absl::InternalError(absl::StrCat(what, ": ", absl::CHexEscape(detail.substr(0, 4096))));
}

bool IsUtf8(absl::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const size_t size = byte < 0x80 ? 1 : byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
    if ((byte >= 0x80 && byte < 0xC2) || byte > 0xF4 || i + size > text.size()) return false;
    for (size_t k = 1; k < size; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) & 0xC0) != 0x80) return false;
    }
    i += size;
  }
  return true;
}

// Numbers that the coordinator gave out. A request cannot guess them, so small ones in it stand for
// those: 1 is the latest.
class GivenNumbers {
 public:
  void Add(int64_t number) {
    if (number == 0) return;
    numbers_.push_front(number);
    if (numbers_.size() > kNumbersKept) numbers_.pop_back();
  }
  int64_t Resolve(int64_t placeholder) const {
    return placeholder >= 1 && placeholder <= static_cast<int64_t>(numbers_.size())
               ? numbers_[placeholder - 1]
               : placeholder;
  }
  bool empty() const { return numbers_.empty(); }

 private:
  std::deque<int64_t> numbers_;
};

class Runner {
 public:
  explicit Runner(ScriptCounts& counts) : counts_(counts) {
    InProcessOptions options;
    options.clock = &clock_;
    coordinator_ = std::make_unique<InProcessCoordinator>(options);
  }

  absl::Status Run(const RequestScript& script) {
    COHORT_RETURN_IF_ERROR(Populate(script.world));
    for (const ScriptStep& step : script.steps) COHORT_RETURN_IF_ERROR(Take(step));
    return TidyUp();
  }

 private:
  struct Parked {
    Method method;
    int caller = 0;
    std::unique_ptr<InProcessCall> call;
  };
  struct CallerState {
    std::string session;
    int64_t generation = 0;
    int64_t incarnation = 1;
  };

  // --- Setting the scene.

  absl::Status Populate(World world) {
    if (world == World::kEmpty) return absl::OkStatus();
    const int members = world == World::kElastic ? 2 : 3;
    for (int caller = 0; caller < members; ++caller) {
      v1::JoinRequest join;
      if (world != World::kElastic) join.set_rank(caller);
      v1::GroupSpec& spec = *join.mutable_spec();
      spec.set_min_members(members);
      spec.set_max_members(world == World::kElastic ? 4 : members);
      spec.set_fate(world == World::kReportedFate ? v1::FATE_REPORT : v1::FATE_SHARE);
      spec.mutable_lease()->set_seconds(30);
      spec.mutable_join_window()->set_seconds(0);
      COHORT_RETURN_IF_ERROR(
          Take(ScriptStep{static_cast<size_t>(Method::kJoin), static_cast<uint8_t>(caller),
                          join.SerializeAsString()}));
    }
    return absl::OkStatus();
  }

  // --- One step.

  absl::Status Take(const ScriptStep& step) {
    if (step.action == kAdvanceClock) {
      const int exponent = step.request.empty() ? 0 : static_cast<uint8_t>(step.request[0]) % 36;
      clock_.Advance(absl::Milliseconds(int64_t{1} << exponent));
      // Advancing the clock runs nothing: the next call finds the due work.
      return absl::OkStatus();
    }
    if (step.action == kCancelOldest) {
      if (parked_.empty()) return absl::OkStatus();
      parked_.pop_front();
      ++counts_.cancelled;
      return CollectAnswers();
    }
    const auto method = static_cast<Method>(step.action);
    const int caller = step.manner & kCallerMask;
    std::string bytes = step.request;
    const std::unique_ptr<Message> request = NewRequest(method);
    // A request that parses only in part is filled in as well: the fuzzer's bytes rarely parse to
    // the end.
    const bool parsed = request->ParsePartialFromString(bytes);
    if ((step.manner & kRaw) == 0) {
      FillIn(method, step.manner, caller, request.get());
      bytes = request->SerializePartialAsString();
      NoteScope(*request);
    } else if (parsed) {
      NoteScope(*request);
    }
    COHORT_RETURN_IF_ERROR(Begin(method, caller, bytes));
    return CollectAnswers();
  }

  absl::Status Begin(Method method, int caller, const std::string& bytes) {
    std::unique_ptr<InProcessCall> call = coordinator_->Begin(method, bytes);
    if (!call->WaitFor(absl::ZeroDuration())) {
      parked_.push_back(Parked{method, caller, std::move(call)});
      if (parked_.size() > kMaxParked) parked_.pop_front();
      return absl::OkStatus();
    }
    return Check(method, caller, call->Take());
  }

  absl::Status CollectAnswers() {
    for (auto it = parked_.begin(); it != parked_.end();) {
      if (!it->call->WaitFor(absl::ZeroDuration())) {
        ++it;
        continue;
      }
      const Parked done = std::move(*it);
      it = parked_.erase(it);
      COHORT_RETURN_IF_ERROR(Check(done.method, done.caller, done.call->Take()));
    }
    return absl::OkStatus();
  }

  // --- Placeholders.

  void FillIn(Method method, uint8_t manner, int caller, Message* request) {
    const FieldDescriptor* field = request->GetDescriptor()->FindFieldByName("scope");
    if (field != nullptr) {
      auto* scope =
          static_cast<v1::Scope*>(request->GetReflection()->MutableMessage(request, field));
      const bool own_group = (manner & kTenantStore) != 0;
      if (!own_group && scope->group().empty()) scope->set_group(kGroup);
      if (caller < kCallers && scope->session().empty()) {
        scope->set_session(callers_[caller].session);
      }
      if ((manner & kOwnGeneration) == 0) {
        scope->set_generation(caller < kCallers ? callers_[caller].generation : 0);
      }
      if ((manner & kRepeatable) != 0) {
        const size_t which = scope->operation_id().size() % 4;
        scope->set_operation_id(std::string(16, static_cast<char>('a' + which)));
      }
      if ((manner & kAcknowledgeLatest) != 0 && !receipts_.empty()) {
        scope->add_acknowledged_receipts(1);
      }
      for (int64_t& receipt : *scope->mutable_acknowledged_receipts()) {
        receipt = receipts_.Resolve(receipt);
      }
    }
    if (method == Method::kJoin) {
      auto* join = static_cast<v1::JoinRequest*>(request);
      if (caller < kCallers) {
        if (join->member().empty()) join->set_member(absl::StrCat("m", caller));
        if (join->incarnation() == 0) join->set_incarnation(callers_[caller].incarnation);
        // A join names a generation to move on from, and must get past a stale one.
        if ((manner & kOwnGeneration) == 0) join->mutable_scope()->clear_generation();
      }
    }
    ResolveNumbers(request);
  }

  void ResolveNumbers(Message* message) {
    const Reflection* reflection = message->GetReflection();
    std::vector<const FieldDescriptor*> fields;
    reflection->ListFields(*message, &fields);
    for (const FieldDescriptor* field : fields) {
      if (field->is_repeated()) continue;
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        ResolveNumbers(reflection->MutableMessage(message, field));
        continue;
      }
      if (field->cpp_type() != FieldDescriptor::CPPTYPE_INT64) continue;
      const GivenNumbers* numbers = nullptr;
      if (field->name() == "blob") numbers = &blobs_;
      if (field->name() == "proposal") numbers = &proposals_;
      if (field->name() == "from_revision" || field->name() == "expected_revision" ||
          field->name() == "newer_than") {
        numbers = &revisions_;
      }
      if (numbers == nullptr) continue;
      reflection->SetInt64(message, field, numbers->Resolve(reflection->GetInt64(*message, field)));
    }
  }

  void NoteScope(const Message& request) {
    const FieldDescriptor* field = request.GetDescriptor()->FindFieldByName("scope");
    if (field == nullptr) return;
    const auto& scope =
        static_cast<const v1::Scope&>(request.GetReflection()->GetMessage(request, field));
    tenants_.insert(scope.tenant());
    if (scope.group().empty()) tenant_store_used_ = true;
  }

  // --- The answers.

  absl::Status Check(Method method, int caller, const absl::StatusOr<std::string>& answer) {
    const char* const name = GetMethod(method).name;
    if (!answer.ok()) {
      ++counts_.refused;
      return CheckError(method, answer.status());
    }
    ++counts_.answered;
    const std::unique_ptr<Message> response = NewResponse(method);
    if (!response->ParseFromString(*answer)) {
      return Violation(absl::StrCat("the answer of ", name, " does not parse"), *answer);
    }
    Remember(*response);
    if (method == Method::kJoin && caller < kCallers) {
      const auto& join = static_cast<const v1::JoinResponse&>(*response);
      callers_[caller].session = join.session();
      callers_[caller].generation = join.generation();
    }
    const FieldDescriptor* generation = response->GetDescriptor()->FindFieldByName("generation");
    const bool moves = method == Method::kProposeView || method == Method::kAckView;
    if (moves && generation != nullptr && caller < kCallers) {
      callers_[caller].generation = response->GetReflection()->GetInt64(*response, generation);
    }
    return absl::OkStatus();
  }

  static absl::Status CheckError(Method method, const absl::Status& error) {
    const char* const name = GetMethod(method).name;
    // The stream cuts a download into parts, so no single message holds it.
    const bool is_stream = method == Method::kDownload;
    if ((error.code() == absl::StatusCode::kInternal && !is_stream) ||
        error.code() == absl::StatusCode::kUnknown || error.message().empty()) {
      return Violation(absl::StrCat("an error of ", name, " is our own fault"), error.ToString());
    }
    const auto details = error.GetPayload(kErrorDetailsUrl);
    if (details.has_value()) {
      const std::string bytes(*details);
      if (bytes.size() > kMaxErrorDetailsBytes) {
        return Violation(absl::StrCat("error details of ", name, " with ", bytes.size(), " bytes"),
                         bytes);
      }
      if (!v1::ErrorDetails().ParseFromString(bytes)) {
        return Violation(absl::StrCat("error details of ", name, " do not parse"), bytes);
      }
    }
    const std::string text = ToGrpcStatus(error).error_message();
    if (text.size() > kMaxErrorBytes || !IsUtf8(text)) {
      return Violation(absl::StrCat("an error text of ", name), text);
    }
    return absl::OkStatus();
  }

  void Remember(const Message& message) {
    const Reflection* reflection = message.GetReflection();
    std::vector<const FieldDescriptor*> fields;
    reflection->ListFields(message, &fields);
    for (const FieldDescriptor* field : fields) {
      if (field->is_repeated()) continue;
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        Remember(reflection->GetMessage(message, field));
        continue;
      }
      if (field->cpp_type() != FieldDescriptor::CPPTYPE_INT64) continue;
      const int64_t number = reflection->GetInt64(message, field);
      if (field->name() == "receipt") receipts_.Add(number);
      if (field->name() == "revision") revisions_.Add(number);
      if (field->name() == "blob") blobs_.Add(number);
      if (field->name() == "proposal") proposals_.Add(number);
    }
  }

  // --- The end.

  absl::Status TidyUp() {
    parked_.clear();
    v1::DrainRequest resume;
    resume.set_resume(true);
    COHORT_RETURN_IF_ERROR(Check(Method::kDrain, kCallers,
                                 coordinator_->Handle(Method::kDrain, resume.SerializeAsString())));
    const int64_t waiters = coordinator_->engine().Stats().total.waiter_count;
    if (waiters != 0) return Violation("calls are parked without a client", absl::StrCat(waiters));
    for (const std::string& tenant : tenants_) COHORT_RETURN_IF_ERROR(CloseGroups(tenant));
    // Values that were too large for an answer wait for their readers, also of a closed group.
    clock_.Advance(OutgoingBlobs::kKept);
    coordinator_->Handle(Method::kListGroups, "").status().IgnoreError();
    const CoreStats left = coordinator_->engine().Stats().total;
    if (left.group_count != 0 || left.member_count != 0) {
      return Violation("groups and members left",
                       absl::StrCat(left.group_count, ", ", left.member_count));
    }
    if (left.bytes_held != 0 && !tenant_store_used_) {
      return Violation("bytes held by no group", absl::StrCat(left.bytes_held));
    }
    v1::PutRequest put;
    put.set_key("the end");
    // A limit that the script set may refuse the value, but not prevent the answer.
    return Check(Method::kPut, kCallers,
                 coordinator_->Handle(Method::kPut, put.SerializeAsString()));
  }

  absl::Status CloseGroups(const std::string& tenant) {
    for (;;) {
      v1::ListGroupsRequest list;
      list.mutable_scope()->set_tenant(tenant);
      list.set_page_size(1000);
      const auto bytes = coordinator_->Handle(Method::kListGroups, list.SerializeAsString());
      // The coordinator refuses invalid names, so no groups exist under them.
      if (bytes.status().code() == absl::StatusCode::kInvalidArgument) return absl::OkStatus();
      COHORT_RETURN_IF_ERROR(Check(Method::kListGroups, kCallers, bytes));
      v1::ListGroupsResponse page;
      if (!bytes.ok() || !page.ParseFromString(*bytes)) {
        return Violation("groups cannot be listed", bytes.status().ToString());
      }
      if (page.groups().empty()) return absl::OkStatus();
      for (const v1::Group& group : page.groups()) {
        v1::CloseGroupRequest close;
        close.mutable_scope()->set_tenant(tenant);
        close.mutable_scope()->set_group(group.name());
        const auto closed = coordinator_->Handle(Method::kCloseGroup, close.SerializeAsString());
        if (!closed.ok()) return Violation("a group does not close", closed.status().ToString());
      }
    }
  }

  ScriptCounts& counts_;
  ScriptClock clock_;
  std::unique_ptr<InProcessCoordinator> coordinator_;
  std::deque<Parked> parked_;  // goes before the coordinator
  CallerState callers_[kCallers];
  GivenNumbers receipts_;
  GivenNumbers revisions_;
  GivenNumbers blobs_;
  GivenNumbers proposals_;
  std::set<std::string> tenants_;
  bool tenant_store_used_ = false;
};

}  // namespace

absl::Status RunScript(const RequestScript& script, ScriptCounts* counts) {
  ScriptCounts own;
  return Runner(counts != nullptr ? *counts : own).Run(script);
}

}  // namespace cohort::coordinator::fuzz
