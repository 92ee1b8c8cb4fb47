// What code generation hands to the runtime: one CUDA file and everything needed to launch it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dsl/dtype.h"
#include "dsl/extent.h"

namespace flashcore {

/// A tensor of the program, in the program's order. Inputs and outputs are passed alike.
struct TensorArgument {
  std::string name;
  DType dtype = DType::f32;
  bool output = false;
  std::vector<Extent> dims;  ///< the last one has unit stride, unless that is a parameter
  int alignment = 4;  ///< bytes that must divide the base address and every stride but the last
  /// Elements that a stride may be at most, by dimension: rows of a tile are addressed in 32 bits.
  std::vector<std::int64_t> stride_limits;
  /// A probe's (dsl/probes.h): the kernel writes no element of a tile that it does not visit; the
  /// caller fills the tensor with this before the launch.
  std::optional<double> unwritten = {};
  bool gathered = false;         ///< read element by element
  bool has_last_stride = false;  ///< that of the last dimension is a parameter too
};

/// A scalar the caller passes (fp32 or i32).
struct ScalarArgument {
  std::string name;
  DType dtype = DType::f32;
  bool positive =
      false;  ///< the kernel was simplified under `value > 0`; a launch must refuse others
  bool is_length = false;  ///< sizes the grid; a launch must refuse a negative one
};

/// What the copy engine has to know of a tensor to move boxes of it (fc::tensor_map): `width`
/// elements along its last dimension, `rows` along another, one along all others. Boxes of one row, as
/// of a vector, have no swizzle. The launch makes it.
struct TensorMapArgument {
  int tensor = 0;
  int row_dim = 0;
  int rows = 0;
  int width = 64;  ///< lines of 128, 64 or 32 bytes, swizzled over as many
  bool operator==(const TensorMapArgument&) const = default;
};

/// One field of the kernel's single parameter, a struct passed by value in constant memory.
struct ParameterField {
  enum class Kind { pointer, stride, extent, scalar, tensor_map, tile_counter };
  Kind kind = Kind::pointer;
  /// pointer, stride: which tensor; extent: which of `extents`; scalar: which scalar; tensor_map:
  /// which of `tensor_maps`, 128 bytes at a multiple of 64; tile_counter: 32 bits, which of the
  /// kernel's counters (codegen/prelude/tile_counter.cuh) is the launch's own, from 1 on, or 0
  int index = 0;
  int dim = 0;     ///< stride: which dimension (in elements, 64 bit); the last dimension has none
  int offset = 0;  ///< bytes from the start of the struct
};

/// Blocks of a launch in the three dimensions of CUDA's grid.
struct GridSize {
  std::uint32_t x = 1, y = 1, z = 1;

  constexpr GridSize() = default;
  constexpr GridSize(std::uint32_t x, std::uint32_t y = 1,  // NOLINT(google-explicit-constructor)
                     std::uint32_t z = 1)
      : x(x), y(y), z(z) {}
  [[nodiscard]] constexpr std::int64_t count() const { return std::int64_t{x} * y * z; }
};

/// Blocks along one parallel axis: ceil(extent / tile), or ceil(scalar / tile) where a scalar says
/// how long the longest part of a ragged axis is.
struct GridAxis {
  std::string name;
  Extent extent;
  int tile = 1;
  int scalar = -1;  ///< which of `scalars`
};

/// A generated kernel. `text` is complete CUDA C++ without includes; `prelude` is the part of it
/// before the kernel, `body` the rest, which the emulator compiles behind its own prelude.
struct KernelSource {
  std::string name;   ///< the program's, which messages say
  std::string entry;  ///< what the text calls the kernel, extern "C"
  std::string prelude;
  std::string body;
  [[nodiscard]] std::string text() const { return prelude + body; }

  /// Whether the kernel shows what is inside it: then its stores may cost it registers it lacks.
  [[nodiscard]] bool has_probes() const {
    return std::ranges::any_of(tensors, [](const auto& t) { return t.unwritten.has_value(); });
  }

  /// Whether its blocks take tiles from a counter.
  [[nodiscard]] bool claims_tiles() const {
    return std::ranges::count(parameters, ParameterField::Kind::tile_counter,
                              &ParameterField::kind) > 0;
  }

  std::vector<TensorArgument> tensors;
  std::vector<ScalarArgument> scalars;
  std::vector<std::string> extents;  ///< named extents; i32 in the parameter block
  std::vector<TensorMapArgument> tensor_maps;
  std::vector<ParameterField> parameters;
  int parameter_bytes = 0;

  /// Fastest first. The first is gridDim.x, the second gridDim.y, all others together gridDim.z.
  std::vector<GridAxis> grid;
  /// Blocks of a cluster, which lie side by side along x and work on one block of those that `grid`
  /// counts.
  int cluster = 1;
  /// The grid is one row of blocks, all that `grid` counts.
  bool flat_grid = false;
  /// The grid is one row of blocks, no more than fit on the GPU at once; each works through several
  /// of the blocks that `grid` counts.
  bool persistent = false;
  /// It waits by itself for the kernels launched before it, and may be launched beside their end.
  bool waits_for_kernels = false;
  /// Products in flight read left operands that threads have loaded once for all iterations of a loop.
  bool keeps_operands = false;
  int threads = 0;       ///< a block
  int shared_bytes = 0;  ///< dynamic shared memory a block
  int min_blocks = 1;    ///< blocks a multiprocessor that __launch_bounds__ promises

  /// Of all threads of a block together, once its warpgroups have given and taken; 0: none does.
  int split_registers = 0;
};

}  // namespace flashcore
