#include "codegen/transfers/chunk_walk.h"

#include "codegen/analysis/visit.h"
#include "codegen/text/index_text.h"
#include "dsl/error.h"
#include "dsl/ir/type_rules.h"

namespace flashcore {

using namespace ir;

namespace {

/// The offset in its tile of the chunk at `row`, `i` rounds further down, and `column`, in a panel
/// of the loop.
std::string offset_in_tile(const Buffer& buffer, const ChunkLoop& loop,
                           const ThreadRows& of_thread) {
  const int size = size_of(buffer.dtype);
  const auto [chunks, rows, rounds] = of_thread;
  const std::string panel =
      loop.panels > 1 ? fmt::format("panel * {}", loop.width) : std::to_string(loop.first_column);
  if (buffer.pitch)
    return fmt::format("(row * {} + column{}) * {}{}", buffer.pitch,
                       loop.panels > 1 ? " + " + panel : plus(loop.first_column), size,
                       rounds > 1 ? fmt::format(" + i * {}", rows * buffer.pitch * size) : "");
  // The swizzle counts columns of 16 bits. Eight rows down it repeats, and the offset changes by a
  // constant.
  const std::string halves = size == 2 ? "" : fmt::format(" * {}", size / 2);
  const bool repeats = rows % 8 == 0 && rounds > 1;
  return fmt::format(
      "fc::panel_chunk_offset<{}, {}>({}, column{}, {}{}){}", buffer.rows,
      buffer.columns * size / 2, repeats || rounds == 1 ? "row" : fmt::format("row + i * {}", rows),
      halves, panel, halves, repeats ? fmt::format(" + i * {}", rows * loop.width * size) : "");
}

}  // namespace

ThreadRows thread_rows(const Buffer& buffer, const ChunkLoop& loop, int threads) {
  const int chunks = loop.width / chunk_elements(buffer.dtype), rows = threads / chunks;
  return {chunks, rows, (buffer.rows + rows - 1) / rows};
}

void require_rows_of_chunks(const Function& f, const Op& op, bool dense, std::string_view copies,
                            int multiple) {
  const std::string& tensor = f[op.tensor].name;
  const Coordinate& last = op.coordinates.back();
  if (!dense)
    throw SpecError(
        {fmt::format("a product of {} along dimension {}", tensor,
                     dimension_along(op, accessed_axes(f, op)[1])),
         fmt::format("{} copies need neighbouring elements in the last axis of the tile", copies),
         "index the last dimension with the tile's last axis, and transpose the tile", op.where});
  if (f[last.axis].ragged && !last.computed)
    throw SpecError(
        {fmt::format("a product of {} along the ragged axis {}", tensor, f[last.axis].name),
         fmt::format("{} copies need rows that begin at a multiple of {} elements", copies,
                     multiple),
         "index the last dimension with an axis that is not ragged", op.where});
}

void for_each_chunk(Writer& out, Names& names, const Buffer& buffer, int threads,
                    const GlobalRows& global, const std::function<void(const Chunk&)>& body) {
  std::size_t loops = 0;
  for (const ChunkLoop& loop : chunk_loops(buffer)) {
    const RowPlace* const place = global.places.empty() ? nullptr : &global.places[loops++];
    const ThreadRows of_thread = thread_rows(buffer, loop, threads);
    const auto [chunks, rows, rounds] = of_thread;
    auto scope = out.block("");
    const std::string first = plus(loop.first_column);
    out.line("const int row = thread / {0}, column = thread % {0} * {1};", chunks,
             chunk_elements(buffer.dtype));
    if (place)
      out.line("{} const {} = {} + column{};", global.type, global.walker, global.start, first);
    else
      out.line("{} {} = {} + row * {} + column{};", global.type, global.walker, global.start,
               global.stride, first);
    const std::string left = names.unique("rows_left");
    if (!global.left.empty() && !place) out.line("const int {} = {} - row;", left, global.left);
    const auto guard = out.guarded(rows > buffer.rows ? fmt::format("row < {}", buffer.rows) : "");
    const bool ragged = rows < buffer.rows && buffer.rows % rows != 0;
    auto down = out.unrolled("i", rounds);
    {
      const auto inner =
          out.guarded(ragged ? fmt::format("row + i * {} < {}", rows, buffer.rows) : "");
      std::string exists = rounds > 1 ? fmt::format("i * {} < {}", rows, left) : left + " > 0";
      std::string pointer = global.walker;
      if (place) {
        pointer = names.unique("row_" + global.walker);
        out.line("{} const {} = {} + {};", global.type, pointer, global.walker, place->offset);
        exists = place->exists;
      }
      const auto across_panels = out.repeated("panel", loop.panels);
      const std::string across = loop.panels > 1 ? fmt::format(" + panel * {}", loop.width) : "";
      body({exists, "column" + first + across, pointer + across,
            offset_in_tile(buffer, loop, of_thread)});
      if (place) names.release(pointer);
    }
    if (rounds > 1 && !place) out.line("{} += {} * {};", global.walker, rows, global.stride);
    names.release(left);
  }
}

}  // namespace flashcore
