// A gRPC service that looks at the rights of a call's client before it parses the request. The
// generated service parses first, and a request of a few MiB may take fifty times its size. It
// refuses a request with too many fields (base/rpc/field_count.h), before it parses it, and one
// with a text that is too long (request_texts.h).
//
//   class Echo : public CheckedService {
//    public:
//     explicit Echo(Admits admits) : CheckedService(descriptor, std::move(admits)) {
//       AddBlocking("Say", this, &Echo::Say);
//     }
//     grpc::Status Say(grpc::ServerContext* context, const SayRequest* request, SayResponse*
//     response);
//   };
#ifndef COHORT_WORKER_DAEMON_METHODS_CHECKED_SERVICE_H_
#define COHORT_WORKER_DAEMON_METHODS_CHECKED_SERVICE_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/rpc/field_count.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/impl/codegen/server_callback_handlers.h"
#include "grpcpp/impl/rpc_service_method.h"
#include "grpcpp/impl/service_type.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/method_handler.h"
#include "grpcpp/support/server_callback.h"
#include "worker/daemon/methods/answer.h"
#include "worker/daemon/methods/request_texts.h"

namespace cohort::worker {

// Thread-safe once its methods are added.
class CheckedService : public grpc::Service {
 public:
  // Whether the client of a call has the role that the method needs, in some tenant.
  using Admits = std::function<bool(const char* method, const grpc::ServerContextBase& context)>;

 protected:
  // Keeps `object` until the answer of the blocking call that this thread runs is sent, or its
  // client is gone. Precondition: the thread runs such a call of a CheckedService; without one, it
  // does not keep the object.
  static void KeepUntilAnswered(std::shared_ptr<const void> object);

  // `service` outlives it. The method gets an empty request if the client is not admitted, and
  // refuses the call as it refuses any call without rights.
  CheckedService(const google::protobuf::ServiceDescriptor& service, Admits admits);

  // A method runs on the thread that read its request.
  template <typename Owner, typename Request, typename Response>
  void AddBlocking(const char* name, Owner* owner,
                   grpc::Status (Owner::*method)(grpc::ServerContext*, const Request*, Response*),
                   int most_fields = kMostFields) {
    using Handler = grpc::internal::RpcMethodHandler<Owner, Request, Response>;
    Add(name,
        std::make_unique<Handler>(
            [method](Owner* callee, grpc::ServerContext* context, const Request* request,
                     Response* response) {
              const absl::Status checked = CheckRequest(*request);
              if (!checked.ok()) return Answer(context, checked);
              return (callee->*method)(context, request, response);
            },
            owner),
        /*blocks=*/true, most_fields);
  }
  // A method whose answer comes later.
  template <typename Owner, typename Request, typename Response>
  void AddCallback(const char* name, Owner* owner,
                   grpc::ServerUnaryReactor* (Owner::*method)(grpc::CallbackServerContext*,
                                                              const Request*, Response*)) {
    using Handler = grpc::internal::CallbackUnaryHandler<Request, Response>;
    Add(name,
        std::make_unique<Handler>([owner, method](auto* context, auto* request, auto* response) {
          const absl::Status checked = CheckRequest(*request);
          if (checked.ok()) return (owner->*method)(context, request, response);
          grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
          reactor->Finish(Answer(context, checked));
          return reactor;
        }),
        /*blocks=*/false);
  }
  // A method that answers with a stream.
  template <typename Owner, typename Request, typename Response>
  void AddCallback(const char* name, Owner* owner,
                   grpc::ServerWriteReactor<Response>* (Owner::*method)(
                       grpc::CallbackServerContext*, const Request*)) {
    using Handler = grpc::internal::CallbackServerStreamingHandler<Request, Response>;
    Add(name, std::make_unique<Handler>([owner, method](auto* context, auto* request) {
          const absl::Status checked = CheckRequest(*request);
          if (checked.ok()) return (owner->*method)(context, request);
          grpc::ServerWriteReactor<Response>* const refused =
              new RefusedStream<Response>(Answer(context, checked));
          return refused;
        }),
        /*blocks=*/false);
  }
  // A method whose request is a stream. It checks the client itself before it reads, and the texts
  // of its parts.
  template <typename Owner, typename Request, typename Response>
  void AddCallback(const char* name, Owner* owner,
                   grpc::ServerReadReactor<Request>* (Owner::*method)(grpc::CallbackServerContext*,
                                                                      Response*)) {
    using Handler = grpc::internal::CallbackClientStreamingHandler<Request, Response>;
    Add(name, std::make_unique<Handler>([owner, method](auto* context, auto* response) {
          return (owner->*method)(context, response);
        }),
        /*blocks=*/false);
  }

 private:
  // Why the request of the call that this thread runs was not parsed; OK: it was.
  static const absl::Status& Refused();
  template <typename Request>
  static absl::Status CheckRequest(const Request& request) {
    return Refused().ok() ? CheckTexts(request) : Refused();
  }

  // A stream that ends with an error before its first part. Deletes itself.
  template <typename Response>
  class RefusedStream final : public grpc::ServerWriteReactor<Response> {
   public:
    explicit RefusedStream(const grpc::Status& error) { this->Finish(error); }
    void OnDone() override { delete this; }
  };

  // Aborts if the service has no method `name`.
  void Add(const char* name, std::unique_ptr<grpc::internal::MethodHandler> handler, bool blocks,
           int most_fields = kMostFields);

  const google::protobuf::ServiceDescriptor& service_;
  const Admits admits_;
  std::vector<std::unique_ptr<const std::string>> paths_;  // of which gRPC keeps the bytes' address
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_METHODS_CHECKED_SERVICE_H_
