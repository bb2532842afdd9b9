#include "tests/fuzz/mutators/message_mutator.h"

#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "google/protobuf/descriptor.h"

namespace cohort::coordinator::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int kMaxDepth = 4;

size_t Below(Random& random, size_t bound) { return bound == 0 ? 0 : random() % bound; }

int64_t AnyInteger(Random& random, int64_t lowest, int64_t highest) {
  switch (Below(random, 8)) {
    case 0:
      return highest - static_cast<int64_t>(Below(random, 2));
    case 1:
      return lowest + static_cast<int64_t>(Below(random, 2));
    case 2:
      return -static_cast<int64_t>(Below(random, 4));
    case 3:
      return (int64_t{1} << Below(random, 31)) - static_cast<int64_t>(Below(random, 2));
    default:
      return static_cast<int64_t>(Below(random, 6));  // ranks, placeholders, seconds
  }
}

std::string AnyText(Random& random, bool is_utf8) {
  static const char* const kWords[] = {"",     "g",       "h",  "m0",       "m1", "m2",
                                       "m3",   "k",       "k1", "17",       "-1", "k/a",
                                       "step", "default", "q",  "\xC3\xA9", "a b"};
  switch (Below(random, 10)) {
    case 0:
      return std::string(Below(random, 2) == 0 ? 128 : 129, 'n');
    case 1: {
      static const size_t kSizes[] = {16, 64, 65, 256, 512, 513, 1024, 1025, 4096, 10000};
      return std::string(kSizes[Below(random, std::size(kSizes))], 's');
    }
    case 2: {  // four bytes to a character: bounds in characters are not bounds in bytes
      std::string text;
      for (size_t n = Below(random, 520); n > 0; --n) text += "\xF0\x9F\x98\x80";
      return text;
    }
    case 3:
      if (!is_utf8) return std::string(16, static_cast<char>(random()));
      return std::string(1, '\0');
    default:
      return kWords[Below(random, std::size(kWords))];
  }
}

// The place of a value: the field itself, or one element of a repeated one.
class Place {
 public:
  Place(Message* message, const FieldDescriptor* field) : message_(message), field_(field) {}

  Message* Submessage(Random& random) const {
    const Reflection& reflection = *message_->GetReflection();
    if (!field_->is_repeated()) return reflection.MutableMessage(message_, field_);
    const int size = reflection.FieldSize(*message_, field_);
    if (size == 0 || Below(random, 3) == 0) return reflection.AddMessage(message_, field_);
    return reflection.MutableRepeatedMessage(message_, field_,
                                             static_cast<int>(Below(random, size)));
  }

  void SetScalar(Random& random) const {
    const Reflection& to = *message_->GetReflection();
    const bool add = field_->is_repeated();
    switch (field_->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32: {
        const auto value = static_cast<int32_t>(AnyInteger(
            random, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()));
        add ? to.AddInt32(message_, field_, value) : to.SetInt32(message_, field_, value);
        return;
      }
      case FieldDescriptor::CPPTYPE_INT64: {
        const int64_t value = AnyInteger(random, std::numeric_limits<int64_t>::min(),
                                         std::numeric_limits<int64_t>::max());
        add ? to.AddInt64(message_, field_, value) : to.SetInt64(message_, field_, value);
        return;
      }
      case FieldDescriptor::CPPTYPE_UINT32:
        if (!add) to.SetUInt32(message_, field_, static_cast<uint32_t>(random()));
        return;
      case FieldDescriptor::CPPTYPE_BOOL:
        if (!add) to.SetBool(message_, field_, Below(random, 2) == 1);
        return;
      case FieldDescriptor::CPPTYPE_ENUM:
        if (!add) to.SetEnumValue(message_, field_, static_cast<int>(Below(random, 9)) - 1);
        return;
      case FieldDescriptor::CPPTYPE_STRING: {
        std::string value = AnyText(random, field_->type() == FieldDescriptor::TYPE_STRING);
        add ? to.AddString(message_, field_, std::move(value))
            : to.SetString(message_, field_, std::move(value));
        return;
      }
      default:
        return;
    }
  }

 private:
  Message* message_;
  const FieldDescriptor* field_;
};

void Mutate(Random& random, int depth, Message* message) {
  const auto* descriptor = message->GetDescriptor();
  if (descriptor->field_count() == 0) return;
  const FieldDescriptor* field =
      descriptor->field(static_cast<int>(Below(random, descriptor->field_count())));
  const Reflection& reflection = *message->GetReflection();
  if (Below(random, 8) == 0) {
    reflection.ClearField(message, field);
    return;
  }
  const Place place(message, field);
  if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
    place.SetScalar(random);
    return;
  }
  Message* inner = place.Submessage(random);
  if (depth < kMaxDepth) Mutate(random, depth + 1, inner);
}

}  // namespace

void MutateMessage(Random& random, Message* message) { Mutate(random, 0, message); }

}  // namespace cohort::coordinator::fuzz
