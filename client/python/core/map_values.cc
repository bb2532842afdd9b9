#include "client/python/core/map_values.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "client/parallel/tensor_map/entries/entries.h"
#include "client/python/core/collective_arguments.h"
#include "client/python/core/convert.h"

namespace cohort::python {
namespace {

using parallel::TensorMap;
using parallel::Value;

// Keys in errors are cut after so many bytes.
constexpr size_t kMostKeyBytes = 64;

std::string TextOf(PyObject* owned) {
  const Object object(owned);
  std::string text = "?";
  if (object) Read(object.get(), "text", &text);
  PyErr_Clear();
  return text;
}

// Reads the values of one dict. Reading may run code of Python, which may change the containers. So
// each container is read from a snapshot, which keeps its items.
class MapReader {
 public:
  explicit MapReader(std::vector<std::unique_ptr<Array>>& arrays) : arrays_(arrays) {}

  absl::StatusOr<TensorMap> ReadMap(PyObject* dict) {
    COHORT_RETURN_IF_ERROR(Enter());
    const Object items(PyDict_Items(dict));
    if (!items) return Refuse(TakeException().message());
    const Py_ssize_t size = PyList_Size(items.get());
    TensorMap map;
    map.Reserve(static_cast<size_t>(size));
    for (Py_ssize_t i = 0; i < size; ++i) {
      PyObject* const item = PyList_GetItem(items.get(), i);
      PyObject* const key = PyTuple_GetItem(item, 0);
      path_.push_back({key, 0});
      std::string text;
      if (!PyUnicode_Check(key)) {
        return Refuse(absl::StrCat("expected a str as key, got ", TypeOf(key)));
      }
      if (!Read(key, "the key", &text)) return Refuse(TakeException().message());
      COHORT_RETURN_IF_ERROR(CountBytes(text.size()));
      COHORT_ASSIGN_OR_RETURN(Value value, ReadValue(PyTuple_GetItem(item, 1)));
      map.Set(text, std::move(value));
      path_.pop_back();
    }
    --depth_;
    return map;
  }

  absl::Status Refuse(absl::string_view why) const {
    return absl::InvalidArgumentError(absl::StrCat(PathText(), ": ", why));
  }

  static std::string TypeOf(PyObject* object) {
    return TextOf(PyObject_Str(reinterpret_cast<PyObject*>(Py_TYPE(object))));
  }

 private:
  struct Step {
    PyObject* key;  // borrowed from a snapshot; null: an item of a list
    Py_ssize_t index;
  };

  std::string PathText() const {
    std::string text = "tensor_dict";
    for (const Step& step : path_) {
      if (step.key == nullptr) {
        absl::StrAppend(&text, "[", step.index, "]");
        continue;
      }
      std::string key = TextOf(PyObject_Repr(step.key));
      if (key.size() > kMostKeyBytes) key = absl::StrCat(key.substr(0, kMostKeyBytes), "...");
      absl::StrAppend(&text, "[", key, "]");
    }
    return text;
  }

  absl::Status Enter() {
    if (++depth_ <= parallel::kMaxDepth) return absl::OkStatus();
    return Refuse(absl::StrCat("is nested deeper than ", parallel::kMaxDepth,
                               " dicts and lists, or contains itself"));
  }
  absl::Status TooMuch(absl::string_view what, int64_t most) const {
    return absl::ResourceExhaustedError(
        absl::StrCat(PathText(), ": more than ", most, " ", what, " in the dict"));
  }
  // A value may occur in several places: so few objects may stand for very many.
  absl::Status CountBytes(size_t bytes) {
    bytes_ += static_cast<int64_t>(bytes);
    if (bytes_ <= parallel::kMaxEntryBytes) return absl::OkStatus();
    return TooMuch("bytes of keys, str and bytes", parallel::kMaxEntryBytes);
  }

  absl::StatusOr<Value> ReadValue(PyObject* from) {
    if (++values_ > parallel::kMaxValues) return TooMuch("values", parallel::kMaxValues);
    if (from == Py_None) return Value();
    if (PyBool_Check(from)) return Value(from == Py_True);
    if (PyLong_Check(from)) return ReadInt(from);
    if (PyFloat_Check(from)) return Value(PyFloat_AsDouble(from));
    if (PyUnicode_Check(from)) return ReadText(from);
    if (PyBytes_Check(from)) return ReadBytes(from);
    if (PyDict_Check(from)) {
      COHORT_ASSIGN_OR_RETURN(TensorMap map, ReadMap(from));
      return Value(std::move(map));
    }
    if (PyList_Check(from)) return ReadList(from);
    return ReadArray(from);
  }

  absl::StatusOr<Value> ReadInt(PyObject* from) {
    int overflow = 0;
    const int64_t number = PyLong_AsLongLongAndOverflow(from, &overflow);
    if (overflow != 0) return Refuse("an int of more than 64 bits");
    return Value(number);
  }

  absl::StatusOr<Value> ReadText(PyObject* from) {
    std::string text;
    if (!Read(from, "the str", &text)) return Refuse(TakeException().message());
    COHORT_RETURN_IF_ERROR(CountBytes(text.size()));
    return Value(std::move(text));
  }

  absl::StatusOr<Value> ReadBytes(PyObject* from) {
    COHORT_RETURN_IF_ERROR(CountBytes(static_cast<size_t>(PyBytes_Size(from))));
    return Value(parallel::Bytes{
        std::string(PyBytes_AsString(from), static_cast<size_t>(PyBytes_Size(from)))});
  }

  absl::StatusOr<Value> ReadList(PyObject* from) {
    COHORT_RETURN_IF_ERROR(Enter());
    const Object items(PyList_AsTuple(from));
    if (!items) return Refuse(TakeException().message());
    const Py_ssize_t size = PyTuple_Size(items.get());
    parallel::List list;
    path_.push_back({nullptr, 0});
    for (Py_ssize_t i = 0; i < size; ++i) {
      path_.back().index = i;
      COHORT_ASSIGN_OR_RETURN(Value value, ReadValue(PyTuple_GetItem(items.get(), i)));
      list.push_back(std::move(value));
    }
    path_.pop_back();
    --depth_;
    return Value(std::move(list));
  }

  absl::StatusOr<Value> ReadArray(PyObject* from) {
    auto array = std::make_unique<Array>();
    if (!array->Read(from, "array", Access::kRead)) {
      const bool is_array =
          PyErr_ExceptionMatches(PyExc_TypeError) == 0 ||
          PyObject_HasAttrString(from, "__dlpack__") != 0;
      const absl::Status why = TakeException();
      // The lines after the first are a stack of PyTorch.
      const absl::string_view text = why.message().substr(0, why.message().find('\n'));
      if (is_array) return Refuse(absl::StripPrefix(text, "array: "));
      return Refuse(absl::StrCat(
          "expected None, a bool, int, float, str, bytes, list, dict, array or tensor, got ",
          TypeOf(from)));
    }
    arrays_.push_back(std::move(array));
    return Value(arrays_.back()->tensor());
  }

  std::vector<std::unique_ptr<Array>>& arrays_;
  std::vector<Step> path_;
  int depth_ = 0;
  int64_t values_ = 0;
  int64_t bytes_ = 0;
};

// Bytes of other programs that are not UTF-8 stay apart, so different keys stay different.
PyObject* WriteKey(absl::string_view text) {
  return PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape");
}

PyObject* WriteArray(const Tensor& tensor, PyObject* make_array) {
  const Object memory(WriteMemory(tensor));
  const Object type(Write(static_cast<int>(tensor.type())));
  if (!memory || !type) return nullptr;
  return PyObject_CallFunctionObjArgs(make_array, memory.get(), type.get(), nullptr);
}

PyObject* WriteValue(const Value& value, PyObject* make_array) {
  switch (value.kind()) {
    case parallel::ValueKind::kNull:
      return WriteNone();
    case parallel::ValueKind::kBool:
      return Write(*value.As<bool>());
    case parallel::ValueKind::kInt:
      return Write(*value.As<int64_t>());
    case parallel::ValueKind::kDouble:
      return Write(*value.As<double>());
    case parallel::ValueKind::kText:
      return WriteKey(*value.As<std::string>());
    case parallel::ValueKind::kBytes:
      return WriteBytes(value.As<parallel::Bytes>()->data);
    case parallel::ValueKind::kList:
      return WriteList(*value.As<parallel::List>(),
                       [&](const Value& item) { return WriteValue(item, make_array); });
    case parallel::ValueKind::kTensor:
      return WriteArray(*value.As<Tensor>(), make_array);
    case parallel::ValueKind::kMap:
      return WriteMap(*value.As<TensorMap>(), make_array);
  }
  PyErr_SetString(PyExc_SystemError, "a value of a tensor map has an unknown kind");
  return nullptr;
}

}  // namespace

absl::Status MapArgument::Read(PyObject* dict) {
  MapReader reader(arrays_);
  if (!PyDict_Check(dict)) {
    return reader.Refuse(absl::StrCat("expected a dict, got ", MapReader::TypeOf(dict)));
  }
  COHORT_ASSIGN_OR_RETURN(map_, reader.ReadMap(dict));
  return absl::OkStatus();
}

std::optional<void*> MapArgument::stream() const {
  for (const std::unique_ptr<Array>& array : arrays_) {
    if (array->stream().has_value()) return array->stream();
  }
  return std::nullopt;
}

PyObject* WriteMap(const TensorMap& map, PyObject* make_array) {
  Object dict(PyDict_New());
  if (!dict) return nullptr;
  for (const TensorMap::Entry& entry : map) {
    const Object key(WriteKey(entry.key));
    const Object value(key ? WriteValue(entry.value, make_array) : nullptr);
    if (!value || PyDict_SetItem(dict.get(), key.get(), value.get()) != 0) return nullptr;
  }
  return dict.release();
}

}  // namespace cohort::python
