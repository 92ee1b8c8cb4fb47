// A call of attention that needs nothing but a launch: how arrays of a framework with DLPack's C functions
// come to one without Python in between. Everything else is left to the caller.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include <pybind11/pybind11.h>

#include "dsl/inline_list.h"
#include "python/src/arrays.h"
#include "python/src/kernel_dispatch.h"
#include "python/src/launch_arguments.h"
#include "python/src/split_modules.h"
#include "runtime/tensor.h"

namespace flashcore::python {

class QuickCall {
 public:
  /// What is the same at every call.
  struct Fixed {
    pybind11::tuple arrays, numbers;  ///< that expressions captured
    float scale = 1;                  ///< unless a call gives another
    std::int64_t value_dim = 0;       ///< of the output, whose elements are of q's type
    pybind11::object splits;          ///< the SplitModules, or None where keys are never split
    pybind11::function make_output;   ///< beside q
  };

  /// `dispatch` is a KernelDispatch.
  QuickCall(pybind11::object dispatch, Fixed fixed);

  /// A function of Python: (q, k, v, out, scale, stream) as a call has them, to the output; or to
  /// None, and nothing was done, where there is more to do than a launch or something is wrong.
  static pybind11::object function(QuickCall call);

  /// A new reference; null with Python's error set where the launch fails.
  PyObject* run(PyObject* const* arguments, Py_ssize_t count) noexcept;

 private:
  using Tensors = InlineList<TensorView, LaunchArguments::max_tensors>;

  pybind11::object call(PyObject* const* arguments);
  std::optional<float> scale_of(PyObject* scale) const;
  pybind11::object output_for(pybind11::handle q, const TensorView& view) const;
  /// How the keys of a call are split, if they are.
  [[nodiscard]] std::optional<DecodeBlocks> blocks_of(const TensorView& q,
                                                      const TensorView& k) const;
  void launch_split(const SplitModules::Entry& entry, pybind11::handle q,
                    std::span<const TensorView> tensors, std::span<const ScalarValue> scalars,
                    CudaStream stream) const;

  pybind11::object owner_;
  KernelDispatch* dispatch_;
  const SplitModules* splits_ = nullptr;
  Fixed fixed_;
  bool heads_first_;
};

}  // namespace flashcore::python
