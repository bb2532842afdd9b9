#include "coordinator/service/tcpstore/tcpstore_request.h"

#include <string>
#include <vector>

#include "coordinator/service/tcpstore/testing/tcpstore_test_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::coordinator::tcpstore {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const RequestLimits kLimits{8192, 131072, 1 << 20, 4 << 20};

absl::StatusOr<size_t> ReadRequest(Dialect dialect, const RequestLimits& limits,
                                   absl::string_view bytes, Request* request) {
  return RequestReader(limits).Read(dialect, bytes, request);
}

struct Case {
  Operation operation;
  std::vector<std::string> fields;
};

std::vector<Case> AllRequests() {
  const std::string key = TextBytes("key"), value = TextBytes("value"), empty = TextBytes("");
  const std::string two = NumberBytes(2), none = NumberBytes(0);
  const std::string small = NumberBytes(77).substr(0, 4);
  return {{Operation::kSet, {key, value}},
          {Operation::kSet, {key, empty}},
          {Operation::kCompareSet, {key, empty, value}},
          {Operation::kGet, {key}},
          {Operation::kAdd, {key, NumberBytes(static_cast<uint64_t>(-5))}},
          {Operation::kCheck, {two, key, empty}},
          {Operation::kWait, {two, key, TextBytes("other")}},
          {Operation::kWait, {none}},
          {Operation::kNumKeys, {}},
          {Operation::kDelete, {key}},
          {Operation::kAppend, {key, value}},
          {Operation::kMultiGet, {two, key, key}},
          {Operation::kMultiSet, {two, key, value, TextBytes("b"), empty}},
          {Operation::kCancelWait, {}},
          {Operation::kPing, {small}},
          {Operation::kQueuePush, {key, value}},
          {Operation::kQueuePop, {key}},
          {Operation::kQueueLen, {key}},
          {Operation::kListKeys, {}},
          {Operation::kBarrier, {key, two}}};
}

TEST(TcpStoreRequestTest, EachRequestIsReadOnceItIsComplete) {
  Request request;
  for (const Case& each : AllRequests()) {
    const std::string bytes = RequestBytes(static_cast<int>(each.operation), each.fields);
    RequestReader pieces(kLimits);
    for (size_t size = 0; size < bytes.size(); ++size) {
      const std::string part = bytes.substr(0, size);
      EXPECT_EQ(*ReadRequest(Dialect::kTorch2, kLimits, part, &request), 0u)
          << OperationName(each.operation) << " of " << size << " bytes";
      EXPECT_EQ(*pieces.Read(Dialect::kTorch2, part, &request), 0u);
    }
    const std::string with_more = bytes + "more";
    EXPECT_EQ(*ReadRequest(Dialect::kTorch2, kLimits, with_more, &request), bytes.size());
    EXPECT_EQ(request.operation, each.operation);
    const std::vector<absl::string_view> keys = request.keys, values = request.values;
    // In pieces, and then another request with the same reader.
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(*pieces.Read(Dialect::kTorch2, bytes, &request), bytes.size());
      EXPECT_EQ(request.keys, keys);
      EXPECT_EQ(request.values, values);
    }
  }
}

// Were all keys read again for each byte, this would take many minutes.
TEST(TcpStoreRequestTest, APartOfARequestIsNotReadAgainForEachByte) {
  constexpr size_t kKeys = 100000;
  std::string bytes = RequestBytes(static_cast<int>(Operation::kWait), {NumberBytes(kKeys)});
  for (size_t i = 0; i < kKeys; ++i) bytes += TextBytes("k");
  RequestReader reader(kLimits);
  Request request;
  for (size_t size = 1; size < bytes.size(); ++size) {
    ASSERT_EQ(*reader.Read(Dialect::kTorch2, absl::string_view(bytes).substr(0, size), &request),
              0u);
    ASSERT_EQ(reader.operation(), Operation::kWait);
  }
  EXPECT_EQ(*reader.Read(Dialect::kTorch2, bytes, &request), bytes.size());
  EXPECT_EQ(request.keys.size(), kKeys);
}

TEST(TcpStoreRequestTest, FieldsOfRequests) {
  Request request;
  const std::string multi_set = RequestBytes(
      11, {NumberBytes(2), TextBytes("a"), TextBytes("1"), TextBytes("b"), TextBytes("")});
  ASSERT_TRUE(ReadRequest(Dialect::kTorch2, kLimits, multi_set, &request).ok());
  EXPECT_THAT(request.keys, ElementsAre("a", "b"));
  EXPECT_THAT(request.values, ElementsAre("1", ""));
  const std::string add = RequestBytes(4, {TextBytes("n"), NumberBytes(static_cast<uint64_t>(-5))});
  ASSERT_TRUE(ReadRequest(Dialect::kTorch2, kLimits, add, &request).ok());
  EXPECT_EQ(request.number, -5);
}

TEST(TcpStoreRequestTest, OperationsOfPyTorch1HaveOtherNumbers) {
  Request request;
  const auto read = [&](const std::string& bytes) {
    const auto size = ReadRequest(Dialect::kTorch1, kLimits, bytes, &request);
    EXPECT_EQ(*size, bytes.size());
    return request.operation;
  };
  EXPECT_EQ(read(RequestBytes(0, {TextBytes("k"), TextBytes("v")})), Operation::kSet);
  EXPECT_EQ(read(RequestBytes(3, {TextBytes("k"), NumberBytes(1)})), Operation::kAdd);
  EXPECT_EQ(read(RequestBytes(6, {})), Operation::kNumKeys);
  EXPECT_EQ(read(RequestBytes(8, {TextBytes("k")})), Operation::kDelete);
  EXPECT_EQ(read(RequestBytes(12, {})), Operation::kCancelWait);
  const absl::Status watch =
      ReadRequest(Dialect::kTorch1, kLimits, RequestBytes(7, {TextBytes("k")}), &request).status();
  EXPECT_EQ(watch.code(), absl::StatusCode::kUnimplemented) << watch;
  EXPECT_FALSE(ReadRequest(Dialect::kTorch1, kLimits, RequestBytes(13, {}), &request).ok());
}

TEST(TcpStoreRequestTest, LimitsAreNamedBeforeTheBytesHaveCome) {
  Request request;
  const auto error = [&](const std::string& bytes, const RequestLimits& limits = kLimits) {
    return std::string(ReadRequest(Dialect::kTorch2, limits, bytes, &request).status().message());
  };
  EXPECT_THAT(error(RequestBytes(3, {NumberBytes(8193)})), HasSubstr("max_key_bytes (8192)"));
  EXPECT_THAT(error(RequestBytes(3, {NumberBytes(~uint64_t{0})})), HasSubstr("max_key_bytes"));
  EXPECT_THAT(error(RequestBytes(1, {TextBytes("k"), NumberBytes((1 << 20) + 1)})),
              HasSubstr("max_value_bytes (1048576)"));
  EXPECT_THAT(error(RequestBytes(6, {NumberBytes(131073)})), HasSubstr("max_keys"));
  RequestLimits small = kLimits;
  small.max_message_bytes = 64;
  const std::string set = RequestBytes(1, {TextBytes("k"), NumberBytes(99), std::string(60, 'x')});
  EXPECT_THAT(error(set, small),
              HasSubstr("max_message_bytes (64)"));
}

TEST(TcpStoreRequestTest, BytesThatAreNoRequest) {
  Request request;
  const auto code = [&](const std::string& bytes) {
    return ReadRequest(Dialect::kTorch2, kLimits, bytes, &request).status().code();
  };
  EXPECT_EQ(code(RequestBytes(19, {})), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(RequestBytes(255, {})), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(RequestBytes(0, {"1234"})), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(RequestBytes(3, {TextBytes("\xff")})), absl::StatusCode::kInvalidArgument);
}

TEST(TcpStoreRequestTest, FirstBytesTellTcpStoreClients) {
  const std::string hello = Hello();
  for (size_t size = 1; size < hello.size(); ++size) {
    EXPECT_EQ(MatchTcpStore(hello.substr(0, size)), ProtocolMatch::kUndecided);
  }
  EXPECT_EQ(MatchTcpStore(hello), ProtocolMatch::kMatch);
  EXPECT_EQ(DialectOf(hello + "more"), Dialect::kTorch2);

  const std::string add = RequestBytes(3, {TextBytes("init/"), NumberBytes(1)});
  EXPECT_EQ(MatchTcpStore(add.substr(0, 1)), ProtocolMatch::kUndecided);
  EXPECT_EQ(MatchTcpStore(add), ProtocolMatch::kMatchWithSilent);
  EXPECT_EQ(DialectOf(add), Dialect::kTorch1);
  const std::string set = RequestBytes(0, {TextBytes("k"), TextBytes("v")});
  EXPECT_EQ(MatchTcpStore(set), ProtocolMatch::kMatchWithSilent);
  EXPECT_EQ(DialectOf(set), Dialect::kTorch1);

  for (const char* other : {"PRI * HTTP/2.0", "GET / HTTP/1.1\r\n", "\x16\x03\x01\x02", "COHORT/1",
                            "\x03\xff\xff\xff\xff\xff\xff\xff\xff"}) {
    EXPECT_EQ(MatchTcpStore(other), ProtocolMatch::kOther) << other;
  }
}

}  // namespace
}  // namespace cohort::coordinator::tcpstore
