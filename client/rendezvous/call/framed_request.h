// Messages in the frames of framed RPC.
#ifndef COHORT_CLIENT_RENDEZVOUS_CALL_FRAMED_REQUEST_H_
#define COHORT_CLIENT_RENDEZVOUS_CALL_FRAMED_REQUEST_H_

#include <string>

#include "base/framed_rpc/frame.h"
#include "google/protobuf/message_lite.h"

namespace cohort::client {

// A frame: room for the header, and the request.
inline std::string MakeFrame(const google::protobuf::MessageLite& request) {
  std::string frame;
  frame.reserve(framed_rpc::kHeaderBytes + request.ByteSizeLong());
  frame.resize(framed_rpc::kHeaderBytes);
  request.AppendToString(&frame);
  return frame;
}

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_CALL_FRAMED_REQUEST_H_
