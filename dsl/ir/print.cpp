#include "dsl/ir/print.h"

#include <cctype>
#include <cmath>
#include <iterator>
#include <set>

#include <fmt/format.h>

#include "dsl/ir/type_rules.h"

namespace flashcore::ir {
namespace {

/// "4w 2f 2s*8 8l/4": a factor is left out when it says nothing.
std::string layout_text(const AxisLayout& layout) {
  std::string text;
  auto factor = [&](int count, char unit, int divisor, int stride) {
    if (count == 1 && divisor == 1 && stride == 1) return;
    text += fmt::format("{}{}{}", text.empty() ? "" : " ", count, unit);
    if (divisor != 1) text += fmt::format("/{}", divisor);
    if (stride != 1) text += fmt::format("*{}", stride);
  };
  factor(layout.warps, 'w', layout.warp_divisor, 1);
  factor(layout.fragments, 'f', 1, 1);
  factor(layout.slots, 's', 1, layout.slot_stride);
  factor(layout.lanes, 'l', layout.lane_divisor, layout.lane_stride);
  return text;
}

std::string number_text(double number) {
  // A NaN has one spelling: its sign and payload mean nothing here.
  return std::isnan(number) ? "nan" : fmt::format("{}", number);
}

class Printer {
 public:
  explicit Printer(const Function& f) : f_(f), names_(f.values.size()) {}

  std::string whole() {
    line("program {}", f_.name);
    for (const Axis& axis : f_.axes) {
      if (axis.alias_of) {
        line("axis {}: alias {}", axis.name, f_[axis.alias_of].name);
        continue;
      }
      std::string text =
          fmt::format("axis {}: {} {}", axis.name, name_of(axis.kind), axis.extent.text());
      if (axis.ragged) text += " ragged";
      if (!axis.longest.empty()) text += " longest " + axis.longest;
      if (axis.tile) text += fmt::format(" tile {}", axis.tile);
      if (axis.descending) text += " descending";
      if (axis.end_aligned) text += " end_aligned";
      line("{}", text);
    }
    if (!f_.grid.empty()) {
      std::string axes;
      for (AxisId axis : f_.grid) axes += (axes.empty() ? "" : ", ") + f_[axis].name;
      line("grid {}{}", axes, f_.flat_grid ? " flat" : "");
    }
    for (const Parameter& parameter : f_.parameters)
      line("parameter {}: {}{}", parameter.name, name_of(parameter.dtype),
           parameter.positive ? " positive" : "");
    for (const Tensor& tensor : f_.tensors) {
      std::string dims;
      for (const Extent& dim : tensor.dims) dims += (dims.empty() ? "" : ", ") + dim.text();
      const std::string unwritten =
          tensor.unwritten ? " unwritten " + number_text(*tensor.unwritten) : "";
      line("{} {}: {} [{}]{}{}{}{}", tensor.output ? "output" : "input", tensor.name,
           name_of(tensor.dtype), dims, tensor.gathered ? " gathered" : "",
           tensor.unit_stride ? " unit_stride" : "", tensor.aligned_rows ? " aligned_rows" : "",
           unwritten);
    }
    for (const Buffer& buffer : f_.buffers) {
      const bool channel = buffer.transport != Transport::none;
      std::string text =
          fmt::format("{} {}: {} [{}, {}] stages {}", channel ? "channel" : "buffer", buffer.name,
                      name_of(buffer.dtype), buffer.rows, buffer.columns, buffer.stages);
      if (channel) text += fmt::format(" by {}", name_of(buffer.transport));
      if (buffer.blocks > 1) text += fmt::format(" among {}", buffer.blocks);
      if (buffer.pitch) text += fmt::format(" pitch {}", buffer.pitch);
      if (buffer.stride) text += fmt::format(" stride {}", buffer.stride);
      if (buffer.over) text += " over " + f_[buffer.over].name;
      if (buffer.beside) text += " beside " + f_[buffer.beside].name;
      if (buffer.offset) text += fmt::format(" at {}", buffer.offset);
      if (buffer.full) text += fmt::format(" full {}", buffer.full);
      if (buffer.empty) text += fmt::format(" empty {} by {}", buffer.empty, buffer.releases);
      line("{}", text);
    }
    line("{{");
    block(f_.body);
    line("}}");
    return std::move(text_);
  }

  std::string one(const Op& op) { return head(op); }

  const std::string& name(ValueId id) {
    static const std::string missing = "%?";
    if (!id || id.index >= names_.size()) return missing;
    std::string& name = names_[id.index];
    if (!name.empty()) return name;
    std::string wish;
    for (const char c : f_[id].name)
      wish += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
    if (wish.empty()) return name = fmt::format("%{}", next_number_++);
    if (std::isdigit(static_cast<unsigned char>(wish[0])) != 0) wish.insert(0, 1, '_');
    std::string unique = wish;
    for (int i = 1; !taken_.insert(unique).second; ++i) unique = fmt::format("{}_{}", wish, i);
    return name = "%" + unique;
  }

  /// Gives every value the name it has in whole().
  void name_everything(BlockId id) {
    for (const OpId op_id : f_[id].ops) {
      const Op& op = f_[op_id];
      for (const ValueId result : op.results) name(result);
      if (!op.body) continue;
      for (const ValueId argument : f_[op.body].arguments) name(argument);
      name_everything(op.body);
      if (op.otherwise) name_everything(op.otherwise);
    }
  }

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    text_.append(static_cast<std::size_t>(2 * depth_), ' ');
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }

  std::string list(const std::vector<ValueId>& values, std::size_t begin, std::size_t end) {
    std::string text;
    for (std::size_t i = begin; i < end && i < values.size(); ++i)
      text += (i > begin ? ", " : "") + name(values[i]);
    return text;
  }

  std::string typed(ValueId id) {
    if (!id || id.index >= f_.values.size()) return "?";
    const Value& value = f_[id];
    std::string text = describe(f_, value.type);
    const std::string layout = print(f_, value.type, value.layout);
    if (!layout.empty()) text += " @ " + layout;
    if (value.array) text += fmt::format(" in {}", value.array);
    return value.pinned ? text + " pinned" : text;
  }

  /// What the op names, then its operands.
  std::string items(const Op& op) {
    std::string text;
    auto item = [&](const std::string& t) { text += (text.empty() ? " " : ", ") + t; };
    if (op.code == OpCode::constant) item(number_text(op.number));
    if (op.code == OpCode::dimension)
      return fmt::format(" {}, {}", f_[op.tensor].name, static_cast<int>(op.number));
    if (op.parameter) item(f_[op.parameter].name);
    if (op.axis && op.operands.empty()) item(f_[op.axis].name);
    if (op.code == OpCode::gather && op.tensor) {
      std::string indices;
      for (std::size_t d = 0; d < op.operands.size(); ++d)
        indices += fmt::format("{}{}{}", d ? ", " : "", op.wraps >> d & 1 ? "wrap " : "",
                               name(op.operands[d]));
      return fmt::format(" {}[{}]", f_[op.tensor].name, indices);
    }
    if (op.tensor) {
      std::string coordinates;
      for (const Coordinate& c : op.coordinates) {
        if (!coordinates.empty()) coordinates += ", ";
        const std::string where = c.axis    ? f_[c.axis].name
                                  : c.value ? name(c.value)
                                            : std::string();
        coordinates += !c.computed ? where : where.empty() ? "by" : "by " + where;
      }
      item(fmt::format("{}[{}]", f_[op.tensor].name, coordinates));
    }
    for (const ValueId operand : op.operands) item(name(operand));
    return text;
  }

  std::string attributes(const Op& op) {
    std::string text;
    if (op.axis && !op.operands.empty()) text += " along " + f_[op.axis].name;
    if (op.partials != AxisLayout{}) text += fmt::format("({})", layout_text(op.partials));
    if (op.buffer) text += " in " + f_[op.buffer].name;
    if (op.scope == ReductionScope::lane) text += " by lane";
    if (op.scope == ReductionScope::warp) text += " by warp";
    if (op.code == OpCode::combine_partials) text += fmt::format(" of {}", name_of(op.reduction));
    const bool always = op.code == OpCode::wait_products || (op.code == OpCode::wait && !op.buffer);
    if (always || op.pending) text += fmt::format(" pending {}", op.pending);
    if (op.blocks) text += fmt::format(" among {}", op.blocks);
    if (op.box_rows) text += fmt::format(" boxes of {} rows", op.box_rows);
    if (op.acquires) text += " acquiring";
    if (op.code == OpCode::cluster_read) text += fmt::format(" from {}", op.rank);
    if (op.rounding != OperandRounding::none) text += fmt::format(" as {}", name_of(op.rounding));
    if (op.instruction) text += fmt::format(" using {}", name_of(*op.instruction));
    if (op.inside) text += " inside";
    if (op.fence) text += fmt::format(" fence {}", op.fence);
    if (op.accumulation != Accumulation::none) text += " adding";
    if (op.accumulation == Accumulation::in_order)
      text += fmt::format(" in order of {}", op.turns ? f_[op.turns].name : "?");
    if (op.issued) text += " issued";
    if (op.precise) text += " precise";
    if (op.descending) text += " descending";
    return text;
  }

  std::string loop_head(const Op& op) {
    std::string text = op.axis ? " " + f_[op.axis].name : "";
    const std::size_t bounds = static_cast<std::size_t>(op.bounds);
    if (bounds == 1) text += " to " + list(op.operands, 0, 1);
    if (bounds > 1)
      text += fmt::format(" from {} to {}", list(op.operands, 0, bounds / 2),
                          list(op.operands, bounds / 2, bounds));
    if (op.buffer) text += " in " + f_[op.buffer].name;
    if (op.code == OpCode::tile_loop) text += fmt::format(" {}", name_of(op.scheduler));
    return text + (op.descending ? " descending" : "") + (op.unordered ? " unordered" : "");
  }

  static std::string role_head(const Op& op) {
    std::string text = " " + op.name;
    if (op.warps) text += fmt::format(" warps {} to {}", op.first_warp, op.first_warp + op.warps);
    if (op.registers)
      text += fmt::format(" registers {} from {}", op.registers, op.registers_at_start);
    return text;
  }

  std::string head(const Op& op) {
    std::string text = list(op.results, 0, op.results.size());
    if (!text.empty()) text += " = ";
    text += name_of(op.code);
    if (op.code == OpCode::role) return text + role_head(op);
    const bool loops = op.body && !is_plain(op.code) && op.code != OpCode::issue;
    text += loops ? loop_head(op) : items(op) + attributes(op);
    if (op.results.empty() || (op.body && results_follow_arguments(op))) return text;
    for (std::size_t i = 0; i < op.results.size(); ++i)
      text += (i ? ", " : " : ") + typed(op.results[i]);
    return text;
  }

  /// The results of a loop have the types and layouts of its carried values, and need no list of
  /// their own.
  bool results_follow_arguments(const Op& op) {
    if (is_plain(op.code)) return false;
    const std::vector<ValueId>& arguments = f_[op.body].arguments;
    if (arguments.size() != op.results.size() + 1) return false;
    for (std::size_t i = 0; i < op.results.size(); ++i) {
      const Value &result = f_[op.results[i]], &argument = f_[arguments[i + 1]];
      if (result.type != argument.type || result.layout != argument.layout) return false;
    }
    return true;
  }

  /// What the first argument of a region is the number of.
  static std::string_view counted_by(const Op& op) {
    if (op.code == OpCode::issue) return "row";
    return op.axis || op.code == OpCode::tile_loop ? "tile" : "count";
  }

  void arguments_of(const Op& op) {
    const std::vector<ValueId>& arguments = f_[op.body].arguments;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const std::size_t operand = static_cast<std::size_t>(op.bounds) + i - 1;
      if (i == 0)
        line("{} {} : {}", counted_by(op), name(arguments[0]), typed(arguments[0]));
      else
        line("carry {} = {} : {}", name(arguments[i]),
             operand < op.operands.size() ? name(op.operands[operand]) : "%?", typed(arguments[i]));
    }
  }

  void block(BlockId id) {
    ++depth_;
    for (const OpId op_id : f_[id].ops) {
      const Op& op = f_[op_id];
      line("{}{}", head(op), op.body ? " {" : "");
      if (!op.body) continue;
      ++depth_;
      arguments_of(op);
      --depth_;
      block(op.body);
      if (op.otherwise) {
        line("}} else {{");
        block(op.otherwise);
      }
      line("}}");
    }
    --depth_;
  }

  const Function& f_;
  std::vector<std::string> names_;
  std::set<std::string> taken_;
  std::string text_;
  int depth_ = 0, next_number_ = 0;
};

}  // namespace

std::string print(const Function& f) { return Printer(f).whole(); }

std::string print(const Function& f, const Op& op) {
  Printer printer(f);
  if (f.body) printer.name_everything(f.body);
  return printer.one(op);
}

std::string print(const Function& f, ValueId value) {
  Printer printer(f);
  if (f.body) printer.name_everything(f.body);
  return printer.name(value);
}

std::string print(const Function& f, const TileType& type, const Layout& layout) {
  std::string text;
  if (layout.space == Space::shared) return "shared";
  if (layout.space == Space::none) return "";
  if (layout.space == Space::operand) text = "operand";
  if (layout.space == Space::opaque) text = "opaque";
  if (layout.space == Space::registers && layout.axes.empty()) return "registers";
  for (std::size_t i = 0; i < layout.axes.size(); ++i)
    text +=
        fmt::format("{}{}({})", text.empty() ? "" : " ",
                    i < type.axes.size() ? f[type.axes[i]].name : "?", layout_text(layout.axes[i]));
  return text;
}

}  // namespace flashcore::ir
