#include "python/src/array_fit.h"

#include <algorithm>
#include <array>

#include "dsl/error.h"

namespace flashcore::python {
namespace {

constexpr std::int64_t unknown = -1;  ///< only the device knows

std::size_t place_of(const KernelSource& source, const std::string& name) {
  const auto found = std::ranges::find(source.tensors, name, &TensorArgument::name);
  if (found == source.tensors.end()) throw InternalError("no tensor " + name);
  return static_cast<std::size_t>(found - source.tensors.begin());
}

}  // namespace

ArrayFit::ArrayFit(const AttentionSpec& spec, const KernelSource& source,
                   const std::vector<std::pair<std::string, Shape>>& shapes)
    : layout_(spec.layout), is_paged_(spec.paged()) {
  constexpr std::array<const char*, 5> names{"batch", "heads", "q_len", "kv_len", "length"};
  for (const auto& [name, shape] : shapes) {
    Rule& rule = rules_.emplace_back(place_of(source, name));
    for (const auto& size : shape) {
      if (const auto* const number = std::get_if<std::int64_t>(&size)) {
        rule.dimensions.push_back({Size::number, *number});
        continue;
      }
      const auto* const at = std::ranges::find(names, std::get<std::string>(size));
      if (at == names.end()) throw InternalError("no size " + std::get<std::string>(size));
      rule.dimensions.push_back({static_cast<Size>(at - names.begin())});
    }
  }
  if (spec.packed() && !shapes.empty()) starts_ = place_of(source, "cu_seqlens_q");
}

bool ArrayFit::check(std::span<const TensorView> tensors, std::int64_t longest) const {
  const TensorView& q = tensors[0];
  const TensorView& k = tensors[1];
  const bool packed = layout_ == TensorLayout::thd;
  if (q.rank != (packed ? 3 : 4) || k.rank != (is_paged_ ? 4 : q.rank)) return true;
  std::array<std::int64_t, 5> sizes{};
  if (packed) {
    sizes = {tensors[starts_].shape[0] - 1, q.shape[1], longest, unknown, longest};
  } else {
    const int heads = layout_ == TensorLayout::bhsd ? 1 : 2, rows = 3 - heads;
    sizes = {q.shape[0], q.shape[heads], q.shape[rows], k.shape[rows],
             std::max(q.shape[rows], k.shape[rows])};
  }
  // How many keys a table of pages has room for says nothing of how many there are.
  if (is_paged_)
    for (const Size size : {Size::kv_len, Size::length})
      sizes[static_cast<std::size_t>(size)] = unknown;
  for (const Rule& rule : rules_) {
    const TensorView& view = tensors[rule.tensor];
    if (static_cast<std::size_t>(view.rank) != rule.dimensions.size()) continue;
    for (std::size_t dim = 0; dim < rule.dimensions.size(); ++dim) {
      const auto [size, number] = rule.dimensions[dim];
      const bool fixed = size == Size::number;
      const std::int64_t wanted = fixed ? number : sizes[static_cast<std::size_t>(size)];
      if ((!fixed && wanted == unknown) || view.shape[dim] == wanted) continue;
      // The positions of packed sequences are at most that many: longer arrays are right.
      const bool at_most = packed && (size == Size::q_len || size == Size::length);
      if (!at_most || view.shape[dim] < wanted) return false;
    }
  }
  return true;
}

}  // namespace flashcore::python
