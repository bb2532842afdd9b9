#include "base/rpc/field_count.h"

#include <string>

#include "cohort/v1/group.pb.h"
#include "cohort/v1/store.pb.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/unknown_field_set.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

// In pieces of seven bytes, as from a socket.
template <typename Message>
absl::Status Check(const std::string& bytes, int most) {
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()), 7);
  return CheckFieldCount(*Message::descriptor(), &stream, most);
}

template <typename Message>
bool Fits(const Message& message, int most) {
  return Check<Message>(message.SerializeAsString(), most).ok();
}

TEST(FieldCountTest, CountsFieldsAndElements) {
  v1::GetRequest get;
  EXPECT_TRUE(Fits(get, 0));
  for (int i = 0; i < 10; ++i) get.add_keys("");
  EXPECT_TRUE(Fits(get, 10));
  EXPECT_FALSE(Fits(get, 9));
  EXPECT_EQ(Check<v1::GetRequest>(get.SerializeAsString(), 9).message(),
            "GetRequest: more than 9 fields, elements of lists included");
}

TEST(FieldCountTest, CountsTheFieldsOfMessagesInside) {
  v1::JoinRequest join;
  for (int i = 0; i < 10; ++i) (*join.mutable_labels())[std::to_string(i)] = "x";
  // Each entry of the map is a message with a key and a value.
  EXPECT_TRUE(Fits(join, 30));
  EXPECT_FALSE(Fits(join, 29));
}

TEST(FieldCountTest, CountsPackedNumbers) {
  v1::GetRequest get;
  for (int i = 0; i < 10; ++i)
    get.mutable_scope()->add_acknowledged_receipts(int64_t{1} << (6 * i));
  EXPECT_TRUE(Fits(get, 12));  // the scope, its list, and the elements
  EXPECT_FALSE(Fits(get, 11));
}

// Protobuf keeps fields that it does not know, with those in groups of them.
TEST(FieldCountTest, CountsTheFieldsOfUnknownGroups) {
  v1::GetRequest get;
  auto* const group = get.GetReflection()->MutableUnknownFields(&get)->AddGroup(1000);
  for (int i = 0; i < 8; ++i) group->AddVarint(1, 1);
  group->AddGroup(1)->AddLengthDelimited(1, "");
  get.add_keys("behind it");
  EXPECT_TRUE(Fits(get, 12));
  EXPECT_FALSE(Fits(get, 11));
}

TEST(FieldCountTest, LargeBytesAreOneField) {
  v1::PutRequest put;
  put.set_value(std::string(1 << 20, '\x08'));
  EXPECT_TRUE(Fits(put, 1));
}

TEST(FieldCountTest, OtherBytesAreLeftToTheParser) {
  for (const std::string& bytes :
       {std::string("\xff"), std::string("\x0a\x7f"), std::string("\x0a\xff\xff\xff\xff\x7f"),
        std::string("\x0b\x0b\x0b"), std::string("\x07"),
        std::string("\x0a\x03\x0a\x05\x01\x01\x01", 7)}) {
    EXPECT_TRUE(Check<v1::PutRequest>(bytes, kMostFields).ok());
  }
}

}  // namespace
}  // namespace cohort
