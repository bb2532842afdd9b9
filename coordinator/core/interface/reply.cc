#include "coordinator/core/interface/reply.h"

namespace cohort::coordinator {

ReplyBody::ReplyBody() = default;
ReplyBody::ReplyBody(const ReplyBody&) = default;
ReplyBody::ReplyBody(ReplyBody&&) noexcept = default;
ReplyBody& ReplyBody::operator=(const ReplyBody&) = default;
ReplyBody& ReplyBody::operator=(ReplyBody&&) noexcept = default;
ReplyBody::~ReplyBody() = default;

}  // namespace cohort::coordinator
