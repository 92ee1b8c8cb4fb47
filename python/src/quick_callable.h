// A base of Python classes of which most calls need no Python: what an interpreter calls is C++, from
// the arguments as they lie on its stack.
#pragma once

#include <pybind11/pybind11.h>

namespace flashcore::python {

/// The class QuickCallable, and the function calls_quickly that a class below it is handed to once it
/// is made. Its calls as (q, k, v), with no keyword that asks for more than a launch, are those of
/// the object's attribute `_quick` (QuickCall::function). Where that is None, or returns it, and for
/// all other calls the class has its own `__call__`, as ever.
void bind_quick_callable(pybind11::module_& m);

}  // namespace flashcore::python
