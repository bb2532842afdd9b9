#include "coordinator/core/interface/record.h"

namespace cohort::coordinator {

RecordValue::RecordValue() = default;
RecordValue::RecordValue(const RecordValue&) = default;
RecordValue::RecordValue(RecordValue&&) noexcept = default;
RecordValue& RecordValue::operator=(const RecordValue&) = default;
RecordValue& RecordValue::operator=(RecordValue&&) noexcept = default;
RecordValue::~RecordValue() = default;

}  // namespace cohort::coordinator
