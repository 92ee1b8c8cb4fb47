#include "dsl/ir/verify_declarations.h"

#include <cctype>
#include <set>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace flashcore::ir {
namespace {

// Words of C++ with the macros of its headers, of CUDA, and the two names that every generated file
// has.
const std::set<std::string_view> reserved_words = {"CHAR_BIT",
                                                   "EOF",
                                                   "FLT_EPSILON",
                                                   "FLT_MAX",
                                                   "FLT_MIN",
                                                   "HUGE_VAL",
                                                   "INFINITY",
                                                   "INT_MAX",
                                                   "INT_MIN",
                                                   "LONG_MAX",
                                                   "LONG_MIN",
                                                   "M_E",
                                                   "M_PI",
                                                   "NAN",
                                                   "NULL",
                                                   "Parameters",
                                                   "RAND_MAX",
                                                   "UINT_MAX",
                                                   "alignas",
                                                   "alignof",
                                                   "and",
                                                   "and_eq",
                                                   "asm",
                                                   "assert",
                                                   "auto",
                                                   "bitand",
                                                   "bitor",
                                                   "blockDim",
                                                   "blockIdx",
                                                   "bool",
                                                   "break",
                                                   "case",
                                                   "catch",
                                                   "char",
                                                   "char16_t",
                                                   "char32_t",
                                                   "char8_t",
                                                   "class",
                                                   "clock_t",
                                                   "co_await",
                                                   "co_return",
                                                   "co_yield",
                                                   "compl",
                                                   "concept",
                                                   "const",
                                                   "const_cast",
                                                   "consteval",
                                                   "constexpr",
                                                   "constinit",
                                                   "continue",
                                                   "decltype",
                                                   "default",
                                                   "defined",
                                                   "delete",
                                                   "dim3",
                                                   "do",
                                                   "double",
                                                   "dynamic_cast",
                                                   "else",
                                                   "enum",
                                                   "errno",
                                                   "explicit",
                                                   "export",
                                                   "extern",
                                                   "false",
                                                   "fc",
                                                   "float",
                                                   "for",
                                                   "friend",
                                                   "goto",
                                                   "gridDim",
                                                   "half",
                                                   "half2",
                                                   "if",
                                                   "inline",
                                                   "int",
                                                   "linux",
                                                   "long",
                                                   "mutable",
                                                   "namespace",
                                                   "new",
                                                   "noexcept",
                                                   "not",
                                                   "not_eq",
                                                   "nullptr",
                                                   "offsetof",
                                                   "operator",
                                                   "or",
                                                   "or_eq",
                                                   "printf",
                                                   "private",
                                                   "protected",
                                                   "public",
                                                   "register",
                                                   "reinterpret_cast",
                                                   "requires",
                                                   "return",
                                                   "short",
                                                   "signed",
                                                   "size_t",
                                                   "sizeof",
                                                   "static",
                                                   "static_assert",
                                                   "static_cast",
                                                   "stderr",
                                                   "stdin",
                                                   "stdout",
                                                   "struct",
                                                   "switch",
                                                   "template",
                                                   "this",
                                                   "threadIdx",
                                                   "thread_local",
                                                   "throw",
                                                   "true",
                                                   "try",
                                                   "typedef",
                                                   "typeid",
                                                   "typename",
                                                   "union",
                                                   "unix",
                                                   "unsigned",
                                                   "using",
                                                   "virtual",
                                                   "void",
                                                   "volatile",
                                                   "warpSize",
                                                   "wchar_t",
                                                   "while",
                                                   "xor",
                                                   "xor_eq"};

/// The names that stand in the generated kernel as they are.
void check_name(std::string_view kind, const std::string& name) {
  bool word = !name.empty() && std::isalpha(static_cast<unsigned char>(name[0])) != 0;
  for (const char c : name)
    word = word && (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_');
  if (!word)
    throw SpecError({fmt::format("{} named \"{}\"", kind, name),
                     "names become identifiers of the generated kernel",
                     "use letters, digits and underscores, a letter first",
                     {}});
  if (reserved_words.contains(name))
    throw SpecError(
        {fmt::format("{} named \"{}\"", kind, name),
         "names become identifiers of the generated kernel, and this one has a meaning there",
         fmt::format("for example {}_", name),
         {}});
}

void check_ragged(const Function& f, const Axis& axis) {
  const bool tiled = axis.kind == AxisKind::tiles || axis.kind == AxisKind::parallel_tiles;
  if (axis.ragged && !tiled)
    throw SpecError({fmt::format("axis {} is {} and ragged", axis.name, name_of(axis.kind)),
                     "only an axis that is cut into tiles covers another part in every block",
                     "use tiles or parallel_tiles",
                     {}});
  if (axis.longest.empty()) return;
  if (!axis.ragged || axis.kind != AxisKind::parallel_tiles)
    throw SpecError({fmt::format("axis {} with a longest part of {}", axis.name, axis.longest),
                     "it sizes the grid along a ragged axis of parallel_tiles",
                     "leave it out",
                     {}});
  for (const Parameter& parameter : f.parameters)
    if (parameter.name == axis.longest && parameter.dtype == DType::i32) return;
  throw SpecError({fmt::format("axis {} with a longest part of {}", axis.name, axis.longest),
                   "no i32 scalar has this name",
                   "declare it",
                   {}});
}

void check_axis(const Function& f, const Axis& axis) {
  check_ragged(f, axis);
  if (axis.kind == AxisKind::whole && !axis.extent.is_static())
    throw SpecError({fmt::format("axis {} is whole and {} long", axis.name, axis.extent.text()),
                     "a whole axis has a constant length",
                     "use a number, or tiles",
                     {}});
  if (axis.extent.is_static()) return;
  for (const Tensor& tensor : f.tensors)
    for (const Extent& dim : tensor.dims)
      if (dim.name == axis.extent.name) return;
  throw SpecError(
      {fmt::format("no tensor has the length {} of axis {}", axis.extent.text(), axis.name),
       "a named length is read off the shapes of the tensors",
       "use a constant length",
       {}});
}

/// Arguments, lengths and strides are fields of one struct of the generated kernel.
void check_fields(const Function& f) {
  std::set<std::string> fields{"tile_counter"}, lengths;
  const auto declare = [&](const std::string& name) {
    if (!fields.insert(name).second)
      throw SpecError(
          {fmt::format("two arguments named {}", name),
           "tensors, their lengths and strides (<tensor>_stride_0, ...) and scalars are "
           "arguments of one kernel",
           "rename one",
           {}});
  };
  for (const Tensor& tensor : f.tensors) {
    declare(tensor.name);
    for (std::size_t d = 0; d < tensor.dims.size(); ++d) {
      declare(fmt::format("{}_stride_{}", tensor.name, d));
      const Extent& dim = tensor.dims[d];
      if (!dim.is_static() && lengths.insert(dim.name).second) declare(dim.name);
    }
  }
  for (const Parameter& parameter : f.parameters) declare(parameter.name);
}

}  // namespace

bool is_reserved_word(std::string_view name) { return reserved_words.contains(name); }

void verify_declarations(const Function& f) {
  std::set<std::string> arguments, buffers;
  auto declare = [](std::set<std::string>& names, const std::string& name) {
    if (!names.insert(name).second)
      throw SpecError({fmt::format("two declarations of {}", name),
                       "axes, arguments and buffers are found by name",
                       "rename one",
                       {}});
  };
  check_name("a program", f.name);
  for (const Axis& axis : f.axes) {
    declare(arguments, axis.name);
    check_axis(f, axis);
  }
  for (const Tensor& tensor : f.tensors) {
    declare(arguments, tensor.name);
    check_name("a tensor", tensor.name);
    for (const Extent& dim : tensor.dims)
      if (!dim.is_static()) check_name("a length", dim.name);
    if (!tensor.gathered && (!is_tile_type(tensor.dtype) || tensor.dtype == DType::i1))
      throw SpecError({fmt::format("tensor {} of type {}", tensor.name, name_of(tensor.dtype)),
                       "tiles are loaded from and stored to f16, bf16, f32 and i32",
                       "use one of them, or gather from a gathered input",
                       {}});
    if (tensor.gathered && tensor.output)
      throw SpecError({fmt::format("output {} is gathered", tensor.name),
                       "only inputs are read at computed positions",
                       "declare it as an input",
                       {}});
    if (tensor.gathered && tensor.dims.empty())
      throw SpecError({fmt::format("gathered input {} without dimensions", tensor.name),
                       "a tensor argument has at least one",
                       "pass it with one dimension of length 1",
                       {}});
  }
  for (const Parameter& parameter : f.parameters) {
    declare(arguments, parameter.name);
    check_name("a scalar", parameter.name);
    if (parameter.dtype != DType::f32 && parameter.dtype != DType::i32)
      throw SpecError(
          {fmt::format("parameter {} of type {}", parameter.name, name_of(parameter.dtype)),
           "scalar arguments are f32 or i32",
           "use one of them",
           {}});
  }
  check_fields(f);
  for (const Buffer& buffer : f.buffers) {
    declare(buffers, buffer.name);
    if (buffer.rows < 1 || buffer.columns < 1 || buffer.stages < 1)
      throw SpecError({fmt::format("buffer {} of {} slots of {} x {}", buffer.name, buffer.stages,
                                   buffer.rows, buffer.columns),
                       "every number is at least 1",
                       "",
                       {}});
  }
}

}  // namespace flashcore::ir
