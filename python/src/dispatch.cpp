#include <pybind11/stl.h>

#include "python/src/kernel_dispatch.h"
#include "python/src/module.h"
#include "python/src/quick_call.h"

namespace flashcore::python {
namespace {

namespace py = pybind11;

using Problem = std::array<std::int64_t, 4>;
using Ranges = std::array<std::pair<std::int64_t, std::int64_t>, 4>;

AttentionProblems problems_of(const Ranges& ranges) {
  const auto range = [&](std::size_t i) { return LengthRange{ranges[i].first, ranges[i].second}; };
  return {.batch = range(0), .heads = range(1), .q_len = range(2), .kv_len = range(3)};
}

}  // namespace

// What may wait for the compiler, or for the lock of one who does, runs without the GIL.
void bind_dispatch(py::module_& m) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  m.def("tell_of_new_winners", &tell_of_new_winners);
  py::class_<KernelDispatch>(m, "KernelDispatch")
      .def(py::init<std::shared_ptr<JitKernel>, const std::string&, bool, bool,
                    const std::vector<std::pair<std::string, ArrayFit::Shape>>&>(),
           py::arg("home"), py::arg("spec"), py::arg("chooses"), py::arg("tuned"), py::arg("fits"))
      .def("try_launch", &KernelDispatch::try_launch, py::arg("arrays"), py::arg("scalars"),
           py::arg("stream"), py::arg("longest"))
      .def("launch",
           py::overload_cast<const py::tuple&, const py::tuple&, py::handle>(
               &KernelDispatch::launch),
           py::arg("arrays"), py::arg("scalars"), py::arg("stream"))
      .def("asks_for_winners", &KernelDispatch::asks_for_winners)
      .def("take_winners", &KernelDispatch::take_winners, py::arg("table"), Unlocked())
      .def(
          "schedules",
          [](KernelDispatch& dispatch, const Problem& p) {
            return dispatch.schedules({p[0], p[1], p[2], p[3]});
          },
          py::arg("problem"), Unlocked())
      .def(
          "reachable",
          [](KernelDispatch& dispatch, const Ranges& ranges) {
            return dispatch.reachable(problems_of(ranges));
          },
          py::arg("ranges"), Unlocked())
      .def("kernel", &KernelDispatch::kernel, py::arg("schedules"), Unlocked())
      .def("built_kernel", &KernelDispatch::built_kernel, py::arg("schedules"), Unlocked())
      .def("prepare", &KernelDispatch::prepare, py::arg("schedules"), py::arg("device"), Unlocked())
      .def("has_kernel", &KernelDispatch::has_kernel, Unlocked())
      .def("is_building", &KernelDispatch::is_building, Unlocked())
      .def("wait_until_built", &KernelDispatch::wait_until_built, Unlocked());
  m.def(
      "quick_call",
      [](const py::object& dispatch, const py::tuple& arrays, const py::tuple& numbers, float scale,
         std::int64_t value_dim, const py::object& splits, const py::function& make_output) {
        return QuickCall::function(QuickCall(dispatch, {.arrays = arrays,
                                                        .numbers = numbers,
                                                        .scale = scale,
                                                        .value_dim = value_dim,
                                                        .splits = splits,
                                                        .make_output = make_output}));
      },
      py::arg("dispatch"), py::arg("arrays"), py::arg("numbers"), py::arg("scale"),
      py::arg("value_dim"), py::arg("splits"), py::arg("make_output"));
}

}  // namespace flashcore::python
