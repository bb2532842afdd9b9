// Decodes and checks a member's report of its operations on tensors.
#ifndef COHORT_COORDINATOR_SERVICE_CODEC_DECODE_TENSOR_REPORT_H_
#define COHORT_COORDINATOR_SERVICE_CODEC_DECODE_TENSOR_REPORT_H_

#include "absl/status/status.h"
#include "cohort/v1/group.pb.h"
#include "coordinator/core/interface/types.h"
#include "coordinator/service/codec/decode_context.h"

namespace cohort::coordinator {

// Errors: INVALID_ARGUMENT (names the field).
absl::Status DecodeTensorReport(const v1::TensorReport& message, const DecodeContext& context,
                                TensorReport* report);

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_CODEC_DECODE_TENSOR_REPORT_H_
