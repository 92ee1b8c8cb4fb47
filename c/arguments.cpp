#include "c/arguments.h"

#include <algorithm>

#include <fmt/format.h>

#include "dsl/error.h"

namespace flashcore::c {
namespace {

DType dtype_of(std::int32_t dtype, std::size_t tensor) {
  if (dtype < FC_F16 || dtype > FC_I1)
    throw SpecError({.what = fmt::format("the dtype of tensor {}", tensor),
                     .why = fmt::format("{} is none of fc_dtype", dtype),
                     .fix = "FC_F16, FC_BF16, ...",
                     .where = {}});
  return static_cast<DType>(dtype);
}

}  // namespace

Arguments::Arguments(std::span<const fc_tensor> given, std::span<const fc_scalar> numbers) {
  for (std::size_t i = 0; i < given.size(); ++i) {
    const fc_tensor& t = given[i];
    if (t.rank < 0 || t.rank > FC_MAX_RANK)
      throw SpecError({.what = fmt::format("the rank of tensor {}", i),
                       .why = fmt::format("it is {}", t.rank),
                       .fix = fmt::format("a number of dimensions up to {}", FC_MAX_RANK),
                       .where = {}});
    if (t.device < FC_CPU)
      throw SpecError({.what = fmt::format("the device of tensor {}", i),
                       .why = fmt::format("it is {}", t.device),
                       .fix = "the ordinal of a GPU, or FC_CPU",
                       .where = {}});
    TensorView view{
        .data = t.data, .dtype = dtype_of(t.dtype, i), .rank = t.rank, .device = t.device};
    std::copy_n(t.shape, max_rank, view.shape.begin());
    std::copy_n(t.strides, max_rank, view.strides.begin());
    tensors.push_back(view);
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i].dtype != FC_F32 && numbers[i].dtype != FC_I32)
      throw SpecError({.what = fmt::format("the dtype of scalar {}", i),
                       .why = fmt::format("it is {}", numbers[i].dtype),
                       .fix = "FC_F32 or FC_I32",
                       .where = {}});
    scalars.push_back(numbers[i].dtype == FC_F32 ? ScalarValue(numbers[i].value.f32)
                                                 : ScalarValue(numbers[i].value.i32));
  }
}

}  // namespace flashcore::c
