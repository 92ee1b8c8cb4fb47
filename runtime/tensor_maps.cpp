#include "runtime/tensor_maps.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <type_traits>

#include <fmt/format.h>

#include "dsl/error.h"
#include "dsl/inline_list.h"
#include "runtime/emulator/emulated_tensor_map.h"
#include "runtime/launch_errors.h"

namespace flashcore {
namespace {

constexpr int largest_box = 256;  // elements along a dimension
/// As many as a parameter block holds beside pointers and lengths: the seven matrices of a backward
/// pass come in boxes of up to three widths each.
constexpr std::size_t most_maps = 28;

// CUtensorMapDataType, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion and
// CUtensorMapFloatOOBfill.
constexpr int type_u8 = 0;
constexpr int type_f16 = 6;
constexpr int type_f32 = 7;
constexpr int type_bf16 = 9;
constexpr int interleave_none = 0;
constexpr int swizzle_none = 0;
constexpr int swizzle_32_bytes = 1;
constexpr int swizzle_64_bytes = 2;
constexpr int swizzle_128_bytes = 3;
constexpr int l2_promotion_256_bytes = 3;
constexpr int fill_with_zeros = 0;

int swizzle_of(std::uint32_t line_bytes) {
  return line_bytes == 128  ? swizzle_128_bytes
         : line_bytes == 64 ? swizzle_64_bytes
         : line_bytes == 32 ? swizzle_32_bytes
                            : swizzle_none;
}

/// Over how many bytes the lines of boxes are swizzled; 0 where a box is one line.
std::uint32_t swizzled_bytes(const std::array<std::uint32_t, max_rank>& box, int element) {
  const bool several = std::any_of(box.begin() + 1, box.end(), [](auto rows) { return rows > 1; });
  return several ? box[0] * static_cast<std::uint32_t>(element) : 0;
}

/// None for elements of which there are no maps. A condition is a byte.
std::optional<int> type_of(DType dtype) {
  switch (dtype) {
    case DType::i1:
      return type_u8;
    case DType::f16:
      return type_f16;
    case DType::bf16:
      return type_bf16;
    case DType::f32:
      return type_f32;
    default:
      return std::nullopt;
  }
}

struct alignas(TensorMaps::alignment) Encoded {
  std::byte bytes[TensorMaps::bytes];
};

// A tensor as a map sees it: dense dimension first, strides in bytes. All that a map is made from,
// so that equal geometries under equal boxes have equal maps. No padding, to be compared as bytes;
// not cleared by itself, as a launch would clear room for all maps that a kernel may have.
struct Geometry {
  std::uint64_t address;
  std::array<std::uint64_t, max_rank> strides;
  std::array<std::uint32_t, max_rank> extents;
  std::array<std::uint32_t, max_rank> box;
  std::uint32_t rank;
  std::uint32_t type;
};
static_assert(std::has_unique_object_representations_v<Geometry>);

Geometry geometry_of(const TensorView& view, const std::array<std::uint32_t, max_rank>& box) {
  Geometry geometry;
  geometry.address = reinterpret_cast<std::uintptr_t>(view.data);
  geometry.box = box;
  geometry.rank = static_cast<std::uint32_t>(view.rank);
  geometry.type = static_cast<std::uint32_t>(*type_of(view.dtype));
  const auto element = static_cast<std::uint64_t>(size_of(view.dtype));
  for (int i = 0; i < max_rank; ++i) {
    const int dim = view.rank - 1 - i;
    geometry.extents[i] = dim < 0 ? 0 : static_cast<std::uint32_t>(view.shape[dim]);
    // Nothing is ever a step away along a dimension of one element, whatever the caller's view
    // says; a map still wants a stride that is well formed.
    geometry.strides[i] = dim < 0  ? 0
                          : i == 0 ? element
                          : view.shape[dim] > 1
                              ? static_cast<std::uint64_t>(view.strides[dim]) * element
                              : TensorMaps::tensor_alignment;
  }
  return geometry;
}

bool is_empty(const Geometry& geometry) {
  const auto end = geometry.extents.begin() + geometry.rank;
  return std::find(geometry.extents.begin(), end, 0U) != end;
}

bool differ_in_address_alone(const Geometry& a, const Geometry& b) {
  return a.strides == b.strides && a.extents == b.extents && a.box == b.box && a.rank == b.rank &&
         a.type == b.type;
}

void become_one_element(Geometry& geometry, std::uint64_t address) {
  geometry.address = address;
  std::fill_n(geometry.extents.begin(), geometry.rank, 1U);
  std::fill_n(geometry.strides.begin() + 1, geometry.rank - 1,
              std::uint64_t{TensorMaps::tensor_alignment});
}

// The last maps that a thread had encoded. Nothing is shared, so nothing is locked; an entry stays
// true for ever, since a map depends on nothing but its geometry.
class LastMaps {
 public:
  template <class Encode>
  const Encoded& find_or_make(const Geometry& geometry, const Encode& encode) {
    const std::uint64_t hash = hash_of(geometry);
    Set& set = sets_[set_of(geometry)];
    for (unsigned way = 0; way < ways; ++way) {
      const Entry& entry = set.entries[way];
      if (set.hashes[way] == hash && std::memcmp(&entry.geometry, &geometry, sizeof geometry) == 0)
        return entry.map;
    }
    const unsigned oldest = set.next++ % ways;
    Entry& entry = set.entries[oldest];
    entry.geometry.rank = 0;  // of nobody, should the next line throw
    encode(entry.map);
    entry.geometry = geometry;
    set.hashes[oldest] = hash;
    return entry.map;
  }

 private:
  static constexpr int set_bits = 4;
  static constexpr unsigned ways = 4;
  static constexpr std::uint64_t odd = 0x9e3779b97f4a7c15ULL;
  struct Entry {
    Encoded map{};
    Geometry geometry{};
  };
  struct Set {
    std::uint64_t hashes[ways]{};  ///< most entries are those of other lengths: they stay unread
    unsigned next = 0;
    Entry entries[ways];
  };

  // The tensors of a launch differ in their addresses; lengths that alternate at one share a set.
  static std::size_t set_of(const Geometry& geometry) {
    return (geometry.address + geometry.box[1]) * odd >> (64 - set_bits);
  }
  static std::uint64_t hash_of(const Geometry& geometry) {
    std::uint64_t hash = geometry.address;
    for (std::size_t i = 1; i < max_rank; ++i)
      hash = (hash ^ geometry.extents[i]) * odd + geometry.strides[i];
    return hash;
  }

  Set sets_[1 << set_bits];
};

thread_local constinit LastMaps last_maps;

void require(bool holds, const KernelSource& source, const char* what) {
  if (!holds) throw InternalError(fmt::format("a tensor map of {}: {}", source.name, what));
}

}  // namespace

TensorMaps::TensorMaps(const KernelSource& source) {
  for (const ParameterField& field : source.parameters) {
    if (field.kind != ParameterField::Kind::tensor_map) continue;
    require(field.index >= 0 && field.index < static_cast<int>(source.tensor_maps.size()), source,
            "it is not declared");
    const TensorMapArgument& map = source.tensor_maps[field.index];
    require(field.offset % alignment == 0, source, "its place is no multiple of 64 bytes");
    require(map.tensor >= 0 && map.tensor < static_cast<int>(source.tensors.size()), source,
            "its tensor is not declared");
    const TensorArgument& tensor = source.tensors[map.tensor];
    const int rank = static_cast<int>(tensor.dims.size());
    require(rank >= 2 && rank <= max_rank && !tensor.has_last_stride, source,
            "its tensor has one dimension, over five, or none that is dense");
    require(type_of(tensor.dtype).has_value(), source,
            "its tensor has no elements of 16 bits, f32 or i1");
    require(tensor.alignment >= tensor_alignment, source,
            "its tensor does not promise an alignment of 16 bytes");
    require(map.row_dim >= 0 && map.row_dim < rank - 1, source, "its rows run along no dimension");
    require(map.rows >= 1 && map.rows <= largest_box, source,
            "its boxes have no rows, or over 256");
    const int line = map.width * size_of(tensor.dtype);
    if (map.rows == 1)
      require(map.width <= largest_box && line % tensor_alignment == 0, source,
              "its boxes have over 256 elements, or no whole chunks of 16 bytes");
    else
      require(line == 128 || line == 64 || line == 32, source,
              "the lines of its boxes are not 128, 64 or 32 bytes");
    Map planned{.offset = static_cast<std::int16_t>(field.offset),
                .tensor = static_cast<std::int8_t>(map.tensor)};
    std::fill_n(planned.box.begin(), rank, 1U);
    require(maps_.size() < most_maps, source, "the kernel has more than 28");
    planned.box[0] = static_cast<std::uint32_t>(map.width);
    planned.box[rank - 1 - map.row_dim] = static_cast<std::uint32_t>(map.rows);
    maps_.push_back(planned);
  }
}

void TensorMaps::describe(std::span<const TensorView> tensors, std::byte* parameters) const {
  for (const Map& map : maps_) {
    const TensorView& view = tensors[map.tensor];
    const Geometry geometry = geometry_of(view, map.box);
    const int element = size_of(view.dtype);
    EmulatedTensorMap described{
        .address = view.data,
        .rank = view.rank,
        .element_bytes = element,
        .swizzled_bytes = static_cast<std::int32_t>(swizzled_bytes(map.box, element)),
        .tensor = map.tensor};
    std::copy(geometry.strides.begin(), geometry.strides.end(), described.strides);
    std::copy(geometry.extents.begin(), geometry.extents.end(), described.extents);
    std::copy(geometry.box.begin(), geometry.box.end(), described.box);
    std::memcpy(parameters + map.offset, &described, sizeof described);
  }
}

bool TensorMaps::move(const Driver& driver, std::span<const TensorView> before,
                      std::span<const TensorView> tensors, std::byte* parameters) const {
  return std::ranges::all_of(maps_, [&](const Map& map) {
    const void* const address = tensors[map.tensor].data;
    return address == before[map.tensor].data ||
           driver.cuTensorMapReplaceAddress(parameters + map.offset,
                                            reinterpret_cast<CudaAddress>(address)) == 0;
  });
}

void TensorMaps::encode(const Driver& driver, const KernelSource& source,
                        std::span<const TensorView> tensors, CudaAddress zeros,
                        std::byte* parameters) const {
  InlineList<Geometry, most_maps> geometries;
  LastMaps& last = last_maps;
  for (std::size_t i = 0; i < maps_.size(); ++i) {
    const Map& map = maps_[i];
    Geometry& geometry =
        geometries.push_made([&] { return geometry_of(tensors[map.tensor], map.box); });
    if (is_empty(geometry)) [[unlikely]]
      become_one_element(geometry, zeros);
    const Encoded& encoded = last.find_or_make(geometry, [&](Encoded& made) {
      // The keys and the values of a new length differ in their addresses, and an address alone is
      // told to the driver in no time.
      for (std::size_t other = 0; other < i; ++other) {
        if (!differ_in_address_alone(geometries.span()[other], geometry)) continue;
        std::memcpy(made.bytes, parameters + maps_[other].offset, bytes);
        if (driver.cuTensorMapReplaceAddress(made.bytes, geometry.address) == 0) return;
      }
      std::array<std::uint64_t, max_rank> extents{};
      std::copy(geometry.extents.begin(), geometry.extents.end(), extents.begin());
      const std::array<std::uint32_t, max_rank> every{1, 1, 1, 1, 1};
      const int result = driver.cuTensorMapEncodeTiled(
          made.bytes, static_cast<int>(geometry.type), geometry.rank, geometry.address,
          extents.data(), geometry.strides.data() + 1, geometry.box.data(), every.data(),
          interleave_none,
          swizzle_of(swizzled_bytes(geometry.box, size_of(tensors[map.tensor].dtype))),
          l2_promotion_256_bytes, fill_with_zeros);
      if (result != 0) LaunchRefusal(source, tensors).map(map.tensor, driver.describe(result));
    });
    std::memcpy(parameters + map.offset, encoded.bytes, bytes);
  }
}

}  // namespace flashcore
