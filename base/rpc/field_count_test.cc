#include "base/rpc/field_count.h"

#include <string>

#include "cohort/v1/group.pb.h"
#include "cohort/v1/store.pb.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

template <typename Message>
bool Fits(const Message& message, int most) {
  return CheckFieldCount(*Message::descriptor(), message.SerializeAsString(), most).ok();
}

TEST(FieldCountTest, CountsFieldsAndElements) {
  v1::GetRequest get;
  EXPECT_TRUE(Fits(get, 0));
  for (int i = 0; i < 10; ++i) get.add_keys("");
  EXPECT_TRUE(Fits(get, 10));
  EXPECT_FALSE(Fits(get, 9));
  EXPECT_EQ(CheckFieldCount(*v1::GetRequest::descriptor(), get.SerializeAsString(), 9).message(),
            "a GetRequest of 20 bytes has more than 9 fields, elements of lists included");
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
  for (int i = 0; i < 10; ++i) get.mutable_scope()->add_acknowledged_receipts(int64_t{1} << (6 * i));
  EXPECT_TRUE(Fits(get, 12));  // the scope, its list, and the elements
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
        std::string("\x0b\x0b\x0b"), std::string("\x07")}) {
    EXPECT_TRUE(CheckFieldCount(*v1::PutRequest::descriptor(), bytes).ok());
  }
}

}  // namespace
}  // namespace cohort
