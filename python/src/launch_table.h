// Which kernel a call launches, by the shapes of its arrays: what a call costs once its shapes were
// met is one look into this table.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <pybind11/pybind11.h>

#include "python/src/jit_kernel.h"

namespace flashcore::python {

/// Kernels of one program. Needs the GIL, which is also what keeps it whole.
class LaunchTable {
 public:
  /// `first` is one of the kernels, and the only one if it is `for_all` shapes.
  LaunchTable(pybind11::object first, bool for_all);

  /// Launches the kernel that was added for arrays of these shapes, and for `also`: another number
  /// that the choice depends on. False where there is none, or where it takes the arrays by a copy
  /// only; nothing is launched then.
  bool launch(const pybind11::tuple& arrays, const pybind11::tuple& scalars,
              pybind11::handle stream, std::int64_t also);

  /// `kernel` is what launch() takes for these arguments from now on. A full table starts over.
  void add(const pybind11::tuple& arrays, const pybind11::tuple& scalars, std::int64_t also,
           pybind11::object kernel);

 private:
  static constexpr std::size_t most_shapes = 4096;

  using Shapes = std::vector<std::int64_t>;
  struct Hash {
    std::size_t operator()(const Shapes& shapes) const;
  };
  struct Held {
    explicit Held(pybind11::object of) : owner(std::move(of)), kernel(owner.cast<JitKernel*>()) {}
    pybind11::object owner;
    JitKernel* kernel;
  };

  const Shapes& shapes_of(std::span<const TensorView> tensors, std::int64_t also);

  Held first_;
  bool for_all_;
  std::unordered_map<Shapes, Held, Hash> kernels_;
  Shapes asked_;  ///< of the call at hand, kept for its memory
};

}  // namespace flashcore::python
