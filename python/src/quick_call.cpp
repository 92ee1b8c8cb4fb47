#include "python/src/quick_call.h"

#include <utility>

#include "python/src/kept_workspace.h"
#include "runtime/cuda/device.h"
#include "runtime/launch_errors.h"
#include "runtime/overlap.h"

namespace flashcore::python {
namespace {

namespace py = pybind11;

constexpr float least_scale = 0x1p-149F;
constexpr Py_ssize_t argument_count = 6;
constexpr const char* capsule_name = "flashcore.quick_call";

PyObject* nothing() { return Py_NewRef(Py_None); }

PyObject* run_capsule(PyObject* capsule, PyObject* const* arguments, Py_ssize_t count) {
  auto* const call = static_cast<QuickCall*>(PyCapsule_GetPointer(capsule, capsule_name));
  return call == nullptr ? nullptr : call->run(arguments, count);
}

bool is_dense(const TensorView& view) {
  std::int64_t dense = 1;
  for (int dim = view.rank - 1; dim >= 0; --dim) {
    if (view.shape[dim] != 1 && view.strides[dim] != dense) return false;
    dense *= view.shape[dim];
  }
  return dense > 0;
}

}  // namespace

QuickCall::QuickCall(py::object dispatch, Fixed fixed)
    : owner_(std::move(dispatch)),
      dispatch_(owner_.cast<KernelDispatch*>()),
      fixed_(std::move(fixed)),
      heads_first_(dispatch_->spec().layout == TensorLayout::bhsd) {
  if (!fixed_.splits.is_none()) splits_ = fixed_.splits.cast<const SplitModules*>();
}

py::object QuickCall::function(QuickCall call) {
  static PyMethodDef definition{
      "quick_call", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&run_capsule)),
      METH_FASTCALL, nullptr};
  const py::capsule owner(new QuickCall(std::move(call)), capsule_name, [](PyObject* capsule) {
    delete static_cast<QuickCall*>(PyCapsule_GetPointer(capsule, capsule_name));
  });
  return py::reinterpret_steal<py::object>(PyCFunction_New(&definition, owner.ptr()));
}

PyObject* QuickCall::run(PyObject* const* arguments, Py_ssize_t count) noexcept {
  try {
    return count == argument_count ? call(arguments).release().ptr() : nothing();
  } catch (const LayoutError&) {
    return nothing();
  } catch (...) {
    py::detail::try_translate_exceptions();
    return nullptr;
  }
}

py::object QuickCall::call(PyObject* const* arguments) {
  const py::handle q = arguments[0], out = arguments[3], stream = arguments[5];
  const std::optional<float> scale = scale_of(arguments[4]);
  ArrayReader reader(stream);
  if (!scale || !reader.is_plain(q)) return py::none();
  Tensors tensors;
  for (int i = 0; i < 3; ++i) {
    TensorView& view = tensors.push({});
    if (!reader.read_plainly(arguments[i], view)) return py::none();
  }
  const TensorView& view = tensors.span()[0];
  const std::optional<DecodeBlocks> blocks = blocks_of(view, tensors.span()[1]);
  const SplitModules::Entry* const split = blocks ? splits_->find(*blocks) : nullptr;
  // What is queued on a stream of the caller's has its workspaces allocated there.
  if (blocks && !(split && stream.is_none() && ArrayReader::makes_bytes(q))) return py::none();
  const bool is_given = !out.is_none();
  const py::object output =
      is_given ? py::reinterpret_borrow<py::object>(out) : output_for(q, view);
  TensorView& written = tensors.push({});
  if (!(is_given ? reader.read_plainly(output, written) : reader.read_new(output, written)))
    return py::none();
  for (const py::handle array : fixed_.arrays) {
    if (!reader.read_plainly(array, tensors.push({}))) return py::none();
  }
  if (!(split ? dispatch_->fits(tensors.span()) : dispatch_->launches(tensors.span())))
    return py::none();
  InlineList<ScalarValue, LaunchArguments::max_scalars> scalars;
  scalars.push(*scale);
  const KernelSource& source = dispatch_->source();
  for (std::size_t i = 0; i < fixed_.numbers.size(); ++i)
    scalars.push(scalar_of(fixed_.numbers[i], source.scalars[i + 1]));
  check_outputs_apart(source, tensors.span());
  if (split) {
    launch_split(*split, q, tensors.span(), scalars.span(), reader.stream());
  } else {
    dispatch_->launch(tensors.span(), scalars.span(), reader.stream());
  }
  return output;
}

std::optional<float> QuickCall::scale_of(PyObject* scale) const {
  if (scale == Py_None) return fixed_.scale;
  if (!PyFloat_CheckExact(scale)) return std::nullopt;
  const auto number = static_cast<float>(PyFloat_AS_DOUBLE(scale));
  const bool is_usual = number >= least_scale && number <= std::numeric_limits<float>::max();
  return is_usual ? std::optional(number) : std::nullopt;
}

py::object QuickCall::output_for(py::handle q, const TensorView& view) const {
  if (view.rank > 0 && view.shape[view.rank - 1] == fixed_.value_dim && is_dense(view)) {
    if (py::object made = ArrayReader::empty_like(q)) return made;
  }
  return fixed_.make_output(q);
}

std::optional<DecodeBlocks> QuickCall::blocks_of(const TensorView& q, const TensorView& k) const {
  if (splits_ == nullptr || q.device < 0 || q.rank != 4 || k.rank != 4) return std::nullopt;
  const int rows = heads_first_ ? 2 : 1, heads = 3 - rows;
  if (k.shape[rows] < splits_->chooser().least_keys()) return std::nullopt;
  const AttentionProblem problem{.batch = q.shape[0],
                                 .heads = q.shape[heads],
                                 .q_len = q.shape[rows],
                                 .kv_len = k.shape[rows]};
  const int multiprocessors = multiprocessors_of(Driver::get(), q.device);
  return splits_->chooser().choose(problem, multiprocessors, dispatch_->chooser());
}

void QuickCall::launch_split(const SplitModules::Entry& entry, py::handle q,
                             std::span<const TensorView> tensors,
                             std::span<const ScalarValue> scalars, CudaStream stream) const {
  Tensors own;
  for (const std::size_t at : entry.order) own.push(tensors[at]);
  std::optional<KeptWorkspace> workspace;
  entry.module->launch_views(own.span(), scalars, stream, [&](std::size_t bytes) {
    workspace.emplace(q, tensors[0].device, stream, bytes);
    return std::pair(py::object(), workspace->data());
  });
}

}  // namespace flashcore::python
