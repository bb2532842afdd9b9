#include "tests/fuzz/samples/sample_framed_rpc_scripts.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "cohort/v1/group.pb.h"
#include "cohort/v1/messaging.pb.h"
#include "cohort/v1/store.pb.h"
#include "coordinator/service/dispatch/method_table.h"
#include "coordinator/service/framed_rpc/framed_rpc_handler.h"
#include "google/protobuf/message_lite.h"
#include "tests/fuzz/scripts/framed_rpc_script.h"

namespace cohort::coordinator::fuzz {
namespace {

// The number of a method in framed RPC.
uint8_t NumberOf(Method wanted) {
  uint8_t number = 0;
  for (size_t i = 0; i < static_cast<size_t>(wanted); ++i) {
    number += IsFramedMethod(static_cast<Method>(i)) ? 1 : 0;
  }
  return number;
}

FramedRpcStep Call(uint8_t call, Method method, const google::protobuf::MessageLite& request) {
  FramedRpcStep step;
  step.call = call;
  step.method = NumberOf(method);
  step.body = request.SerializeAsString();
  return step;
}

FramedRpcStep Cancel(uint8_t call) {
  FramedRpcStep step;
  step.form = kCancelForm;
  step.call = call;
  return step;
}

FramedRpcStep Formed(uint8_t form, std::string body) {
  FramedRpcStep step;
  step.form = form;
  step.body = std::move(body);
  return step;
}

v1::PutRequest Put(const std::string& value) {
  v1::PutRequest request;
  request.set_key("k");
  request.set_value(value);
  return request;
}

// Waits for a key that no call puts.
v1::GetRequest Await() {
  v1::GetRequest request;
  request.add_keys("missing");
  request.mutable_wait()->set_seconds(600);
  return request;
}

v1::JoinRequest Join() {
  v1::JoinRequest request;
  request.mutable_scope()->set_group("g");
  request.set_member("m");
  request.mutable_spec()->set_min_members(2);
  request.mutable_spec()->set_max_members(2);
  request.mutable_wait()->set_seconds(600);
  return request;
}

std::string Script(uint8_t pieces, std::vector<FramedRpcStep> steps) {
  return SerializeFramedRpcScript(FramedRpcScript{pieces, std::move(steps)});
}

}  // namespace

std::map<std::string, std::string> SampleFramedRpcInputs() {
  std::map<std::string, std::string> inputs;
  inputs["nothing"] = Script(16, {});
  inputs["put_and_get"] =
      Script(16, {Call(1, Method::kPut, Put("v")), Call(2, Method::kGet, v1::GetRequest())});
  inputs["byte_by_byte"] = Script(0, {Call(1, Method::kPut, Put("v")), Cancel(1)});
  inputs["parked_and_gone"] =
      Script(16, {Call(1, Method::kGet, Await()), Call(2, Method::kJoin, Join())});
  inputs["parked_and_cancelled"] = Script(16, {Call(1, Method::kGet, Await()), Cancel(1), Cancel(1),
                                               Cancel(7), Call(1, Method::kPut, Put("v"))});
  inputs["number_used_twice"] =
      Script(16, {Call(1, Method::kGet, Await()), Call(1, Method::kPut, Put("v"))});
  std::vector<FramedRpcStep> many;
  for (uint8_t call = 0; call < 20; ++call) many.push_back(Call(call, Method::kGet, Await()));
  inputs["too_many_calls"] = Script(10, std::move(many));
  inputs["too_large"] = Script(
      8, {Call(1, Method::kPut, Put(std::string(9000, 'v'))), Call(2, Method::kPut, Put("v"))});
  FramedRpcStep unknown = Call(1, Method::kPut, Put("v"));
  unknown.method = 0xFF;
  inputs["no_such_method"] = Script(16, {std::move(unknown)});
  inputs["not_a_message"] = Script(16, {[] {
                                     FramedRpcStep step = Call(1, Method::kPut, Put("v"));
                                     step.body = "\xFF\xFF\xFF";
                                     return step;
                                   }()});
  inputs["says_less"] = Script(16, {Formed(kLyingForm, std::string("\1\0\0\0 and more", 13))});
  inputs["says_more"] = Script(16, {Formed(kLyingForm, std::string("\xFF\0\0\0", 4))});
  inputs["says_4_gib"] = Script(16, {Formed(kLyingForm, "\xFF\xFF\xFF\xFF")});
  inputs["no_frame"] = Script(16, {Formed(kBareForm, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")});
  inputs["a_servers_frame"] =
      Script(16, {Call(1, Method::kPut, Put("v")),
                  Formed(kBareForm, std::string("\0\0\0\0\1\0\0\0\4\0\0\0\0\0\0\0", 16))});
  const FramedRpcStep token =
      Formed(kBareForm, std::string("\5\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0token", 21));
  v1::WatchGroupRequest watch;
  watch.mutable_scope()->set_group("g");
  const FramedRpcStep next = Formed(kBareForm, std::string("\0\0\0\0\2\0\0\0\7\0\0\0\0\0\0\0", 16));
  inputs["a_watch"] =
      Script(16, {Call(1, Method::kJoin, Join()), Call(2, Method::kWatchGroup, watch), next,
                  Cancel(1), next, next, Cancel(2), next});
  inputs["a_token"] = Script(16, {token, Call(1, Method::kPut, Put("v"))});
  inputs["two_tokens"] = Script(16, {token, token, Call(1, Method::kPut, Put("v"))});
  inputs["a_token_behind_a_call"] = Script(16, {Call(1, Method::kPut, Put("v")), token});
  inputs["a_token_of_5000_bytes"] =
      Script(16, {Formed(kBareForm, std::string("\x88\x13\0\0\0\0\0\0\5\0\0\0\0\0\0\0", 16) +
                                        std::string(5000, 't'))});
  return inputs;
}

}  // namespace cohort::coordinator::fuzz
