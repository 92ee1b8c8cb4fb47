// Copies of tiles whose rows lie at computed positions: the region of the issue is printed once for
// each row that a thread copies, with the row's position in the place of `index`.
#include "codegen/passes/rewrite.h"
#include "codegen/transfers/tile_mover.h"

namespace flashcore {

using namespace ir;

namespace {

/// Whether a position is known to be in [0, length): what a remainder leaves.
bool is_within(const Function& f, ValueId position, const Extent& length) {
  const Op* op = f.definition(position);
  const double* by = op && op->code == OpCode::mod ? constant_of(f, op->operands[1]) : nullptr;
  return by && *by > 0 && length.is_static() && *by <= static_cast<double>(length.value);
}

}  // namespace

TileMover::RowPlace TileMover::place_of_row(const Op& issue, AxisId rows,
                                            const std::string& position) {
  const std::string at = names_.unique(f_[rows].name + "_at");
  out_.line("const int {} = {};", at, position);
  // With one element along it, the axis has its position where the row is.
  const auto outer = begins_;
  begins_[f_.origin(rows).index] = at;
  const Cursor cursor{{rows}, {"0"}, {"0"}, "0", {AxisLayout{}}};
  RowPlace place{.locals = {at}};
  const auto& ops = f_[issue.body].ops;
  for (OpId id : ops) {
    const Op& op = f_[id];
    if (op.code == OpCode::yield || kind_of(op.code) == OpKind::source) continue;
    const ValueId value = op.results[0];
    std::vector<std::string> operands;
    for (ValueId operand : op.operands) operands.push_back(element(operand, cursor));
    storage_[value.index] = names_.unique(f_[value].name);
    place.locals.push_back(storage_[value.index]);
    if (!f_[value].type.is_scalar()) inlined_.insert(value);
    out_.line("const {} {} = {};", array_type(value), storage_[value.index],
              expression(op, operands));
  }
  const auto add = [&](const std::string& where, std::size_t d) {
    const std::string step = stride(issue.tensor, d);
    place.offset += fmt::format("{}{}{}", place.offset.empty() ? "" : " + ", where,
                                step == "1" ? "" : " * " + step);
  };
  std::size_t yielded = 0;
  for (std::size_t d = 0; d < issue.coordinates.size(); ++d) {
    const Coordinate& c = issue.coordinates[d];
    if (c.axis != rows) continue;
    if (!c.computed) {
      add(at, d);
      continue;
    }
    const ValueId value = f_[ops.back()].operands[yielded++];
    const Extent& length = f_[issue.tensor].dims[d];
    const std::string where = element(value, cursor);
    add(where, d);
    if (!is_within(f_, value, length))
      place.inside += fmt::format("{}fc::within({}, {})", place.inside.empty() ? "" : " && ", where,
                                  extent_text(length));
  }
  begins_ = outer;
  return place;
}

}  // namespace flashcore
