#include "dsl/expression.h"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>

#include "dsl/expression_text.h"
#include "dsl/program_builder.h"

namespace flashcore {
namespace {

using Names = std::map<std::string, Tile, std::less<>>;

// The values of an expression and the axes and arguments of the kernel around it.
constexpr std::array taken_names{
    "score", "b",    "h",    "q_idx", "kv_idx", "q_len",  "kv_len",  "inf",      "true",
    "false", "wrap", "q",    "k",     "v",      "o",      "lse",     "scale",    "batch",
    "head",  "rows", "cols", "d",     "dv",     "q_lens", "kv_lens", "max_q_len"};
// What reads better under another name beside it: functions, and lengths of the kernel.
constexpr std::array other_meanings{"abs",  "min",  "max",   "where", "exp",   "exp2",  "log",
                                    "log2", "sqrt", "tanh",  "floor", "sin",   "cos",   "tan",
                                    "atan", "erf",  "expm1", "log1p", "round", "float", "int",
                                    "B",    "H",    "Hk",    "Sq",    "Sk",    "Tq",    "Tk"};

template <class List>
bool contains(const List& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

bool is_taken(std::string_view name) {
  return contains(taken_names, name) || name.starts_with("probe_") ||
         name.starts_with("cu_seqlens");
}

/// As near to the wish as letters, digits and underscores are, a letter first, and not too long.
std::string as_word(std::string_view wish) {
  // The end of a long name tells it from others that begin alike.
  constexpr std::size_t longest = 64, tail = 16;
  std::string name(wish.substr(std::min(wish.find_first_not_of('_'), wish.size())));
  if (name.size() > longest) name.erase(longest - tail, name.size() - longest);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  for (char& c : name)
    if (!is_letter(c) && !is_digit(c)) c = '_';
  name.erase(0, std::min(name.find_first_not_of('_'), name.size()));
  if (name.empty() || !is_letter(name[0])) name = fmt::format("t{}", name);
  return name;
}

/// A program that holds one expression over scalars: what lambdas are traced in and texts checked
/// in.
struct Scratch {
  ProgramBuilder builder{"expression"};
  Tile score = builder.scalar("score", DType::f32);
  ScoreSite site{builder.scalar("b", DType::i32),     builder.scalar("h", DType::i32),
                 builder.scalar("q_idx", DType::i32), builder.scalar("kv_idx", DType::i32),
                 builder.scalar("q_len", DType::i32), builder.scalar("kv_len", DType::i32)};
  std::size_t own_parameters = builder.function().parameters.size();
};

Names names_of(const ScoreSite& site) {
  Names names{{"b", site.batch},
              {"h", site.head},
              {"q_idx", site.query_index},
              {"q_len", site.query_length},
              {"kv_len", site.key_length}};
  if (site.key_index.owner()) names.emplace("kv_idx", site.key_index);
  return names;
}

/// The tensor arguments of a program by name.
std::map<std::string, Tensor, std::less<>> tensors_of(ProgramBuilder& builder) {
  std::map<std::string, Tensor, std::less<>> tensors;
  const auto& all = builder.function().tensors;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].gathered) tensors.emplace(all[i].name, Tensor(&builder, ir::TensorId(i)));
  return tensors;
}

Captured captured_of(const ir::Tensor& tensor) {
  return {tensor.name, tensor.dtype, static_cast<int>(tensor.dims.size()), tensor.unit_stride,
          tensor.aligned_rows};
}

[[noreturn]] void refuse_two(const Captured& one, const Captured& other) {
  const auto described = [](const Captured& c) {
    return fmt::format("{} with {} dimensions{}{}", name_of(c.dtype), c.rank,
                       c.unit_stride ? ", the last of unit stride" : "",
                       c.aligned_rows ? ", with aligned rows" : "");
  };
  throw SpecError({fmt::format("two captured tensors named {}", one.name),
                   fmt::format("one is {}, the other {}", described(one), described(other)),
                   "rename one",
                   {}});
}

/// A captured number: a scalar argument, which the block that declares it may read everywhere.
Tile declared_number(ProgramBuilder& builder, const Captured& captured) {
  const ir::Function& f = builder.function();
  for (std::size_t i = 0; i < f.values.size(); ++i) {
    const ir::Op* op = f.definition(ir::ValueId(i));
    if (!op || op->code != ir::OpCode::parameter || f[op->parameter].name != captured.name)
      continue;
    const Captured other{captured.name, f[op->parameter].dtype, 0};
    if (other != captured) refuse_two(other, captured);
    return {&builder, ir::ValueId(i)};
  }
  return builder.scalar(captured.name, captured.dtype);
}

Tensor declared(ProgramBuilder& builder, const Captured& captured) {
  const auto known = tensors_of(builder);
  if (const auto found = known.find(captured.name); found != known.end()) {
    const ir::Tensor& tensor = builder.function()[found->second.id()];
    const Captured other = captured_of(tensor);
    if (other == captured) return found->second;
    refuse_two(other, captured);
  }
  std::vector<Extent> dims;
  for (int i = 0; i < captured.rank; ++i)
    dims.emplace_back(fmt::format("{}_n{}", captured.name, i));
  return builder.gathered_input(captured.name, captured.dtype, std::move(dims),
                                captured.unit_stride, captured.aligned_rows);
}

Tile read(const Expression& expression, Names names) {
  ProgramBuilder& builder = *names.begin()->second.owner();
  declare_captured(builder, expression.tensors);
  for (const Captured& captured : expression.tensors)
    if (captured.rank == 0) names.emplace(captured.name, declared_number(builder, captured));
  return read_expression(builder, expression.text, names, tensors_of(builder));
}

void require(bool holds, const char* what, const Tile& tile, const char* why, const char* fix) {
  if (!holds)
    throw SpecError({fmt::format("{} that gives {}", what, name_of(tile.dtype())), why, fix, {}});
}

Tile as_condition(const Tile& tile) {
  require(tile.dtype() == DType::i1, "a mask", tile, "it says which scores are kept",
          "compare something, as in q_idx >= kv_idx");
  return tile;
}

Tile as_number(const char* what, const Tile& tile) {
  require(tile.dtype() != DType::i1, what, tile, "it is a number", "where(condition, a, b)");
  return cast(tile, DType::f32);
}

/// The text of what a lambda has built in the scratch program, and the tensors it has read.
template <class Traced>
void finish_trace(Traced& traced, Scratch& scratch, const Tile& result) {
  if (result.owner() != &scratch.builder)
    throw SpecError({"an expression that does not come from its arguments",
                     "the function returned an empty tile, or one of another program",
                     "return a Tile computed from the score or the site",
                     {}});
  traced.text = write_expression(scratch.builder.function(), result.id());
  const ir::Function& f = scratch.builder.function();
  for (const ir::Tensor& tensor : f.tensors) traced.tensors.push_back(captured_of(tensor));
  for (std::size_t i = scratch.own_parameters; i < f.parameters.size(); ++i)
    traced.tensors.push_back({f.parameters[i].name, f.parameters[i].dtype, 0});
}

Mask combine(const Mask& a, const Mask& b, Tile (*operation)(Operand, Operand)) {
  return Mask([&](const ScoreSite& s) { return operation(apply(a, s), apply(b, s)); });
}

template <class Kind, class Apply>
std::vector<std::string> reasons_against(const Kind& expression, Apply apply) {
  try {
    for (const Captured& tensor : expression.tensors)
      if (is_taken(tensor.name) || as_word(tensor.name) != tensor.name)
        return {
            fmt::format("a captured tensor named {}: the name has a meaning already; rename it, "
                        "for example to {}",
                        tensor.name, captured_name(tensor.name))};
      else if (tensor.rank < 0 || tensor.rank > 5)
        return {
            fmt::format("the captured tensor {} has {} dimensions: it needs 1 to 5, or none for "
                        "a number; reshape it",
                        tensor.name, tensor.rank)};
      else if (tensor.rank == 0 && tensor.dtype != DType::i32 && tensor.dtype != DType::f32)
        return {fmt::format("the captured number {} is {}: numbers are i32 or f32; convert it",
                            tensor.name, name_of(tensor.dtype))};
      else if (tensor.aligned_rows && !tensor.unit_stride)
        return {
            fmt::format("the captured tensor {} has aligned_rows without unit_stride: rows have "
                        "their elements side by side; promise both, or neither",
                        tensor.name)};
      else if (tensor.aligned_rows && !is_tile_type(tensor.dtype))
        return {fmt::format(
            "the captured tensor {} is {} and has aligned_rows: aligned rows let tiles be "
            "loaded, and tiles hold f16, bf16, f32, i32 or i1; leave aligned_rows "
            "out, or convert the tensor",
            tensor.name, name_of(tensor.dtype))};
    Scratch scratch;
    apply(scratch);
  } catch (const Error& error) {
    const Complaint& c = error.complaint();
    return {c.what + ": " + c.why + (c.fix.empty() ? "" : "; " + c.fix)};
  }
  return {};
}

}  // namespace

bool Expression::looks_up() const {
  return std::any_of(tensors.begin(), tensors.end(), [](const Captured& c) { return c.rank > 0; });
}

Tile Captured::read(const std::vector<Operand>& indices) const {
  for (const Operand& index : indices)
    if (index.is_tile()) return gather(declared(*index.tile.owner(), *this), indices);
  throw SpecError({fmt::format("{} indexed by numbers alone", name),
                   "there is no program to add it to",
                   "use one of the site's positions",
                   {}});
}

Mask::Mask(const std::function<Tile(const ScoreSite&)>& visible) {
  Scratch scratch;
  finish_trace(*this, scratch, as_condition(visible(scratch.site)));
}
Score::Score(const std::function<Tile(Tile, const ScoreSite&)>& modify) {
  Scratch scratch;
  finish_trace(*this, scratch, modify(scratch.score, scratch.site));
}
Sink::Sink(const std::function<Tile(const ScoreSite&)>& logit) {
  Scratch scratch;
  finish_trace(*this, scratch, logit(scratch.site));
}

Mask operator&(const Mask& a, const Mask& b) {
  if (a.is_full()) return b;
  if (b.is_full()) return a;
  return combine(a, b, [](Operand x, Operand y) { return x && y; });
}
Mask operator|(const Mask& a, const Mask& b) {
  if (a.is_full() || b.is_full()) return {};
  return combine(a, b, [](Operand x, Operand y) { return x || y; });
}
Mask operator~(const Mask& a) {
  return Mask([&](const ScoreSite& s) { return !apply(a, s); });
}

Tile apply(const Mask& mask, const ScoreSite& site) {
  return as_condition(read(mask, names_of(site)));
}
Tile apply(const Score& score, const Tile& value, const ScoreSite& site) {
  Names names = names_of(site);
  names.emplace("score", value);
  return as_number("a score", read(score, std::move(names)));
}
Tile apply(const Sink& sink, const ScoreSite& site) {
  return as_number(
      "a sink",
      read(sink,
           names_of(
               {site.batch, site.head, site.query_index, {}, site.query_length, site.key_length})));
}

std::vector<std::string> check(const Mask& mask) {
  return reasons_against(mask, [&](Scratch& s) { apply(mask, s.site); });
}
std::vector<std::string> check(const Score& score) {
  return reasons_against(score, [&](Scratch& s) { apply(score, s.score, s.site); });
}
std::vector<std::string> check(const Sink& sink) {
  return reasons_against(sink, [&](Scratch& s) { apply(sink, s.site); });
}

void declare_captured(ProgramBuilder& builder, const std::vector<Captured>& tensors) {
  for (const Captured& tensor : tensors)
    if (tensor.rank == 0)
      declared_number(builder, tensor);
    else
      declared(builder, tensor);
}

std::string captured_name(std::string_view wish) {
  const std::string name = as_word(wish);
  return is_taken(name) || contains(other_meanings, name) ? name + "_" : name;
}

}  // namespace flashcore
