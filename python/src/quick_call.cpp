#include "python/src/quick_call.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/launch_errors.h"
#include "runtime/overlap.h"

namespace flashcore::python {
namespace {

namespace py = pybind11;

constexpr float least_scale = 0x1p-149F;
constexpr const char* capsule_name = "flashcore.quick_call";

PyObject* nothing() { return Py_NewRef(Py_None); }

PyObject* run_capsule(PyObject* capsule, PyObject* const* arguments, Py_ssize_t count) {
  auto* const call = static_cast<QuickCall*>(PyCapsule_GetPointer(capsule, capsule_name));
  return call == nullptr ? nullptr : call->run(arguments, count);
}

/// A length, if one is given. False where it is none.
bool read_whole(PyObject* given, std::int64_t& length) {
  if (given == Py_None) return true;
  if (!PyLong_CheckExact(given)) return false;
  length = PyLong_AsLongLong(given);
  if (PyErr_Occurred() != nullptr) PyErr_Clear();
  return length >= 0 && length <= std::numeric_limits<int>::max();
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

QuickCall::QuickCall(py::object plain, py::object with_lse, Fixed fixed)
    : owners_{std::move(plain), std::move(with_lse)}, fixed_(std::move(fixed)) {
  for (std::size_t i = 0; i < owners_.size(); ++i)
    if (!owners_[i].is_none()) dispatches_[i] = owners_[i].cast<KernelDispatch*>();
  const AttentionSpec& spec = (dispatches_[0] ? dispatches_[0] : dispatches_[1])->spec();
  is_packed_ = spec.packed();
  has_heads_first_ = spec.layout == TensorLayout::bhsd;
  page_size_ = spec.page_size;
  takes_[at_page_table] = spec.paged();
  takes_[at_longest_keys] = is_packed_ || spec.paged();
  takes_[at_starts] = takes_[at_longest] = is_packed_;
  takes_[at_key_starts] = is_packed_ && !spec.paged();
  takes_[at_q_lens] = spec.q_lens;
  takes_[at_kv_lens] = spec.kv_lens;
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
  const py::handle q = arguments[at_q], out = arguments[at_out], stream = arguments[at_stream];
  const std::optional<float> scale = scale_of(arguments[at_scale]);
  PyObject* const asked = arguments[at_return_lse];
  const bool with_lse = asked == Py_True;
  KernelDispatch* const dispatch = dispatches_[with_lse ? 1 : 0];
  if (dispatch == nullptr || (!with_lse && asked != Py_False)) return py::none();
  ArrayReader reader(stream);
  if (!scale || !reader.is_plain(q)) return py::none();
  Tensors tensors;
  for (int i = 0; i < 3; ++i) {
    TensorView& view = tensors.push({});
    if (!reader.read_plainly(arguments[i], view)) return py::none();
  }
  Lengths lengths;
  if (!read_lengths(arguments, reader, lengths)) return py::none();
  // In CPU memory the numbers themselves are checked.
  if (!lengths.arrays.span().empty() && tensors.span()[0].device < 0) return py::none();
  const bool is_given = !out.is_none();
  const py::object output =
      is_given ? py::reinterpret_borrow<py::object>(out) : output_for(q, tensors.span()[0]);
  TensorView& written = tensors.push({});
  if (!(is_given ? reader.read_plainly(output, written) : reader.read_new(output, written)))
    return py::none();
  py::object lse;
  if (with_lse) {
    if (tensors.span()[0].rank != (is_packed_ ? 3 : 4)) return py::none();
    lse = lse_for(q, tensors.span()[0]);
    if (!reader.read_new(lse, tensors.push({}))) return py::none();
  }
  for (const TensorView& array : lengths.arrays.span()) tensors.push(array);
  for (const py::handle array : fixed_.arrays) {
    if (!reader.read_plainly(array, tensors.push({}))) return py::none();
  }
  if (!dispatch->launches(tensors.span(), lengths.longest)) return py::none();
  InlineList<ScalarValue, LaunchArguments::max_scalars> scalars;
  scalars.push(*scale);
  // No sequence has more rows than all of them: blocks for more would have nothing to do.
  const std::int64_t rows = tensors.span()[0].rank > 0 ? tensors.span()[0].shape[0] : 0;
  if (is_packed_)
    scalars.push(
        static_cast<std::int32_t>(lengths.longest < 0 ? rows : std::min(lengths.longest, rows)));
  const KernelSource& source = dispatch->source();
  for (const py::handle number : fixed_.numbers)
    scalars.push(scalar_of(number, source.scalars[scalars.span().size()]));
  check_outputs_apart(source, tensors.span());
  dispatch->launch(tensors.span(), scalars.span(), reader.stream(), q, stream);
  if (with_lse) return py::make_tuple(output, lse);
  return output;
}

bool QuickCall::read_lengths(PyObject* const* arguments, ArrayReader& reader,
                             Lengths& lengths) const {
  for (int at = at_starts; at < at_return_lse; ++at)
    if (arguments[at] != Py_None && !takes_[at]) return false;
  std::int64_t longest_keys = -1;
  if (!read_whole(arguments[at_longest_keys], longest_keys)) return false;
  for (const int at : {at_page_table, at_starts, at_key_starts, at_q_lens, at_kv_lens}) {
    if (!takes_[at]) continue;
    const bool is_same = at == at_key_starts && arguments[at] == Py_None;
    TensorView& view = lengths.arrays.push({});
    if (!reader.read_plainly(arguments[is_same ? at_starts : at], view)) return false;
    if (view.dtype != DType::i32) return false;
    if (at == at_page_table && longest_keys >= 0 && view.rank == 2)
      view.shape[1] = std::min(view.shape[1], (longest_keys + page_size_ - 1) / page_size_);
  }
  return read_whole(arguments[at_longest], lengths.longest);
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

py::object QuickCall::lse_for(py::handle q, const TensorView& view) const {
  auto shape = view.shape;
  const auto rank = static_cast<std::size_t>(view.rank - 1);
  if (!has_heads_first_) std::swap(shape[rank - 2], shape[rank - 1]);
  if (py::object made = ArrayReader::floats_beside(q, std::span(shape).first(rank))) return made;
  return fixed_.make_lse(q);
}

}  // namespace flashcore::python
