#include <algorithm>
#include <array>

#include "codegen/text/names.h"

namespace flashcore {
namespace {

// clang-format off

// Words of C++ with the macros of its headers, of CUDA, and the two names that every generated file
// has.
constexpr auto words = std::to_array<std::string_view>({
    "CHAR_BIT", "EOF", "FLT_EPSILON", "FLT_MAX", "FLT_MIN", "HUGE_VAL", "INFINITY", "INT_MAX",
    "INT_MIN", "LONG_MAX", "LONG_MIN", "M_E", "M_PI", "NAN", "NULL", "Parameters", "RAND_MAX",
    "UINT_MAX", "alignas", "alignof", "and", "and_eq", "asm", "assert", "auto", "bitand", "bitor",
    "blockDim", "blockIdx", "bool", "break", "case", "catch", "char", "char16_t", "char32_t",
    "char8_t", "class", "clock_t", "co_await", "co_return", "co_yield", "compl", "concept", "const",
    "const_cast", "consteval", "constexpr", "constinit", "continue", "decltype", "default",
    "defined", "delete", "dim3", "do", "double", "dynamic_cast", "else", "enum", "errno",
    "explicit", "export", "extern", "false", "fc", "float", "for", "friend", "goto", "gridDim",
    "half", "half2", "if", "import", "inline", "int", "linux", "long", "module", "mutable",
    "namespace", "new", "noexcept", "not", "not_eq", "nullptr", "offsetof", "operator", "or",
    "or_eq", "printf", "private", "protected", "public", "register", "reinterpret_cast", "requires",
    "return", "short", "signed", "size_t", "sizeof", "static", "static_assert", "static_cast",
    "stderr", "stdin", "stdout", "struct", "switch", "template", "this", "threadIdx",
    "thread_local", "throw", "true", "try", "typedef", "typeid", "typename", "typeof", "union",
    "unix", "unsigned", "using", "virtual", "void", "volatile", "warpSize", "wchar_t", "while",
    "xor", "xor_eq",
});

// Mathematical functions of C; with an f behind the name they are those of float.
constexpr auto mathematics = std::to_array<std::string_view>({
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos",
    "cosh", "cospi", "cyl_bessel_i0", "cyl_bessel_i1", "erf", "erfc", "erfcinv", "erfcx", "erfinv",
    "exp", "exp10", "exp2", "expm1", "fabs", "fdim", "floor", "fma", "fmax", "fmin", "fmod",
    "frexp", "hypot", "ilogb", "j0", "j1", "jn", "ldexp", "lgamma", "llrint", "llround", "log",
    "log10", "log1p", "log2", "logb", "lrint", "lround", "modf", "nan", "nearbyint", "nextafter",
    "norm", "norm3d", "norm4d", "normcdf", "normcdfinv", "pow", "rcbrt", "remainder", "remquo",
    "rhypot", "rint", "rnorm", "rnorm3d", "rnorm4d", "round", "rsqrt", "scalbln", "scalbn", "sin",
    "sincos", "sincospi", "sinh", "sinpi", "sqrt", "tan", "tanh", "tgamma", "trunc", "y0", "y1",
    "yn",
});

// What else CUDA and the C library declare, what a host compiler calls by itself, and a word of
// PTX.
constexpr auto declared = std::to_array<std::string_view>({
    "MAJOR_VERSION", "MINOR_VERSION", "PATCH_LEVEL", "WARP_SZ", "abort", "abs", "clock", "clock64",
    "free", "labs", "libraryPropertyType", "llabs", "llmax", "llmin", "main", "malloc", "max",
    "memcmp", "memcpy", "memmove", "memset", "min", "nanosleep", "nullptr_t", "ptrdiff_t",
    "saturate", "std", "ullmax", "ullmin", "umax", "umin", "va_arg", "va_copy", "va_end", "va_list",
    "va_start",
});

// clang-format on

// Families of macros and types, and the names of the prelude's own.
constexpr std::array<std::string_view, 7> prefixes{"CU",  "NV_", "FC_",       "cuda",
                                                   "fc_", "_",   "flashcore_"};

static_assert(std::ranges::is_sorted(words) && std::ranges::is_sorted(mathematics) &&
              std::ranges::is_sorted(declared));

template <class Sorted>
bool holds(const Sorted& sorted, std::string_view name) {
  return std::binary_search(sorted.begin(), sorted.end(), name);
}

}  // namespace

bool is_reserved(std::string_view name) {
  return holds(words, name) || std::any_of(prefixes.begin(), prefixes.end(),
                                           [&](auto prefix) { return name.starts_with(prefix); });
}

bool is_declared_outside(std::string_view name) {
  return holds(declared, name) || holds(mathematics, name) ||
         (name.ends_with('f') && holds(mathematics, name.substr(0, name.size() - 1)));
}

}  // namespace flashcore
