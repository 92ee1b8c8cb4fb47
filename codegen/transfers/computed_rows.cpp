// Copies of tiles whose rows lie at computed positions. What the region of an issue computes becomes
// the text of an expression, with the row's position in the place of `index`; every thread evaluates
// it for the rows of which it copies chunks, in front of the copies.
#include "codegen/print/kernel_printer.h"
#include "codegen/text/index_text.h"

namespace flashcore {

using namespace ir;

namespace {

/// The axis of the rows of a tile that is copied.
AxisId rows_of(const Function& f, const Op& issue) {
  return f[last_of(f, issue.body).operands[0]].type.axes[0];
}

/// Whether a position is known to be in [0, length): what a remainder leaves.
bool is_within(const Function& f, ValueId position, const Extent& length) {
  const Op* op = f.definition(position);
  const double* by = op && op->code == OpCode::mod ? constant_of(f, op->operands[1]) : nullptr;
  return by && *by > 0 && length.is_static() && *by <= static_cast<double>(length.value);
}

}  // namespace

/// What the region yields for the row at a position.
std::vector<std::string> KernelPrinter::position_texts(const Op& issue, const std::string& row) {
  const AxisId rows = rows_of(f_, issue);
  // With one element along it, the axis has its position where the row is.
  const auto outer = begins_;
  begins_[f_.origin(rows).index] = row;
  const Cursor cursor{{{rows}, {AxisLayout{}}}, {"0"}, {"0"}, "0"};
  const auto& ops = f_[issue.body].ops;
  for (OpId id : ops) {
    const Op& op = f_[id];
    if (op.code == OpCode::yield || kind_of(op.code) == OpKind::source) continue;
    const ValueId value = op.results[0];
    std::vector<std::string> operands;
    for (ValueId operand : op.operands) operands.push_back(element(operand, cursor));
    storage_[value.index] = expression(op, operands);
  }
  std::vector<std::string> texts;
  for (ValueId value : f_[ops.back()].operands) texts.push_back(element(value, cursor));
  begins_ = outer;
  return texts;
}

/// Computes the positions of the rows of a tile, but those that `known` arrays hold, and says where
/// each row lies, for each of the loops over chunks.
std::vector<RowPlace> KernelPrinter::locate_rows(const Op& issue, PositionArrays& known) {
  const auto& yielded = last_of(f_, issue.body).operands;
  const std::string first = first_copied(issue, rows_of(f_, issue));
  std::vector<RowPlace> places;
  for (const ChunkLoop& loop : chunk_loops(f_[issue.buffer])) {
    const auto [chunks, rows, rounds] = thread_rows(f_[issue.buffer], loop, source_.threads);
    std::string own = fmt::format("thread / {}", chunks);
    if (rounds > 1) own += fmt::format(" + i * {}", rows);
    const std::string row = fmt::format("({})", plus(first, own)), i = rounds > 1 ? "i" : "0";
    const std::vector<std::string> texts = position_texts(issue, row);
    std::vector<std::string> positions;
    for (std::size_t k = 0; k < texts.size(); ++k) {
      // Two positions of one text differ where threads have other rows.
      const auto [found, added] = known.try_emplace(fmt::format("{}: {}", rounds, texts[k]));
      std::string& array = found->second;
      if (added) {
        const std::string& name = f_[yielded[k]].name;
        array = names_.unique((name.empty() ? "position" : name) + "_of_row");
        out_.line("int {}[{}];", array, rounds);
        const auto loop_down = out_.repeated("i", rounds, false);
        out_.line("{}[{}] = {};", array, i, texts[k]);
      }
      positions.push_back(fmt::format("{}[{}]", array, i));
    }
    places.push_back(place_of_row(issue, row, positions));
  }
  return places;
}

RowPlace KernelPrinter::place_of_row(const Op& issue, const std::string& at,
                                     const std::vector<std::string>& positions) {
  const AxisId rows = rows_of(f_, issue);
  RowPlace place;
  if (f_[rows].may_overrun()) place.exists = fmt::format("{} < {}", at, extent(rows));
  std::size_t yielded = 0;
  for (std::size_t d = 0; d < issue.coordinates.size(); ++d) {
    const Coordinate& c = issue.coordinates[d];
    if (c.axis != rows) continue;
    std::string where = at;
    if (c.computed) {
      const ValueId value = last_of(f_, issue.body).operands[yielded];
      where = positions[yielded++];
      const Extent& length = f_[issue.tensor].dims[d];
      if (!is_within(f_, value, length))
        append(place.exists, " && ",
               fmt::format("fc::within({}, {})", where, fields_.extent(length)));
    }
    const std::string step = row_stride(issue.tensor, d, 1);
    append(place.offset, " + ",
           step == "1" ? where : fmt::format("fc::wide_product({}, {})", where, step));
  }
  if (place.exists.empty()) place.exists = "true";
  return place;
}

}  // namespace flashcore
