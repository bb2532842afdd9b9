#include "tests/fuzz/samples/fill_every.h"

#include "google/protobuf/descriptor.h"

namespace cohort::coordinator::fuzz {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

void FillEvery(const Values& values, int depth, Message* message) {
  const Reflection& to = *message->GetReflection();
  const auto* descriptor = message->GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    const int count = field->is_repeated() ? values.repeats : 1;
    for (int n = 0; n < count; ++n) {
      const bool add = field->is_repeated();
      switch (field->cpp_type()) {
        case FieldDescriptor::CPPTYPE_INT32:
          add ? to.AddInt32(message, field, values.integer32)
              : to.SetInt32(message, field, values.integer32);
          break;
        case FieldDescriptor::CPPTYPE_INT64:
          add ? to.AddInt64(message, field, values.integer64)
              : to.SetInt64(message, field, values.integer64);
          break;
        case FieldDescriptor::CPPTYPE_UINT32:
          to.SetUInt32(message, field, static_cast<uint32_t>(values.integer32));
          break;
        case FieldDescriptor::CPPTYPE_UINT64:
          if (!add) to.SetUInt64(message, field, static_cast<uint64_t>(values.integer64));
          break;
        case FieldDescriptor::CPPTYPE_BOOL:
          to.SetBool(message, field, values.flag);
          break;
        case FieldDescriptor::CPPTYPE_ENUM:
          to.SetEnumValue(message, field, values.enumerator);
          break;
        case FieldDescriptor::CPPTYPE_STRING: {
          const std::string& value =
              field->type() == FieldDescriptor::TYPE_STRING ? values.text : values.bytes;
          add ? to.AddString(message, field, value) : to.SetString(message, field, value);
          break;
        }
        case FieldDescriptor::CPPTYPE_MESSAGE:
          if (depth == 0) break;
          FillEvery(values, depth - 1,
                    add ? to.AddMessage(message, field) : to.MutableMessage(message, field));
          break;
        default:
          break;
      }
    }
  }
}

}  // namespace cohort::coordinator::fuzz
