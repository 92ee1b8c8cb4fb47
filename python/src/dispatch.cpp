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
      .def(py::init([](std::shared_ptr<JitKernel> home, const std::string& spec, bool schedules,
                       bool tuned, bool alternatives,
                       const std::vector<std::pair<std::string, ArrayFit::Shape>>& fits,
                       py::function allocate) {
             const KernelDispatch::Chosen chosen{
                 .schedules = schedules, .tuned = tuned, .alternatives = alternatives};
             return std::make_unique<KernelDispatch>(std::move(home), spec, chosen, fits,
                                                     std::move(allocate));
           }),
           py::arg("home"), py::arg("spec"), py::arg("schedules"), py::arg("tuned"),
           py::arg("alternatives"), py::arg("fits"), py::arg("allocate"))
      .def("try_launch", &KernelDispatch::try_launch, py::arg("arrays"), py::arg("scalars"),
           py::arg("stream"), py::arg("longest"))
      .def("launch",
           py::overload_cast<const py::tuple&, const py::tuple&, py::handle>(
               &KernelDispatch::launch),
           py::arg("arrays"), py::arg("scalars"), py::arg("stream"))
      .def_property_readonly("dispatches", &KernelDispatch::dispatches)
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
      .def(
          "alternative",
          [](KernelDispatch& dispatch, const Problem& p, std::int64_t multiprocessors) {
            return dispatch.alternative({p[0], p[1], p[2], p[3]}, multiprocessors);
          },
          py::arg("problem"), py::arg("multiprocessors"), Unlocked())
      .def("has_alternative", &KernelDispatch::has_alternative, py::arg("number"), Unlocked())
      .def(
          "reachable_alternatives",
          [](KernelDispatch& dispatch, const Ranges& ranges) {
            return dispatch.reachable_alternatives(problems_of(ranges));
          },
          py::arg("ranges"), Unlocked())
      .def(
          "prepare_alternative",
          [](KernelDispatch& dispatch, std::size_t number, int device) {
            const LaunchableModule& module = dispatch.prepare_alternative(number, device);
            std::vector<std::shared_ptr<JitKernel>> kernels;
            for (const LaunchableModule::Kernel& kernel : module.kernels())
              kernels.push_back(std::static_pointer_cast<JitKernel>(kernel));
            return std::pair(module.plan().module(), std::move(kernels));
          },
          py::arg("number"), py::arg("device"), Unlocked())
      .def("kernel", &KernelDispatch::kernel, py::arg("schedules"), Unlocked())
      .def("built_kernel", &KernelDispatch::built_kernel, py::arg("schedules"), Unlocked())
      .def("prepare", &KernelDispatch::prepare, py::arg("schedules"), py::arg("device"), Unlocked())
      .def("has_kernel", &KernelDispatch::has_kernel, Unlocked())
      .def("is_building", &KernelDispatch::is_building, Unlocked())
      .def("wait_until_built", &KernelDispatch::wait_until_built, Unlocked());
  m.def(
      "quick_call",
      [](const py::object& plain, const py::object& with_lse, const py::tuple& arrays,
         const py::tuple& numbers, float scale, std::int64_t value_dim,
         const py::function& make_output, const py::function& make_lse) {
        return QuickCall::function(QuickCall(plain, with_lse,
                                             {.arrays = arrays,
                                              .numbers = numbers,
                                              .scale = scale,
                                              .value_dim = value_dim,
                                              .make_output = make_output,
                                              .make_lse = make_lse}));
      },
      py::arg("plain"), py::arg("with_lse"), py::arg("arrays"), py::arg("numbers"),
      py::arg("scale"), py::arg("value_dim"), py::arg("make_output"), py::arg("make_lse"));
}

}  // namespace flashcore::python
