#include "python/src/split_modules.h"

#include <algorithm>

#include "dsl/error.h"

namespace flashcore::python {
namespace {

constexpr std::pair<DecodeRows, const char*> rows_by_name[] = {
    {DecodeRows::packed, "packed"},
    {DecodeRows::packed_in_registers, "packed_in_registers"},
    {DecodeRows::of_head, "of_head"}};

}  // namespace

NamedBlocks named(const DecodeBlocks& blocks) {
  for (const auto& [rows, name] : rows_by_name)
    if (rows == blocks.rows) return {name, blocks.row_tile, blocks.combines_tiles};
  throw InternalError("rows without a name");
}

DecodeBlocks blocks_named(const NamedBlocks& blocks) {
  const auto& [name, row_tile, combines_tiles] = blocks;
  for (const auto& [rows, own] : rows_by_name)
    if (own == name) return {.rows = rows, .row_tile = row_tile, .combines_tiles = combines_tiles};
  throw InternalError("no rows " + name);
}

void SplitModules::add(const NamedBlocks& blocks, pybind11::object module,
                       std::vector<std::size_t> order) {
  auto* const held = module.cast<JitModule*>();
  entries_.push_back({blocks_named(blocks), std::move(module), held, std::move(order)});
}

const SplitModules::Entry* SplitModules::find(const DecodeBlocks& blocks) const {
  const auto found = std::ranges::find(entries_, blocks, &Entry::blocks);
  return found == entries_.end() ? nullptr : &*found;
}

}  // namespace flashcore::python
