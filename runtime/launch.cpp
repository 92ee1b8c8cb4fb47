#include "runtime/launch.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <limits>

#include "dsl/error.h"
#include "runtime/launch_errors.h"

namespace flashcore {
namespace {

constexpr std::int64_t largest_length = std::numeric_limits<std::int32_t>::max();

template <class Value>
void put(ParameterBlock& block, int offset, Value value) {
  std::memcpy(block.bytes + offset, &value, sizeof value);
}

void require(bool holds, const KernelSource& source, const char* what) {
  if (!holds) throw InternalError(fmt::format("the signature of {}: {}", source.name, what));
}

std::int64_t constant_part(const Extent& extent) {
  return extent.is_static() ? extent.value : extent.plus;
}

int width_of(ParameterField::Kind kind) {
  switch (kind) {
    case ParameterField::Kind::pointer:
    case ParameterField::Kind::stride:
      return 8;
    case ParameterField::Kind::extent:
    case ParameterField::Kind::scalar:
    case ParameterField::Kind::tile_counter:
      return 4;
    case ParameterField::Kind::tensor_map:
      return TensorMaps::bytes;
  }
  return 0;
}

// Blocks of a persistent kernel on the CPU, or clusters of them: few enough that each works through
// several tiles and meets what one leaves for the next.
std::int64_t emulated_blocks(std::int64_t tiles) {
  return std::min<std::int64_t>(3, (tiles + 1) / 2);
}

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

}  // namespace

LaunchPlan::LaunchPlan(std::shared_ptr<const KernelSource> source)
    : source_(std::move(source)), maps_(*source_), number_(next_number()) {
  require(source_->parameter_bytes <= max_parameter_bytes, *source_,
          "parameters of over 4096 bytes");
  require(source_->extents.size() <= max_extents, *source_, "more than 32 named extents");
  plan_tensors();
  plan_fields();
  plan_grid();
}

int LaunchPlan::extent_index(const Extent& extent) const {
  if (extent.is_static()) return -1;
  const std::vector<std::string>& names = source_->extents;
  const auto at = std::find(names.begin(), names.end(), extent.name);
  require(at != names.end(), *source_, "an extent that is not declared");
  return static_cast<int>(at - names.begin());
}

void LaunchPlan::plan_tensors() {
  std::array<bool, max_extents> given{};
  for (const TensorArgument& tensor : source_->tensors) {
    const int rank = static_cast<int>(tensor.dims.size());
    const auto alignment = static_cast<std::uint32_t>(tensor.alignment);
    require(rank >= 1 && rank <= max_rank, *source_,
            "a tensor of more than five dimensions, or none");
    require(std::has_single_bit(alignment), *source_, "an alignment that is no power of two");
    const auto elements =
        std::max(alignment / static_cast<std::uint32_t>(size_of(tensor.dtype)), 1U);
    signatures_.push_back({.dtype = tensor.dtype,
                           .output = tensor.output,
                           .rank = static_cast<std::int8_t>(rank),
                           .first_dimension = static_cast<std::uint16_t>(dimensions_.size()),
                           .address_mask = alignment - 1,
                           .stride_mask = elements - 1});
    for (int dim = 0; dim < rank; ++dim) {
      const int extent = extent_index(tensor.dims[dim]);
      const auto at = static_cast<std::size_t>(dim);
      dimensions_.push_back({.value = constant_part(tensor.dims[dim]),
                             .stride_limit = at < tensor.stride_limits.size()
                                                 ? tensor.stride_limits[at]
                                                 : std::numeric_limits<std::int64_t>::max(),
                             .extent = static_cast<std::int8_t>(extent),
                             .gives = extent >= 0 && !std::exchange(given[extent], true),
                             .dense = dim == rank - 1 && !tensor.has_last_stride});
    }
  }
  for (std::size_t e = 0; e < source_->extents.size(); ++e) {
    require(given[e], *source_, "an extent that no tensor carries");
  }
}

void LaunchPlan::plan_fields() {
  for (const ParameterField& field : source_->parameters) {
    require(field.offset >= 0 && field.offset + width_of(field.kind) <= source_->parameter_bytes,
            *source_, "a field outside the parameters");
    const Field packed{.offset = static_cast<std::int16_t>(field.offset),
                       .index = static_cast<std::int8_t>(field.index),
                       .dim = static_cast<std::int8_t>(field.dim)};
    const auto below = [&](std::size_t count) {
      require(field.index >= 0 && static_cast<std::size_t>(field.index) < count, *source_,
              "a field of nothing");
    };
    switch (field.kind) {
      case ParameterField::Kind::pointer:
        below(source_->tensors.size());
        pointers_.push_back(packed);
        break;
      case ParameterField::Kind::stride:
        below(source_->tensors.size());
        require(field.dim >= 0 && field.dim < signatures_[field.index].rank, *source_,
                "a stride of no dimension");
        strides_.push_back(packed);
        break;
      case ParameterField::Kind::extent:
        below(source_->extents.size());
        extents_.push_back(packed);
        break;
      case ParameterField::Kind::scalar:
        below(source_->scalars.size());
        scalars_.push_back(packed);
        break;
      case ParameterField::Kind::tensor_map: {
        below(source_->tensor_maps.size());
        Signature& mapped = signatures_[source_->tensor_maps[field.index].tensor];
        mapped.map_stride_limit =
            static_cast<std::uint64_t>(TensorMaps::stride_limit / size_of(mapped.dtype));
        break;
      }
      case ParameterField::Kind::tile_counter:
        tile_counter_ = field.offset;
        break;
    }
  }
}

void LaunchPlan::plan_grid() {
  for (const GridAxis& axis : source_->grid) {
    require(axis.tile >= 1, *source_, "an empty tile");
    require(axis.scalar < static_cast<int>(source_->scalars.size()), *source_,
            "a grid sized by a scalar that it does not have");
    grid_.push_back({.value = constant_part(axis.extent),
                     .times = axis.extent.times,
                     .extent = static_cast<std::int8_t>(extent_index(axis.extent)),
                     .scalar = static_cast<std::int8_t>(axis.scalar),
                     .tile = axis.tile});
  }
}

void LaunchPlan::check_tensor(const Signature& signature, int index,
                              std::span<const TensorView> tensors, Extents& extents) const {
  const TensorView& view = tensors[index];
  const LaunchRefusal refusal(*source_, tensors);
  if (view.dtype != signature.dtype) [[unlikely]]
    refusal.dtype(index);
  if (view.rank != signature.rank) [[unlikely]]
    refusal.rank(index);
  if (view.device != tensors[0].device) [[unlikely]]
    refusal.device(index);
  const Dimension* const dimensions = dimensions_.data() + signature.first_dimension;
  bool empty = false;
  for (int dim = 0; dim < signature.rank; ++dim) {
    const Dimension& expected = dimensions[dim];
    const std::int64_t size = view.shape[dim];
    if (expected.gives) {
      if (size < expected.value || size > largest_length) [[unlikely]]
        refusal.size(index, dim);
      extents[expected.extent] = size - expected.value;
    } else if (size != expected.value + (expected.extent < 0 ? 0 : extents[expected.extent]))
        [[unlikely]] {
      refusal.size(index, dim);
    }
    empty |= size == 0;
  }
  // Strides of an empty array mean nothing; NumPy makes them zero.
  for (int dim = 0; dim < signature.rank && !empty; ++dim) {
    const Dimension& expected = dimensions[dim];
    // A dimension of one element may have any stride: nothing is ever a step away.
    if (view.shape[dim] <= 1) continue;
    const std::int64_t stride = view.strides[dim];
    if (expected.dense) {
      if (stride != 1) [[unlikely]]
        refusal.last_stride(index);
    } else {
      if ((stride & signature.stride_mask) != 0) [[unlikely]]
        refusal.stride(index, dim);
      if (stride == 0 && signature.output) [[unlikely]]
        refusal.repeated_output(index, dim);
      if (stride > expected.stride_limit || stride < -expected.stride_limit) [[unlikely]]
        refusal.far_stride(index, dim);
      if (signature.map_stride_limit != 0 &&
          static_cast<std::uint64_t>(stride) >= signature.map_stride_limit) [[unlikely]]
        refusal.map_stride(index, dim);
    }
  }
  const auto address = reinterpret_cast<std::uintptr_t>(view.data);
  const bool lacking = address == 0 && !empty && view.device != no_device;
  if ((address & signature.address_mask) != 0 || lacking) [[unlikely]]
    refusal.address(index);
}

std::int64_t LaunchPlan::blocks_along(const Blocks& axis, const Extents& extents,
                                      std::span<const ScalarValue> scalars) const {
  const std::int64_t length = axis.scalar >= 0  ? scalars[axis.scalar].i32()
                              : axis.extent < 0 ? axis.value
                                                : axis.value + axis.times * extents[axis.extent];
  return (length + axis.tile - 1) / axis.tile;
}

GridSize LaunchPlan::grid_size(const Extents& extents, std::span<const ScalarValue> scalars,
                               int device) const {
  // One row of blocks, which the kernel takes apart by itself.
  const bool one_row = source_->persistent || source_->flat_grid;
  const std::size_t dimensions = one_row ? 1 : 3;
  static constexpr std::array<std::int64_t, 3> limits{largest_length, 65535, 65535};
  std::array<std::int64_t, 3> blocks{source_->cluster, 1, 1};
  for (std::size_t i = 0; i < grid_.size(); ++i) {
    const std::size_t dimension = std::min(i, dimensions - 1);
    std::int64_t& along = blocks[dimension];
    along *= blocks_along(grid_[i], extents, scalars);
    if (along > limits[dimension]) [[unlikely]] {
      const LaunchRefusal refusal(*source_, {});
      if (one_row) refusal.work(source_->grid[i], along);
      refusal.grid(source_->grid[i], along, limits[dimension]);
    }
  }
  if (source_->persistent && device == cpu_device)
    blocks[0] = emulated_blocks(blocks[0] / source_->cluster) * source_->cluster;
  return {static_cast<std::uint32_t>(blocks[0]), static_cast<std::uint32_t>(blocks[1]),
          static_cast<std::uint32_t>(blocks[2])};
}

void LaunchPlan::set_tile_counter(int counter, ParameterBlock& block) const {
  if (claims_tiles()) put(block, tile_counter_, counter);
}

bool LaunchPlan::move(const Driver& driver, std::span<const TensorView> before,
                      std::span<const TensorView> tensors, ParameterBlock& block) const {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto address = reinterpret_cast<std::uintptr_t>(tensors[i].data);
    if (address == 0 || (address & signatures_[i].address_mask) != 0) [[unlikely]]
      return false;
  }
  for (const Field& f : pointers_) put(block, f.offset, tensors[f.index].data);
  return maps_.move(driver, before, tensors, block.bytes);
}

LaunchPlan::Bound LaunchPlan::bind(std::span<const TensorView> tensors,
                                   std::span<const ScalarValue> scalars,
                                   ParameterBlock& block) const {
  const LaunchRefusal refusal(*source_, tensors);
  if (tensors.size() != signatures_.size()) [[unlikely]]
    refusal.tensor_count();
  if (scalars.size() != source_->scalars.size()) [[unlikely]]
    refusal.scalar_count(scalars.size());

  Extents extents;
  for (int index = 0; index < static_cast<int>(signatures_.size()); ++index) {
    check_tensor(signatures_[index], index, tensors, extents);
  }
  for (int index = 0; index < static_cast<int>(scalars.size()); ++index) {
    const ScalarArgument& expected = source_->scalars[index];
    const ScalarValue& given = scalars[index];
    if (given.dtype() != expected.dtype || (expected.positive && !given.is_positive()) ||
        (expected.is_length && given.i32() < 0)) [[unlikely]] {
      refusal.scalar(index, given);
    }
  }

  // Padding too: the same launch is the same bytes.
  std::memset(block.bytes, 0, static_cast<std::size_t>(source_->parameter_bytes));
  for (const Field& f : pointers_) put(block, f.offset, tensors[f.index].data);
  for (const Field& f : strides_) {
    // Rows beyond a dimension of one element are masked, yet their addresses are formed: a stride
    // of zero keeps those aligned and in bounds, whatever the caller's view says.
    const TensorView& view = tensors[f.index];
    put(block, f.offset, view.shape[f.dim] > 1 ? view.strides[f.dim] : std::int64_t{0});
  }
  for (const Field& f : extents_) {
    put(block, f.offset, static_cast<std::int32_t>(extents[f.index]));
  }
  for (const Field& f : scalars_) {
    const ScalarValue& value = scalars[f.index];
    if (value.dtype() == DType::f32) {
      put(block, f.offset, value.f32());
    } else {
      put(block, f.offset, value.i32());
    }
  }
  const int device = tensors.empty() ? cpu_device : tensors[0].device;
  if (device == cpu_device) {
    maps_.describe(tensors, block.bytes);
    set_tile_counter(1, block);
  }
  return {.grid = grid_size(extents, scalars, device), .device = device};
}

}  // namespace flashcore
