// The vectorcall protocol (PEP 590). A call of an object of Python whose class has a `__call__` packs
// the arguments into a tuple and a dictionary, unpacks them again and starts a frame: nearly half a
// microsecond, as long as all that a launch needs before the driver.
#include "python/src/quick_callable.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include <structmember.h>

namespace flashcore::python {
namespace {

namespace py = pybind11;

struct Callable {
  PyObject ob_base;
  vectorcallfunc vectorcall;
  PyObject* quick;
};

constexpr std::size_t positional = 3;  // q, k, v
/// In the order of QuickCall's arguments.
constexpr std::array<const char*, 11> passed_on{
    "out",    "scale",   "stream",     "cu_seqlens_q", "cu_seqlens_k", "max_q_len",
    "q_lens", "kv_lens", "page_table", "max_kv_len",   "return_lse"};
/// Keywords of which this value asks for nothing.
struct Ignored {
  const char* name;
  bool is_false, is_none;
};
constexpr std::array<Ignored, 2> ignored{{{"captured", false, true}, {"checked", true, true}}};

using Names = std::array<PyObject*, passed_on.size() + ignored.size()>;
using Arguments = std::array<PyObject*, positional + passed_on.size()>;

/// The keywords as compiled code has them: names in source text are interned. One that is not is left
/// to Python.
const Names& names() {
  static const Names made = [] {
    Names every{};
    for (std::size_t i = 0; i < every.size(); ++i)
      every[i] = PyUnicode_InternFromString(
          i < passed_on.size() ? passed_on[i] : ignored[i - passed_on.size()].name);
    return every;
  }();
  return made;
}

/// As `_quick` takes them; false where a call asks for more.
bool read(PyObject* const* given, std::size_t count, PyObject* keywords, Arguments& arguments) {
  if (count != positional) return false;
  std::copy_n(given, positional, arguments.begin());
  std::fill(arguments.begin() + positional, arguments.end(), Py_None);
  arguments.back() = Py_False;  // return_lse
  const Py_ssize_t named = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
  for (Py_ssize_t i = 0; i < named; ++i) {
    PyObject* const value = given[positional + static_cast<std::size_t>(i)];
    const auto found =
        std::find(names().begin(), names().end(), PyTuple_GET_ITEM(keywords, i)) - names().begin();
    const auto at = static_cast<std::size_t>(found);
    if (at < passed_on.size()) {
      arguments[positional + at] = value;
      continue;
    }
    if (at == names().size()) return false;
    const Ignored& keyword = ignored[at - passed_on.size()];
    if (!(keyword.is_false && value == Py_False) && !(keyword.is_none && value == Py_None))
      return false;
  }
  return arguments.back() == Py_True || arguments.back() == Py_False;
}

/// Calls the `__call__` of the object's class.
PyObject* call_in_python(PyObject* self, PyObject* const* given, std::size_t count,
                         PyObject* keywords) {
  static PyObject* const name = PyUnicode_InternFromString("__call__");
  const auto named = keywords == nullptr ? 0 : static_cast<std::size_t>(PyTuple_GET_SIZE(keywords));
  std::vector<PyObject*> arguments{self};
  arguments.insert(arguments.end(), given, given + count + named);
  return PyObject_VectorcallMethod(name, arguments.data(), count + 1, keywords);
}

PyObject* call(PyObject* self, PyObject* const* given, std::size_t flagged_count,
               PyObject* keywords) noexcept {
  const auto count = static_cast<std::size_t>(PyVectorcall_NARGS(flagged_count));
  PyObject* const quick = reinterpret_cast<Callable*>(self)->quick;
  Arguments arguments;
  if (quick != nullptr && quick != Py_None && read(given, count, keywords, arguments)) {
    // Another thread may put another one in its place while a launch has let go of the GIL.
    const auto kept = py::reinterpret_borrow<py::object>(quick);
    PyObject* const result =
        PyObject_Vectorcall(quick, arguments.data(), arguments.size(), nullptr);
    if (result != Py_None) return result;
    Py_DECREF(result);
  }
  return call_in_python(self, given, count, keywords);
}

PyObject* make(PyTypeObject* type, PyObject* /*arguments*/, PyObject* /*keywords*/) {
  PyObject* const made = type->tp_alloc(type, 0);
  if (made != nullptr) reinterpret_cast<Callable*>(made)->vectorcall = &call;
  return made;
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(reinterpret_cast<Callable*>(self)->quick);
  return 0;
}

int clear(PyObject* self) {
  Py_CLEAR(reinterpret_cast<Callable*>(self)->quick);
  return 0;
}

void destroy(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  (void)clear(self);
  type->tp_free(self);
  Py_DECREF(type);
}

/// A class with a `__call__` of its own has lost the flag that tells the interpreter of the protocol.
void let_call_quickly(PyTypeObject* type) {
  type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
  PyType_Modified(type);
}

}  // namespace

void bind_quick_callable(py::module_& m) {
  static PyMemberDef members[] = {
      {"__vectorcalloffset__", T_PYSSIZET, offsetof(Callable, vectorcall), READONLY, nullptr},
      {"_quick", T_OBJECT, offsetof(Callable, quick), 0, nullptr},
      {}};
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(&make)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(&destroy)},
                                {Py_tp_traverse, reinterpret_cast<void*>(&traverse)},
                                {Py_tp_clear, reinterpret_cast<void*>(&clear)},
                                {Py_tp_members, members},
                                {}};
  static PyType_Spec spec{.name = "flashcore._core.QuickCallable",
                          .basicsize = sizeof(Callable),
                          .itemsize = 0,
                          .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                          .slots = slots};
  const auto base = py::reinterpret_steal<py::object>(PyType_FromSpec(&spec));
  if (!base) throw py::error_already_set();
  m.attr("QuickCallable") = base;
  m.def(
      "calls_quickly",
      [base](py::type type) {
        auto* const made = reinterpret_cast<PyTypeObject*>(type.ptr());
        if (PyType_IsSubtype(made, reinterpret_cast<PyTypeObject*>(base.ptr())) == 0)
          throw py::type_error("calls_quickly takes a class below QuickCallable");
        let_call_quickly(made);
        return type;
      },
      py::arg("type"));
}

}  // namespace flashcore::python
