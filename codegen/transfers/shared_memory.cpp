// Conversions: tiles between registers and shared memory, and shares of a reduction that meet
// there, of the warps of a block or of the blocks of a cluster.
#include "codegen/analysis/register_interference.h"
#include "codegen/analysis/shared_use.h"
#include "codegen/print/kernel_printer.h"
#include "codegen/text/index_text.h"
#include "dsl/error.h"

namespace flashcore {

using namespace ir;

namespace {

bool is_stored(const Function& f, const Op& convert) {
  return any_op(f, f.body, [&](const Op& op) {
    return op.code == OpCode::store && op.operands[0] == convert.results[0];
  });
}

/// Whether products in flight read what an op, a conversion or an issue, writes to shared memory.
bool is_operand_in_flight(const Function& f, const Op& writes) {
  const auto is_written = [&](ValueId operand) {
    return writes.results.empty() ? buffer_of(f, operand) == writes.buffer
                                  : tile_in_shared(f, operand) == writes.results[0];
  };
  return any_op(f, f.body, [&](const Op& op) {
    return op.code == OpCode::dot && op.issued &&
           (is_written(op.operands[0]) || is_written(op.operands[1]));
  });
}

/// Whether the addresses at which a thread writes a tile of shared memory are computed at each write. The
/// compiler would keep them in registers otherwise, and a loop with products in flight has none left.
bool computes_addresses_anew(const Function& f, const Schedule& schedule, const Op& convert) {
  return is_operand_in_flight(f, convert) || (!schedule.keep_addresses && is_stored(f, convert));
}

/// Of an f32 tile in the layout of a product's sums, half a warp writes two chunks each of four
/// rows. The swizzle exchanges the two chunks of odd rows, which are then in the banks of the row in
/// front. So lanes of odd rows write the next fragment but one of a panel meanwhile, four chunks on.
bool writes_rows_by_turns(const Function& f, const Schedule& schedule, const Op& convert) {
  const std::vector<AxisLayout>& layouts = f[convert.operands[0]].layout.axes;
  if (f[convert.buffer].dtype != DType::f32 || schedule.copy != CopyInstruction::tma ||
      layouts.size() != 2)
    return false;
  const AxisLayout &rows = layouts[0], &columns = layouts[1];
  return rows.lanes == 8 && columns.slots == 2 && columns.lanes == 4 &&
         columns.fragments % 4 == 0 && is_stored(f, convert);
}

/// Whether a warp writes an operand of products, 16 bits in the layout of a product's sums, as matrices of
/// eight rows, four in an instruction, which targets that have a copy engine for tensors can. Outputs, which
/// are written once a tile, gain nothing by it.
bool writes_matrices(const Function& f, const Schedule& schedule, const Op& writes) {
  const std::vector<AxisLayout>& layouts = f[writes.operands[0]].layout.axes;
  const Buffer& buffer = f[writes.buffer];
  if (!is_half(buffer.dtype) || buffer.pitch || schedule.copy != CopyInstruction::tma ||
      layouts.size() != 2)
    return false;
  if (f[writes.operands[0]].layout.space == Space::operand) return true;
  if (!is_operand_in_flight(f, writes)) return false;
  const AxisLayout &rows = layouts[0], &columns = layouts[1];
  return rows.lanes == 8 && rows.slots == 2 && columns.lanes == 4 && columns.slots == 2 &&
         columns.fragments % 2 == 0 && columns.warps == 1;
}

/// How many slots of a fragment lie side by side in shared memory.
int count_in_row(const KernelPrinter::Shape& shape) {
  const AxisLayout& last = shape.layouts.back();
  return shape.axes.size() == 1 && last.slot_stride > 1 ? 1 : last.slots;
}

/// Slot c of them in the array of a tile, under the loops of open_rows.
std::string slot_in_row(const std::string& array, const KernelPrinter::Shape& shape, int c = 0) {
  if (shape.axes.size() == 1)
    return count_in_row(shape) > 1 ? fmt::format("{}[i][{}]", array, c) : array + "[i][e]";
  if (shape.layouts[0].slots == 1) return fmt::format("{}[i][j][{}]", array, c);
  return fmt::format("{}[i][j][{} * r{}]", array, count_in_row(shape), plus(c));
}

}  // namespace

/// The byte offset, within a slot, of the slots of one fragment that lie side by side: row r of
/// fragment (i, j), or element e of fragment i of a vector. `first_row`: of the thread, where it has
/// a name of its own.
std::string KernelPrinter::shared_offset(const Buffer& buffer, const Shape& shape,
                                         const std::string& first_row) const {
  const AxisLayout& last = shape.layouts.back();
  const int size = size_of(buffer.dtype);
  if (shape.axes.size() == 1)
    return fmt::format(
        "({} + i * {}{}) * {}", lane_offset(shape.axes[0], last), last.fragment_size(),
        count_in_row(shape) > 1 ? "" : fmt::format(" + e * {}", last.slot_stride), size);
  const AxisLayout& rows = shape.layouts[0];
  std::string row =
      fmt::format("{} + i * {}", first_row.empty() ? lane_offset(shape.axes[0], rows) : first_row,
                  rows.fragment_size());
  if (rows.slots > 1) row += fmt::format(" + r * {}", rows.slot_stride);
  std::string column = fmt::format("j * {}", last.fragment_size());
  if (last.warps > 1) column = fmt::format("{} + {}", warp_base(last), column);
  const std::string lane = last.lanes == 32 ? "lane" : fmt::format("lane % {}", last.lanes);
  if (buffer.pitch)
    return fmt::format("(({}) * {} + {} + {} * {}) * {}", row, buffer.pitch, column, lane,
                       last.lane_stride, size);
  const int in_chunk = 16 / size;
  const std::string chunk = fmt::format("fc::chunk_offset<{}, {}{}>", buffer.rows,
                                        buffer.columns * size / 2, last.warps > 1 ? ", true" : "");
  if (size == 1) {
    const int of_warp = last.fragments * last.fragment_size();
    if (last.slots != 2 || in_chunk % last.fragment_size() != 0 ||
        (last.warps > 1 && of_warp % in_chunk != 0))
      throw InternalError("a tile of bytes in another layout than that of a product");
    const int fragments = in_chunk / last.fragment_size();  // that share a chunk
    std::string half = fmt::format("j / {} * {}", fragments, in_chunk / 2);
    if (last.warps > 1) half = fmt::format("{} * {} + {}", warp_number(last), of_warp / 2, half);
    return fmt::format("{}({}, {}) + j % {} * {} + {} * {}", chunk, row, half, fragments,
                       last.fragment_size(), lane, last.lane_stride);
  }
  if (last.fragment_size() == in_chunk && size == 2)  // the lanes share a chunk
    return fmt::format("{}({}, {}) + {} * {}", chunk, row, column, lane, last.lane_stride * size);
  std::string halves = fmt::format("{} + {} * {}", column, lane, last.lane_stride);
  if (size > 2) halves = fmt::format("({}) * {}", halves, size / 2);
  return fmt::format("{}({}, {}) + lane % {} * {}", chunk, row, halves, in_chunk / last.lane_stride,
                     last.lane_stride * size);
}

/// Opens the loops over what `shared_offset` tells the offset of.
Writer::Scopes KernelPrinter::open_rows(const Shape& shape, bool braces) {
  const AxisLayout& first = shape.layouts[0];
  const bool vector = shape.axes.size() == 1;
  Writer::Scopes scopes;
  scopes.push_back(out_.unrolled("i", first.fragments, braces));
  if (!vector) scopes.push_back(out_.unrolled("j", shape.layouts[1].fragments, braces));
  if (!vector)
    scopes.push_back(out_.repeated("r", first.slots, braces));
  else if (count_in_row(shape) == 1)
    scopes.push_back(out_.unrolled("e", first.slots, braces));
  return scopes;
}

/// A tile of one number, written once by all threads of the block for products to read.
void KernelPrinter::print_constant_tile(const Op& op, double value) {
  const Buffer& buffer = f_[op.buffer];
  const std::string text = number(value, DType::f32);
  out_.comment(fmt::format("{} everywhere", text));
  const std::string name = storage_[op.results[0].index] =
      constant("fc::u32", label(op.results[0]), chunk_base(buffer, "0"));
  auto words = out_.block("for (int word = thread; word < {}; word += {})", buffer.slot_bytes() / 4,
                          schedule_.threads());
  out_.line("fc::store_shared({0} + word * 4, fc::pack<{1}>({2}, {2}));", name,
            element_type(buffer.dtype), text);
}

/// A register tile, rounded to the buffer's type. Threads that hold the same elements write them
/// once.
void KernelPrinter::print_to_shared(const Op& op) {
  const ValueId from = op.operands[0], value = op.results[0];
  const Buffer& buffer = f_[op.buffer];
  const Shape shape = shape_of(from);
  out_.comment(fmt::format("{} in shared memory", label(from)));
  const BufferId over = buffer.over;
  storage_[value.index] = constant(
      "fc::u32", label(value),
      // Rows are moved behind the mapping: in front of it the difference may lie before
      // all shared memory.
      op.blocks
          ? moved_rows(buffer, fmt::format("fc::cluster_address({}, warp % {})",
                                           chunk_base(buffer, cluster_rank_), source_.cluster))
      : over ? chunk_base(f_[over], ring_names_[over].slot)
             : chunk_base(buffer, op.partials.warps > 1 ? warp_number(op.partials)
                                                        : ring_names_[op.buffer].slot));
  if (f_[from].layout.space == Space::opaque) return print_blocks(op);
  if (writes_rows_by_turns(f_, schedule_, op)) return print_row_pairs(op, shape);
  print_elements(op, storage_[value.index]);
}

/// What a conversion or an issue writes, into the slot that begins at `tile`.
void KernelPrinter::print_elements(const Op& op, const std::string& tile) {
  if (writes_matrices(f_, schedule_, op)) return print_matrices(op, tile);
  const ValueId from = op.operands[0];
  const Buffer& buffer = f_[op.buffer];
  const Shape shape = shape_of(from);
  std::string first_row;
  if (computes_addresses_anew(f_, schedule_, op))
    first_row = constant("fc::u32", f_[shape.axes[0]].name + "_here",
                         fmt::format("fc::in_place(static_cast<fc::u32>({}))",
                                     lane_offset(shape.axes[0], shape.layouts[0])));
  Shape held = shape;
  if (op.partials.warps > 1) held.layouts.push_back(op.partials);
  const auto one = out_.guarded(representative(held));
  const auto loops = open_rows(shape, false);
  const std::string address = fmt::format("{} + {}", tile, shared_offset(buffer, shape, first_row));
  const std::string& array = storage_[from.index];
  const int count = count_in_row(shape);
  if (shape.axes.size() == 1 || !is_half(buffer.dtype))
    return out_.line("fc::store_{}<{}>({}, &{});", op.blocks ? "cluster" : "shared", count, address,
                     slot_in_row(array, shape));
  if (count % 2 != 0) throw InternalError("a 16-bit tile without pairs of neighbouring columns");
  std::string packed;
  for (int c = 0; c < count; c += 2)
    append(packed, ", ",
           fmt::format("fc::pack<{}>({}, {})", element_type(buffer.dtype),
                       slot_in_row(array, shape, c), slot_in_row(array, shape, c + 1)));
  out_.line("fc::store_shared({},", address);
  out_.line("                 {});", packed);
}

/// Each lane gives the address of one row of 16 bytes: the row whose address it gives to ldmatrix.
void KernelPrinter::print_matrices(const Op& op, const std::string& tile) {
  const Buffer& buffer = f_[op.buffer];
  const std::vector<AxisLayout>& layouts = f_[op.operands[0]].layout.axes;
  const AxisLayout &rows = layouts[0], &columns = layouts[1];
  std::string row = plus(warp_base(rows), "lane % 16");
  if (computes_addresses_anew(f_, schedule_, op))
    row = fmt::format("fc::in_place(static_cast<fc::u32>({}))", row);
  row = constant("fc::u32", f_[f_[op.operands[0]].type.axes[0]].name + "_given", row);
  const auto i = out_.unrolled("i", rows.fragments, false);
  const auto j = out_.unrolled("j", columns.fragments / 2, false);
  const std::string& array = storage_[op.operands[0].index];
  const std::string address =
      fmt::format("fc::matrix_address<{}, {}>({}, {}, lane / 16 * 8, i * {}, j * 16)", buffer.rows,
                  buffer.columns, tile, row, rows.fragment_size());
  if (f_[op.operands[0]].layout.space == Space::operand)
    return out_.line("fc::store_matrices({}, {}[i][j]);", address, array);
  out_.line("fc::store_matrices<{}>(", element_type(buffer.dtype));
  out_.line("    {0}, {1}[i][2 * j], {1}[i][2 * j + 1]);", address, array);
}

/// All places of a thread follow from one address by constants, which takes no registers in a loop.
void KernelPrinter::print_row_pairs(const Op& op, const Shape& shape) {
  const Buffer& buffer = f_[op.buffer];
  const AxisLayout &rows = shape.layouts[0], &columns = shape.layouts[1];
  constexpr int line = 128;  // bytes of a panel's row, which has four fragments
  const int panel = buffer.rows * line;
  std::string tile = storage_[op.results[0].index];
  if (columns.warps > 1)
    tile += fmt::format(" + {} * {}", warp_number(columns), columns.fragments / 4 * panel);
  const std::string pairs =
      constant("fc::u32", label(op.operands[0]) + "_pairs",
               fmt::format("fc::row_pairs({}, {}, lane)", tile, lane_offset(shape.axes[0], rows)));
  const std::string array = storage_[op.operands[0].index];
  auto i = out_.unrolled("i", rows.fragments, false);
  auto j = out_.unrolled("j", columns.fragments, false);
  auto r = out_.unrolled("r", rows.slots, false);
  out_.line(
      "fc::store_row_pair(({} ^ j % 4 * 32) + j / 4 * {} + i * {} + r * {}, lane / 4, "
      "&{}[i][j][2 * r], &{}[i][j ^ 2][2 * r]);",
      pairs, panel, rows.fragment_size() * line, rows.slot_stride * line, array, array);
}

/// A product's opaque blocks, whose elements find their order in shared memory.
void KernelPrinter::print_blocks(const Op& op) {
  const ValueId from = op.operands[0];
  const int pitch = f_[op.buffer].pitch;
  const AxisLayout &rows = f_[from].layout.axes[0], &columns = f_[from].layout.axes[1];
  auto i = out_.unrolled("i", rows.fragments, false);
  auto j = out_.unrolled("j", columns.fragments, false);
  out_.line("fc::store_block({} + (({} + i * 16) * {} + {} + j * 16) * 4, {}, {}[i][j]);",
            storage_[op.results[0].index], warp_base(rows), pitch, warp_base(columns), pitch,
            storage_[from.index]);
}

/// A tile of shared memory into registers, or the sum (maximum, minimum) of all partials of one.
void KernelPrinter::print_from_shared(const Op& op) {
  const ValueId from = op.operands[0], value = op.results[0];
  const Buffer& buffer = f_[buffer_of(f_, from)];
  const Shape shape = shape_of(value);
  const int count = count_in_row(shape), partials = op.partials.warps;
  if (is_half(buffer.dtype) && count % 2 != 0)
    throw InternalError("a 16-bit tile without pairs of neighbouring columns");
  const bool given = op.code == OpCode::cluster_read;
  out_.comment(partials > 1 ? fmt::format("{}: partials of the warps, combined", label(value))
               : given      ? fmt::format("{} of block {}", label(value), op.rank)
                            : fmt::format("{} from shared memory", label(value)));
  declare(value);
  const std::string base = partials > 1 ? chunk_base(buffer, "0")
                           : given ? moved_rows(buffer, chunk_base(buffer, std::to_string(op.rank)))
                                   : storage_[from.index];
  const auto loops = open_rows(shape, partials > 1);
  const std::string& array = storage_[value.index];
  const std::string first = slot_in_row(array, shape), offset = shared_offset(buffer, shape);
  if (partials == 1) {
    if (is_condition_tile(f_, value))
      out_.line("fc::load_conditions({}, i, j, {} * r, {} + {});", array, count, base, offset);
    else if (is_half(buffer.dtype))
      out_.line("fc::load_shared_halves<{}, {}>(&{}, {} + {});", element_type(buffer.dtype), count,
                first, base, offset);
    else
      out_.line("fc::load_shared<{}>(&{}, {} + {});", count, first, base, offset);
    return;
  }
  const std::string at = constant("fc::u32", "share_at", base + " + " + offset);
  out_.line("fc::load_shared<{}>(&{}, {});", count, first, at);
  // Inside, the only other variable is what the partials are combined into.
  const std::string share = first.starts_with("partial[") ? "next" : "partial";
  auto others = out_.unrolled(share, partials - 1);
  out_.line("float other[{}];", count);
  out_.line("fc::load_shared<{}>(other, {} + ({} + 1) * {});", count, at, share,
            buffer.slot_stride());
  for (int c = 0; c < count; ++c) {
    const std::string mine = slot_in_row(array, shape, c);
    out_.line("{} = {};", mine, combined(op.reduction, mine, fmt::format("other[{}]", c)));
  }
}

// ---- blocks of a cluster: every warp's rows go to one block, warp after warp in turn

/// An address in a slot for the rows of a warp: of the warps whose rows a block gets, the n-th finds
/// them behind those of n others, and not behind those of all warps before it.
std::string KernelPrinter::moved_rows(const Buffer& buffer, const std::string& address) const {
  const int rows_of = (role_->warps + source_.cluster - 1) / source_.cluster;
  return fmt::format("{} - (warp - warp / {}) * {}", address, source_.cluster,
                     buffer.slot_bytes() / rows_of);
}

/// A vector of which each lane holds a part, to lanes that need several of each other's.
void KernelPrinter::print_shuffles(const Op& op) {
  const ValueId from = op.operands[0], value = op.results[0];
  const AxisLayout &held = f_[from].layout.axes[0], &wanted = f_[value].layout.axes[0];
  out_.comment(fmt::format("{} from the lanes that have loaded it", label(value)));
  declare(value);
  auto i = out_.unrolled("i", wanted.fragments, false);
  auto e = out_.unrolled("e", wanted.slots, false);
  const int size = wanted.fragment_size();
  out_.line("{}[i][e] = fc::shuffle({}[i * {} / {}][0], i * {} % {} + e + lane % {} * {});",
            storage_[value.index], storage_[from.index], size, held.lanes, size, held.lanes,
            wanted.lanes, wanted.lane_stride);
}

}  // namespace flashcore
