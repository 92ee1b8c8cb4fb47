#include "python/src/decode_blocks.h"

#include <utility>

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
    if (rows == blocks.rows)
      return {name, blocks.row_tile, blocks.combines_tiles, blocks.balances, blocks.skips_long};
  throw InternalError("rows without a name");
}

DecodeBlocks blocks_named(const NamedBlocks& blocks) {
  const auto& [name, row_tile, combines_tiles, balances, skips_long] = blocks;
  for (const auto& [rows, own] : rows_by_name)
    if (own == name)
      return {.rows = rows,
              .row_tile = row_tile,
              .combines_tiles = combines_tiles,
              .balances = balances,
              .skips_long = skips_long};
  throw InternalError("no rows " + name);
}

}  // namespace flashcore::python
