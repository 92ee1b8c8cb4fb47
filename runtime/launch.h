// Checks the arguments of a launch against the kernel's signature and packs them. Everything that
// does not depend on the arguments is worked out once, so that a launch costs some tens of
// nanoseconds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "codegen/kernel_source.h"
#include "runtime/tensor.h"
#include "runtime/tensor_maps.h"

namespace flashcore {

/// What the hardware takes for the one parameter of a kernel.
constexpr int max_parameter_bytes = 4096;

/// Room for a parameter block, on the stack of the caller.
struct alignas(TensorMaps::alignment) ParameterBlock {
  std::byte bytes[max_parameter_bytes];
};

class LaunchPlan {
 public:
  explicit LaunchPlan(std::shared_ptr<const KernelSource> source);

  struct Bound {
    /// No blocks when there is nothing to do. A persistent kernel's on a GPU is what there is to
    /// do, one block a tile; a launch has fewer (`resident`).
    GridSize grid;
    int device = cpu_device;  ///< where every tensor lies
  };
  /// Reads the named extents off the shapes, checks, and fills the first `parameter_bytes` of
  /// `block`, all but the tensor maps of a GPU (`encode_maps`). Throws an Error (launch_errors.h)
  /// that names the tensor, what was expected and what was given. Allocates nothing when it
  /// succeeds.
  Bound bind(std::span<const TensorView> tensors, std::span<const ScalarValue> scalars,
             ParameterBlock& block) const;

  /// TensorMaps::encode into a block that `bind` has filled from the same tensors.
  void encode_maps(const Driver& driver, std::span<const TensorView> tensors, CudaAddress zeros,
                   ParameterBlock& block) const {
    maps_.encode(driver, *source_, tensors, zeros, block.bytes);
  }

  /// Turns a block that was filled for tensors of the same shapes and strides at other addresses,
  /// `before`, into that of these, tensor maps of a GPU included; no tensor is empty. False where
  /// it cannot be, and the block is of no use any more: `bind` tells why.
  bool move(const Driver& driver, std::span<const TensorView> before,
            std::span<const TensorView> tensors, ParameterBlock& block) const;

  /// Of no other plan of this process; never 0.
  [[nodiscard]] std::uint64_t number() const { return number_; }

  /// Whether blocks take their tiles from a counter, and which one: 0, as `bind` leaves it for a
  /// GPU, for none.
  [[nodiscard]] bool claims_tiles() const { return tile_counter_ >= 0; }
  void set_tile_counter(int counter, ParameterBlock& block) const;

  /// The grid to launch where so many blocks run at once.
  [[nodiscard]] GridSize resident(const GridSize& grid, std::uint32_t blocks) const {
    return source_->persistent ? GridSize(std::min(grid.x, blocks)) : grid;
  }

  [[nodiscard]] const KernelSource& source() const { return *source_; }

 private:
  static constexpr int max_extents = 32;
  using Extents = std::array<std::int64_t, max_extents>;

  // One dimension of one tensor, in the order of the program. The first tensor that carries a named
  // extent gives its value, all others have to agree.
  struct Dimension {
    std::int64_t value = 0;         // of a static one; else what is added to the named extent
    std::int64_t stride_limit = 0;  // either way from zero
    std::int8_t extent = -1;
    bool gives = false;
    bool dense = false;  ///< neighbours are one element apart
  };
  struct Signature {
    DType dtype = DType::f32;
    bool output = false;
    std::int8_t rank = 0;
    std::uint16_t first_dimension = 0;
    std::uint32_t address_mask =
        0;  // bits of an address, and of a stride in elements, that are zero
    std::uint32_t stride_mask = 0;
    /// Strides are below where the copy engine moves boxes of it, in elements; else 0.
    std::uint64_t map_stride_limit = 0;
  };
  struct Field {
    std::int16_t offset = 0;
    std::int8_t index = 0;
    std::int8_t dim = 0;
  };
  struct Blocks {
    std::int64_t value = 0;  // as of a dimension
    std::int64_t times = 1;  // the extent
    std::int8_t extent = -1;
    std::int8_t scalar = -1;
    std::int32_t tile = 1;
  };

  void plan_tensors();
  void plan_fields();
  void plan_grid();
  [[nodiscard]] int extent_index(const Extent& extent) const;

  void check_tensor(const Signature& signature, int index, std::span<const TensorView> tensors,
                    Extents& extents) const;
  [[nodiscard]] GridSize grid_size(const Extents& extents, std::span<const ScalarValue> scalars,
                                   int device) const;
  [[nodiscard]] std::int64_t blocks_along(const Blocks& axis, const Extents& extents,
                                          std::span<const ScalarValue> scalars) const;

  std::shared_ptr<const KernelSource> source_;
  TensorMaps maps_;
  std::vector<Signature> signatures_;
  std::vector<Dimension> dimensions_;
  std::vector<Field> pointers_, strides_, extents_, scalars_;
  std::vector<Blocks> grid_;
  int tile_counter_ = -1;  ///< offset of its field
  std::uint64_t number_;
};

}  // namespace flashcore
