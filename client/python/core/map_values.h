// Dicts of Python as tensor maps, and tensor maps as dicts.
#ifndef COHORT_CLIENT_PYTHON_CORE_MAP_VALUES_H_
#define COHORT_CLIENT_PYTHON_CORE_MAP_VALUES_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "client/parallel/tensor_map/tensor_map.h"
#include "client/python/core/array.h"
#include "client/python/core/python_api.h"

namespace cohort::python {

// A dict as a tensor map, for one call. Arrays are not copied; it keeps them alive.
class MapArgument {
 public:
  // Errors: INVALID_ARGUMENT (a value or a key cannot be sent; names the path to it, such as
  // tensor_dict['a'][2]), RESOURCE_EXHAUSTED (above the limits of entries.h). No exception is left.
  absl::Status Read(PyObject* dict);
  const parallel::TensorMap& map() const { return map_; }
  // As Array::stream, of the first array that is on a GPU.
  std::optional<void*> stream() const;

 private:
  std::vector<std::unique_ptr<Array>> arrays_;
  parallel::TensorMap map_;
};

// Returns the map as a dict; null with an exception. An array is what `make_array(memory, number of
// its type)` returns.
PyObject* WriteMap(const parallel::TensorMap& map, PyObject* make_array);

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_MAP_VALUES_H_
