// The arguments of a collective, from Python.
#ifndef COHORT_CLIENT_PYTHON_CORE_COLLECTIVE_ARGUMENTS_H_
#define COHORT_CLIENT_PYTHON_CORE_COLLECTIVE_ARGUMENTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "base/collective/collective_call.h"
#include "client/collective/group.h"
#include "client/python/core/array.h"
#include "client/python/core/python_api.h"

namespace cohort::python {

// As they come, borrowed. None stands for no tensor, and for the group's timeout.
struct RawArguments {
  PyObject* input;
  PyObject* output;
  PyObject* op;
  PyObject* dim;
  PyObject* root;
  PyObject* sizes;  // null: not ragged; else the sizes that are sent, and those that are received
  PyObject* timeout;
};

// Holds everything that its call refers to.
class CollectiveArguments {
 public:
  // Returns an error with the name of the first argument that is wrong: the rank then fails the
  // collective, because the other ranks wait for it. A wrong timeout counts as None.
  absl::Status Read(Collective collective, int rank, const RawArguments& raw);

  const CollectiveCall& call() const { return call_; }
  const client::CallOptions& options() const { return options_; }
  // A broadcast has one tensor, as both.
  const Tensor& input() const { return has_one_tensor_ ? output_.tensor() : input_.tensor(); }
  const Tensor& output() const { return output_.tensor(); }
  // The call with its arrays, for an asynchronous call. Moves the arrays out of this.
  KeptCall Keep();

 private:
  bool ReadAll(Collective collective, int rank, const RawArguments& raw);

  bool has_one_tensor_ = false;
  Array input_;
  Array output_;
  std::vector<int64_t> sizes_;
  std::vector<int64_t> output_sizes_;
  CollectiveCall call_;
  client::CallOptions options_;
};

// Several arrays, from a list or tuple.
class Arrays {
 public:
  // Errors: as CollectiveArguments::Read.
  absl::Status Read(PyObject* sequence, const char* name, Access access);
  const std::vector<Tensor>& tensors() const { return tensors_; }
  // As Array::stream, of the first array that is on a GPU.
  const std::optional<void*>& stream() const { return stream_; }
  // As Array::Keep, of each.
  std::vector<Tensor> Keep();

 private:
  std::vector<std::unique_ptr<Array>> arrays_;
  std::vector<Tensor> tensors_;
  std::optional<void*> stream_;
};

// The timeout of a call; None stands for the group's. Errors: as CollectiveArguments::Read.
absl::Status ReadTimeout(PyObject* from, client::CallOptions* to);
// Clears the exception that is set, and returns its text as INVALID_ARGUMENT. An exception that is no
// Exception, such as KeyboardInterrupt, is raised when the method ends: see KeptInterrupt.
absl::Status TakeException();

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_COLLECTIVE_ARGUMENTS_H_
