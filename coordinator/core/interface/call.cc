#include "coordinator/core/interface/call.h"

namespace cohort::coordinator {

CallBody::CallBody() = default;
CallBody::CallBody(const CallBody&) = default;
CallBody::CallBody(CallBody&&) noexcept = default;
CallBody& CallBody::operator=(const CallBody&) = default;
CallBody& CallBody::operator=(CallBody&&) noexcept = default;
CallBody::~CallBody() = default;

}  // namespace cohort::coordinator
