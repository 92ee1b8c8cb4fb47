// The walk of the threads of a block over a tile between global and shared memory, in chunks of 16
// bytes.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/layout/chunk_loops.h"
#include "codegen/text/names.h"
#include "codegen/text/writer.h"
#include "dsl/ir/function.h"

namespace flashcore {

/// Elements in the 16 bytes that a thread copies at a time.
inline int chunk_elements(DType dtype) { return 16 / size_of(dtype); }

/// Refuses copies of whole chunks whose rows are no neighbouring elements, or begin anywhere.
void require_rows_of_chunks(const ir::Function& f, const ir::Op& op, bool dense,
                            std::string_view copies, int multiple);

/// The rows of a tile of which a thread copies a chunk each: thread / chunks + i * rows.
struct ThreadRows {
  int chunks, rows, rounds;
};
ThreadRows thread_rows(const ir::Buffer& buffer, const ChunkLoop& loop, int threads);

/// A row of a tile, under a loop over i, as the text of its place: what is added to the address of
/// the tile's columns, and whether it is inside the axis and the tensor.
struct RowPlace {
  std::string offset, exists;
};

/// The rows of a tile in global memory: at `start`, one `stride` further each, of which `left` are
/// inside; or each at a place of its own.
struct GlobalRows {
  std::string type, walker, start, stride, left;
  std::vector<RowPlace> places = {};  ///< for each of the loops over chunks
};

/// The text of one chunk: whether its row is inside the tensor, its first column, its address in
/// global memory, and its offset in the shared tile.
struct Chunk {
  std::string row_exists, column, pointer, offset;
};

/// Loops over a thread's chunks of a tile in global memory. Neighbouring threads take neighbouring
/// chunks of one panel's row, so that they write whole lines. The pointer `walker` steps down the
/// rows: with one address and one step alive, nothing but them is worth keeping in registers over a
/// loop. `body` sees `row`, `column`, `i` and, past the first, `panel`.
void for_each_chunk(Writer& out, Names& names, const ir::Buffer& buffer, int threads,
                    const GlobalRows& global, const std::function<void(const Chunk&)>& body);

}  // namespace flashcore
