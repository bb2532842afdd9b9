#include "client/python/core/collective_arguments.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/python/core/convert.h"
#include "client/python/core/errors.h"

namespace cohort::python {

absl::Status TakeException() {
  if (PyErr_Occurred() != nullptr && PyErr_ExceptionMatches(PyExc_Exception) == 0) {
    Object interrupt = TakeRaised();
    absl::Status status = absl::InvalidArgumentError(
        absl::StrCat("reading the arguments raised ", DescribeException(interrupt.get())));
    KeptInterrupt::Keep(std::move(interrupt));
    return status;
  }
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  const Object type_kept(type), value_kept(value), trace_kept(trace);
  const Object text(value == nullptr ? nullptr : PyObject_Str(value));
  std::string message = "the arguments cannot be read";
  if (text) Read(text.get(), "message", &message);
  PyErr_Clear();
  return absl::InvalidArgumentError(message);
}

absl::Status ReadTimeout(PyObject* from, client::CallOptions* to) {
  std::optional<absl::Duration> timeout;
  if (!Read(from, "timeout", &timeout)) return TakeException();
  to->timeout = timeout;
  return absl::OkStatus();
}

absl::Status CollectiveArguments::Read(Collective collective, int rank, const RawArguments& raw) {
  const absl::Status timeout = ReadTimeout(raw.timeout, &options_);
  return ReadAll(collective, rank, raw) ? timeout : TakeException();
}

bool CollectiveArguments::ReadAll(Collective collective, int rank, const RawArguments& raw) {
  has_one_tensor_ = collective == Collective::kBroadcast;
  int root = -1;
  if (!python::Read(raw.root, "root", &root)) return false;
  // The root of a broadcast only reads its tensor.
  const Access access = has_one_tensor_ && rank == root ? Access::kRead : Access::kWrite;
  if (raw.input != Py_None && !input_.Read(raw.input, "input", Access::kRead)) return false;
  options_.stream = input_.stream();
  if (raw.output != Py_None &&
      !output_.Read(raw.output, has_one_tensor_ ? "tensor" : "output", access)) {
    return false;
  }
  if (output_.stream().has_value()) options_.stream = output_.stream();
  call_ = MakeCall(collective, input(), output());
  call_.root = root;
  if (!python::Read(raw.op, "op", &call_.reduction)) return false;
  if (!python::Read(raw.dim, "dim", &call_.dim)) return false;
  if (raw.sizes == nullptr) return true;
  std::vector<PyObject*> both;
  if (!python::Read(raw.sizes, "sizes", &both)) return false;
  if (!both.empty() && !python::Read(both[0], "sizes", &sizes_)) return false;
  if (both.size() > 1 && !python::Read(both[1], "output_sizes", &output_sizes_)) return false;
  call_.sizes = sizes_;
  call_.output_sizes = output_sizes_;
  return true;
}

KeptCall CollectiveArguments::Keep() {
  const Tensor output = output_.Keep();
  return KeptCall(call_, has_one_tensor_ ? output : input_.Keep(), output);
}

absl::Status Arrays::Read(PyObject* sequence, const char* name, Access access) {
  // Reading may run code of Python, which may change a list.
  const Object kept(PyList_Check(sequence) != 0 ? PyList_AsTuple(sequence)
                                                : Object::Borrowed(sequence).release());
  std::vector<PyObject*> items;
  if (!kept || !python::Read(kept.get(), name, &items)) return TakeException();
  for (PyObject* const item : items) {
    arrays_.push_back(std::make_unique<Array>());
    if (!arrays_.back()->Read(item, name, access)) return TakeException();
    tensors_.push_back(arrays_.back()->tensor());
    if (!stream_.has_value()) stream_ = arrays_.back()->stream();
  }
  return absl::OkStatus();
}

std::vector<Tensor> Arrays::Keep() {
  std::vector<Tensor> kept;
  for (const std::unique_ptr<Array>& array : arrays_) kept.push_back(array->Keep());
  return kept;
}

}  // namespace cohort::python
