#include "runtime/launch_errors.h"

#include <limits>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dsl/error.h"

namespace flashcore {
namespace {

template <class List>
std::string names_of(const List& list) {
  std::vector<std::string> names;
  for (const auto& item : list) names.push_back(item.name);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

std::string shape_of(const TensorView& view) {
  return fmt::format("[{}]", fmt::join(view.shape.begin(), view.shape.begin() + view.rank, ", "));
}

constexpr const char* other_than_map = "a contiguous copy, or a schedule with copy = cp_async";

std::string place_of(int device) {
  if (device == no_device) return "on no device (it has a shape and no memory)";
  return device < 0 ? "in CPU memory" : fmt::format("on GPU {}", device);
}

}  // namespace

Complaint LaunchRefusal::complaint(std::string what, std::string why, std::string fix) const {
  return {.what = fmt::format("{}: {}", source_.name, what),
          .why = std::move(why),
          .fix = std::move(fix),
          .where = {}};
}

void LaunchRefusal::refuse(std::string what, std::string why, std::string fix) const {
  throw DeviceError(complaint(std::move(what), std::move(why), std::move(fix)));
}

void LaunchRefusal::refuse_given(std::string what, std::string why, std::string fix) const {
  throw SpecError(complaint(std::move(what), std::move(why), std::move(fix)));
}

void LaunchRefusal::refuse_layout(int tensor, std::string what, std::string why,
                                  std::string fix) const {
  throw LayoutError(complaint(std::move(what), std::move(why), std::move(fix)), tensor);
}

// "[B = 2, H = 8, Sk, 128]": what the tensors before this one have already settled is filled in.
std::string LaunchRefusal::expected_shape(int tensor) const {
  std::vector<std::string> parts;
  for (const Extent& extent : source_.tensors[tensor].dims) {
    std::string part = extent.text();
    const std::string open = part;
    for (int other = 0; !extent.is_static() && other < tensor && part == open; ++other) {
      const std::vector<Extent>& dims = source_.tensors[other].dims;
      for (std::size_t dim = 0; dim < dims.size() && part == open; ++dim) {
        if (dims[dim] == extent) part += fmt::format(" = {}", tensors_[other].shape[dim]);
      }
    }
    parts.push_back(std::move(part));
  }
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

void LaunchRefusal::tensor_count() const {
  refuse_given("wrong number of tensors",
               fmt::format("{} were given, it takes {}: {}", tensors_.size(),
                           source_.tensors.size(), names_of(source_.tensors)),
               "pass inputs and outputs in this order");
}

void LaunchRefusal::scalar_count(std::size_t given) const {
  refuse_given("wrong number of scalars",
               fmt::format("{} were given, it takes {}: {}", given, source_.scalars.size(),
                           names_of(source_.scalars)),
               "pass them in this order");
}

void LaunchRefusal::dtype(int tensor) const {
  const TensorArgument& argument = source_.tensors[tensor];
  refuse_given(
      fmt::format("{} has the wrong element type", argument.name),
      fmt::format("it holds {}, the kernel was compiled for {}", name_of(tensors_[tensor].dtype),
                  name_of(argument.dtype)),
      fmt::format("convert it, or compile the program for {}", name_of(tensors_[tensor].dtype)));
}

void LaunchRefusal::rank(int tensor) const {
  refuse_given(fmt::format("{} has the wrong number of dimensions", source_.tensors[tensor].name),
               fmt::format("it has {}, the kernel expects {}: {}", tensors_[tensor].rank,
                           source_.tensors[tensor].dims.size(), expected_shape(tensor)),
               "reshape it");
}

void LaunchRefusal::size(int tensor, int dim) const {
  const TensorArgument& argument = source_.tensors[tensor];
  const std::int64_t given = tensors_[tensor].shape[dim];
  const std::string why = fmt::format("it is {}, the kernel expects {}", shape_of(tensors_[tensor]),
                                      expected_shape(tensor));
  const std::string what = fmt::format("dimension {} of {} is {}", dim, argument.name, given);
  if (given >= 0 && given < argument.dims[dim].plus) {
    refuse_given(what, why, fmt::format("a length of at least {}", argument.dims[dim].plus));
  }
  if (given < 0 || given > std::numeric_limits<std::int32_t>::max()) {
    refuse_given(what, why + "; lengths are 32 bit", "split the work into several launches");
  }
  refuse_given(what, why,
               argument.dims[dim].is_static()
                   ? "pass that length, or compile the program with it (a named extent is free)"
                   : "pass tensors whose shapes agree");
}

void LaunchRefusal::last_stride(int tensor) const {
  const TensorView& view = tensors_[tensor];
  refuse_layout(
      tensor,
      fmt::format("the last dimension of {} is not the dense one", source_.tensors[tensor].name),
      fmt::format("its stride there is {} elements, the kernel reads and writes with 1",
                  view.strides[view.rank - 1]),
      "a contiguous copy, or a transpose that leaves the last dimension in place");
}

void LaunchRefusal::stride(int tensor, int dim) const {
  const TensorArgument& argument = source_.tensors[tensor];
  const std::int64_t given = tensors_[tensor].strides[dim];
  refuse_layout(
      tensor, fmt::format("{} is not aligned along dimension {}", argument.name, dim),
      fmt::format("its stride there is {} elements ({} bytes), the kernel needs a multiple of {} "
                  "bytes",
                  given, given * size_of(argument.dtype), argument.alignment),
      fmt::format("a contiguous copy, or rows padded to a multiple of {} elements",
                  argument.alignment / size_of(argument.dtype)));
}

void LaunchRefusal::far_stride(int tensor, int dim) const {
  const TensorArgument& argument = source_.tensors[tensor];
  refuse_layout(tensor, fmt::format("{} is spread too far along dimension {}", argument.name, dim),
                fmt::format("its stride there is {} elements, the kernel addresses up to {}",
                            tensors_[tensor].strides[dim], argument.stride_limits[dim]),
                "a copy whose rows lie closer together");
}

void LaunchRefusal::map_stride(int tensor, int dim) const {
  const TensorArgument& argument = source_.tensors[tensor];
  const std::int64_t given = tensors_[tensor].strides[dim];
  refuse_layout(
      tensor,
      fmt::format("{} cannot be moved by the copy engine along dimension {}", argument.name, dim),
      given < 0
          ? fmt::format("its stride there is {} elements, a tensor map has none below 0", given)
          : fmt::format("its stride there is {} elements of {} bytes, a tensor map's are "
                        "below 2^40 bytes",
                        given, size_of(argument.dtype)),
      other_than_map);
}

void LaunchRefusal::map(int tensor, const std::string& reason) const {
  const TensorView& view = tensors_[tensor];
  std::string repeated;
  for (int dim = 0; dim < view.rank; ++dim) {
    if (view.shape[dim] > 1 && view.strides[dim] == 0)
      repeated += fmt::format("; dimension {} has stride 0", dim);
  }
  refuse_layout(
      tensor, fmt::format("the driver makes no tensor map of {}", source_.tensors[tensor].name),
      fmt::format("{}; its shape is {}, its strides are [{}] elements{}", reason, shape_of(view),
                  fmt::join(view.strides.begin(), view.strides.begin() + view.rank, ", "),
                  repeated),
      other_than_map);
}

void LaunchRefusal::repeated_output(int tensor, int dim) const {
  refuse(fmt::format("{} cannot be written", source_.tensors[tensor].name),
         fmt::format("its stride along dimension {} is 0: {} rows share one place in memory", dim,
                     tensors_[tensor].shape[dim]),
         "pass an output with memory of its own, not an expanded one");
}

void LaunchRefusal::address(int tensor) const {
  const TensorArgument& argument = source_.tensors[tensor];
  if (tensors_[tensor].data == nullptr) {
    refuse(fmt::format("{} has no memory", argument.name),
           fmt::format("its address is null and its shape {}", shape_of(tensors_[tensor])),
           "pass the address of an allocation");
  }
  refuse_layout(tensor, fmt::format("{} is not aligned", argument.name),
                fmt::format("it starts at {}, the kernel needs a multiple of {} bytes",
                            fmt::ptr(tensors_[tensor].data), argument.alignment),
                "a copy in a fresh allocation, or a slice that starts at such a place");
}

void LaunchRefusal::device(int tensor) const {
  refuse("the tensors lie in different places",
         fmt::format("{} is {}, {} is {}", source_.tensors[0].name, place_of(tensors_[0].device),
                     source_.tensors[tensor].name, place_of(tensors_[tensor].device)),
         "move them to one device");
}

void LaunchRefusal::overlap(int output, int other) const {
  const std::string& name = source_.tensors[output].name;
  const std::string& theirs = source_.tensors[other].name;
  const bool both = source_.tensors[other].output;
  refuse(fmt::format("{} shares memory with {}", name, theirs),
         both ? "both are written: what is left there depends on which block comes last"
              : fmt::format("blocks write {} while others still read {}", name, theirs),
         "an output of its own, or none: then it is allocated");
}

void LaunchRefusal::scalar(int index, const ScalarValue& given) const {
  const ScalarArgument& argument = source_.scalars[index];
  if (given.dtype() != argument.dtype) {
    refuse_given(fmt::format("{} has the wrong type", argument.name),
                 fmt::format("{} was given, the kernel takes {}", name_of(given.dtype()),
                             name_of(argument.dtype)),
                 "convert it");
  }
  if (argument.is_length) {
    refuse_given(fmt::format("{} is {}", argument.name, given.i32()),
                 "it says how long the longest segment of an axis is, and sizes the grid",
                 "a length of 0 or more");
  }
  refuse_given(fmt::format("{} is {}", argument.name,
                           given.dtype() == DType::f32 ? fmt::to_string(given.f32())
                                                       : fmt::to_string(given.i32())),
               "the kernel was simplified under the promise that it is positive",
               "a positive value, or a program that does not promise it");
}

void LaunchRefusal::grid(const GridAxis& axis, std::int64_t blocks, std::int64_t limit) const {
  throw GridError(complaint(fmt::format("too many blocks: {} along {}", blocks, axis.name),
                            fmt::format("a grid has at most {} in that dimension", limit),
                            "a schedule with flat_grid = true, or several launches"));
}

void LaunchRefusal::work(const GridAxis& axis, std::int64_t blocks) const {
  refuse(fmt::format("too much work: {} tiles up to axis {}", blocks, axis.name),
         fmt::format("the kernel counts the tiles of all blocks up to {}",
                     std::numeric_limits<std::int32_t>::max()),
         "larger tiles, or several launches");
}

}  // namespace flashcore
