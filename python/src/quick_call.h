// A call of attention that needs nothing but a launch: how arrays of a framework with DLPack's C functions
// come to one without Python in between. Everything else is left to the caller.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include <pybind11/pybind11.h>

#include "dsl/inline_list.h"
#include "python/src/arrays.h"
#include "python/src/kernel_dispatch.h"
#include "python/src/launch_arguments.h"
#include "runtime/tensor.h"

namespace flashcore::python {

class QuickCall {
 public:
  /// What is the same at every call.
  struct Fixed {
    pybind11::tuple arrays, numbers;  ///< that expressions captured
    float scale = 1;                  ///< unless a call gives another
    std::int64_t value_dim = 0;       ///< of the output, whose elements are of q's type
    pybind11::function make_output;   ///< beside q
    pybind11::function make_lse;      ///< the same
  };

  /// The KernelDispatch of calls without and with the log-sum-exp. One may be None: such calls are left
  /// to the caller.
  QuickCall(pybind11::object plain, pybind11::object with_lse, Fixed fixed);

  /// A function of Python: (q, k, v, out, scale, stream, cu_seqlens_q, cu_seqlens_k, max_q_len, q_lens,
  /// kv_lens, page_table, max_kv_len, return_lse) as a call has them, to the output, or to that and the
  /// log-sum-exp; or to None, and nothing was done, where there is more to do than a launch or something
  /// is wrong.
  static pybind11::object function(QuickCall call);

  /// A new reference; null with Python's error set where the launch fails.
  PyObject* run(PyObject* const* arguments, Py_ssize_t count) noexcept;

 private:
  using Tensors = InlineList<TensorView, LaunchArguments::max_tensors>;
  enum Argument : std::uint8_t {
    at_q,
    at_k,
    at_v,
    at_out,
    at_scale,
    at_stream,
    at_starts,
    at_key_starts,
    at_longest,
    at_q_lens,
    at_kv_lens,
    at_page_table,
    at_longest_keys,
    at_return_lse,
    argument_count
  };
  /// What a call says of the lengths of sequences.
  struct Lengths {
    InlineList<TensorView, 3> arrays;  ///< that the kernel takes
    std::int64_t longest = -1;         ///< of packed sequences, as the call says
  };

  pybind11::object call(PyObject* const* arguments);
  std::optional<float> scale_of(PyObject* scale) const;
  /// False where a call gives lengths that the spec does not take, or lacks those that it takes. The
  /// most keys of a sequence cut a table of pages; gradients alone need them otherwise.
  bool read_lengths(PyObject* const* arguments, ArrayReader& reader, Lengths& lengths) const;
  pybind11::object output_for(pybind11::handle q, const TensorView& view) const;
  /// [..., heads, rows], of a q of three dimensions or more.
  pybind11::object lse_for(pybind11::handle q, const TensorView& view) const;

  std::array<pybind11::object, 2> owners_;  ///< without and with the log-sum-exp
  std::array<KernelDispatch*, 2> dispatches_{};
  Fixed fixed_;
  bool is_packed_ = false, has_heads_first_ = false;
  int page_size_ = 0;
  std::array<bool, argument_count> takes_{};  ///< lengths
};

}  // namespace flashcore::python
