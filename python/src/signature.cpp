#include "python/src/signature.h"

namespace flashcore::python {

namespace py = pybind11;

py::list tensors_of(const KernelSource& source) {
  py::list tensors;
  for (const TensorArgument& tensor : source.tensors) {
    py::list dims;
    for (const Extent& extent : tensor.dims) {
      if (extent.is_static()) {
        dims.append(extent.value);
      } else {
        dims.append(extent.text());
      }
    }
    tensors.append(py::make_tuple(tensor.name, std::string(name_of(tensor.dtype)), tensor.output,
                                  py::tuple(dims)));
  }
  return tensors;
}

py::list scalars_of(const KernelSource& source) {
  py::list scalars;
  for (const ScalarArgument& scalar : source.scalars)
    scalars.append(
        py::make_tuple(scalar.name, std::string(name_of(scalar.dtype)), scalar.positive));
  return scalars;
}

}  // namespace flashcore::python
