#include "dsl/ir/parse.h"

#include <cctype>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "dsl/ir/declaration_reader.h"
#include "dsl/ir/lexer.h"

namespace flashcore::ir {
namespace {

std::optional<OpCode> find_code(std::string_view name) {
#define FC_OP(code, kind, meaning) \
  if (name == name_of(OpCode::code)) return OpCode::code;
#include "dsl/ir/ops.def"
#undef FC_OP
  return std::nullopt;
}

std::optional<Instruction> find_instruction(std::string_view name) {
  for (int i = 0; name_of(static_cast<Instruction>(i)) != "?"; ++i)
    if (name_of(static_cast<Instruction>(i)) == name) return static_cast<Instruction>(i);
  return std::nullopt;
}

class Parser {
 public:
  Parser(std::string_view text, std::string file_name) : in_(text, std::move(file_name)) {}

  Function whole() {
    in_.expect("program");
    f_.name = in_.word("the name of the program").text;
    in_.line_end();
    while (!in_.at("{")) names_.declaration();
    in_.expect("{");
    in_.line_end();
    f_.body = f_.add_block();
    block(f_.body);
    if (!in_.at(Token::Kind::text_end)) in_.expected("the end of the text");
    return std::move(f_);
  }

 private:
  ValueId use() {
    const Token token = in_.value("a value, such as %scores");
    const auto found = values_.find(std::string(token.text));
    if (found == values_.end())
      in_.refuse(token, fmt::format("%{} is not defined", token.text),
                 "a value is used after the line that makes it; found it", "define it above");
    return found->second;
  }

  std::vector<ValueId> uses() {
    std::vector<ValueId> values{use()};
    while (in_.take(",")) values.push_back(use());
    return values;
  }

  /// Numbers stand for values without a name.
  void define(const Token& token, ValueId id, TypedLayout typed) {
    if (!values_.emplace(token.text, id).second)
      in_.refuse(token, fmt::format("a second definition of %{}", token.text),
                 "every value is defined once; found another one");
    if (std::isdigit(static_cast<unsigned char>(token.text[0])) == 0) f_[id].name = token.text;
    f_[id].layout = std::move(typed.layout);
    f_[id].array = typed.array;
    f_[id].pinned = typed.pinned;
  }

  void block(BlockId id) {
    // A loop goes over an axis of its own, and a block is walked on the stack.
    constexpr int deepest = 64;
    if (++depth_ > deepest)
      in_.refuse(in_.peek(), fmt::format("blocks nested more than {} deep", deepest),
                 "every one is a loop or a role; found one more");
    while (!in_.take("}")) statement(id);
    --depth_;
    if (!in_.at("else")) in_.line_end();
  }

  void statement(BlockId block) {
    Op op;
    op.where = in_.where();
    std::vector<Token> results;
    if (in_.at(Token::Kind::value)) {
      do results.push_back(in_.value("a value, such as %scores"));
      while (in_.take(","));
      in_.expect("=");
    }
    if (!in_.at(Token::Kind::word)) in_.expected("an operation or \"}\"");
    const std::optional<OpCode> code = find_code(in_.peek().text);
    if (!code) in_.expected("an operation", "dsl/ir/ops.def lists them");
    in_.next();
    op.code = *code;
    if (op.code == OpCode::loop || op.code == OpCode::scan_tiles || op.code == OpCode::tile_loop) {
      loop(block, std::move(op), results);
      return;
    }
    if (op.code == OpCode::role) {
      role(block, std::move(op));
      return;
    }
    if (is_plain(op.code)) {
      conditional(block, std::move(op), results);
      return;
    }
    items(op);
    while (attribute(op)) {
    }
    std::vector<TypedLayout> types;
    if (in_.at(":")) types = result_types();
    if (op.code == OpCode::issue && in_.at("{")) {
      op.body = region("row");
      append(block, std::move(op), results, std::move(types));
      return;
    }
    append(block, std::move(op), results, std::move(types));
    in_.line_end();
  }

  /// One that may begin with a line for its argument, if that has a word.
  BlockId region(std::string_view word_of_argument = {}) {
    in_.expect("{");
    in_.line_end();
    const BlockId body = f_.add_block();
    if (!word_of_argument.empty() && in_.take(word_of_argument)) {
      argument(body);
      in_.line_end();
    }
    block(body);
    return body;
  }

  std::vector<TypedLayout> result_types() {
    std::vector<TypedLayout> types;
    in_.expect(":");
    do types.push_back(names_.typed());
    while (in_.take(","));
    return types;
  }

  void append(BlockId block, Op op, const std::vector<Token>& names,
              std::vector<TypedLayout> typed) {
    if (names.size() != typed.size())
      throw SpecError({fmt::format("expected a type for each result of {}", name_of(op.code)),
                       fmt::format("found {} names before \"=\" and {} types after \":\"",
                                   names.size(), typed.size()),
                       "one type for each name, as in %x = neg %y : f32[rows]", op.where});
    std::vector<TileType> types;
    for (const TypedLayout& t : typed) types.push_back(t.type);
    const OpId id = f_.add_op(std::move(op), types);
    f_[block].ops.push_back(id);
    for (std::size_t i = 0; i < names.size(); ++i)
      define(names[i], f_[id].results[i], std::move(typed[i]));
  }

  /// What the op names and its operands. A word in first place may also be an attribute already.
  void items(Op& op) {
    if (op.code == OpCode::undefined) return;
    if (op.code == OpCode::dimension) {
      op.tensor = names_.tensor();
      in_.expect(",");
      op.number = names_.integer("the number of a dimension");
      return;
    }
    const bool named = kind_of(op.code) == OpKind::source;
    if (op.code != OpCode::constant &&
        (asks_who_runs(op.code) || in_.at(Token::Kind::line_end) || in_.at(":")))
      return;
    if (!named && in_.at(Token::Kind::word) && !in_.followed_by('[')) return;
    do {
      if (op.code == OpCode::constant)
        op.number = in_.number("a number");
      else if (in_.at(Token::Kind::value))
        op.operands.push_back(use());
      else if (op.code == OpCode::parameter)
        op.parameter = names_.parameter();
      else if (named)
        op.axis = names_.axis();
      else
        tensor(op);
    } while (in_.take(","));
  }

  void tensor(Op& op) {
    op.tensor = names_.tensor();
    in_.expect("[");
    while (!in_.take("]")) {
      if (!op.coordinates.empty()) in_.expect(",");
      Coordinate c;
      if (op.code == OpCode::gather && in_.take("wrap"))
        op.wraps |= static_cast<std::uint8_t>(1U << op.coordinates.size());
      c.computed = op.code == OpCode::issue && in_.take("by");
      const bool of_all_rows = c.computed && (in_.at(",") || in_.at("]"));
      if (!c.computed && in_.at(Token::Kind::value))
        c.value = use();
      else if (op.code == OpCode::gather)
        in_.expected("a value, such as %row");
      else if (!of_all_rows)
        c.axis = names_.axis();
      op.coordinates.push_back(c);
    }
    if (op.code != OpCode::gather) return;
    for (const Coordinate& c : op.coordinates) op.operands.push_back(c.value);
    op.coordinates.clear();
  }

  bool attribute(Op& op) {
    if (in_.take("along")) {
      op.axis = names_.axis();
      if (in_.at("(")) op.partials = names_.layout();
    } else if (in_.take("adding")) {
      op.accumulation = Accumulation::any_order;
      if (in_.take("in")) {
        in_.expect("order");
        in_.expect("of");
        op.accumulation = Accumulation::in_order;
        op.turns = names_.tensor();
      }
    } else if (in_.take("in")) {
      op.buffer = names_.buffer();
    } else if (in_.take("by")) {
      op.scope = in_.take("warp") ? ReductionScope::warp : ReductionScope::lane;
      if (op.scope == ReductionScope::lane) in_.expect("lane");
    } else if (in_.take("of")) {
      const std::optional<OpCode> code = find_code(in_.peek().text);
      if (!code || kind_of(*code) != OpKind::reduction) in_.expected("a reduction");
      in_.next();
      op.reduction = *code;
    } else if (in_.take("pending")) {
      op.pending = names_.integer("a number of groups");
    } else if (in_.take("among")) {
      op.blocks = names_.integer("a number of blocks");
    } else if (in_.take("boxes")) {
      in_.expect("of");
      op.box_rows = names_.integer("a number of rows");
      in_.expect("rows");
    } else if (in_.take("acquiring")) {
      op.acquires = true;
    } else if (in_.take("from")) {
      op.rank = names_.integer("the number of a block");
    } else if (in_.take("as")) {
      if (!in_.take(name_of(OperandRounding::tf32)))
        in_.expected("what operands are rounded to: tf32");
      op.rounding = OperandRounding::tf32;
    } else if (in_.take("using")) {
      op.instruction = find_instruction(in_.peek().text);
      if (!op.instruction) in_.expected("an instruction", "dsl/instruction.h lists them");
      in_.next();
    } else if (in_.take("inside")) {
      op.inside = true;
    } else if (in_.take("fence")) {
      op.fence = names_.integer("a number of fragments");
    } else if (in_.take("issued")) {
      op.issued = true;
    } else if (in_.take("precise")) {
      op.precise = true;
    } else if (in_.take("descending")) {
      op.descending = true;
    } else {
      return false;
    }
    return true;
  }

  void role(BlockId outer, Op op) {
    op.name = in_.word("the name of the role").text;
    if (in_.take("warps")) {
      const Token first = in_.peek();
      op.first_warp = names_.integer("the number of a warp");
      in_.expect("to");
      const int behind = names_.integer("the number behind that of the last warp");
      if (op.first_warp < 0 || behind <= op.first_warp)
        in_.refuse(first, "expected the numbers of a role's warps",
                   fmt::format("found {} to {}", op.first_warp, behind),
                   "the first, and the one behind the last, as in warps 0 to 8");
      op.warps = behind - op.first_warp;
    }
    if (in_.take("registers")) {
      op.registers = names_.integer("the registers of a thread");
      in_.expect("from");
      op.registers_at_start = names_.integer("the registers that a thread starts with");
    }
    in_.expect("{");
    in_.line_end();
    op.body = f_.add_block();
    const BlockId body = op.body;
    block(body);
    append(outer, std::move(op), {}, {});
  }

  void conditional(BlockId outer, Op op, const std::vector<Token>& results) {
    if (op.code == OpCode::if_) op.operands = uses();
    while (attribute(op)) {
    }
    std::vector<TypedLayout> types;
    if (in_.at(":")) types = result_types();
    op.body = region();
    if (in_.take("else")) op.otherwise = region();
    append(outer, std::move(op), results, std::move(types));
  }

  void loop(BlockId outer, Op op, const std::vector<Token>& results) {
    const bool over_tiles = op.code == OpCode::tile_loop;
    if (op.code == OpCode::scan_tiles || (!over_tiles && !in_.at("from"))) op.axis = names_.axis();
    if (over_tiles && in_.take("to")) {
      op.operands = {use()};
      op.bounds = 1;
    }
    if (in_.take("from")) {
      op.operands = uses();
      in_.expect("to");
      const std::vector<ValueId> ends = uses();
      if (ends.size() != op.operands.size())
        in_.expected("as many bounds after \"to\" as before it");
      op.operands.insert(op.operands.end(), ends.begin(), ends.end());
      op.bounds = static_cast<int>(op.operands.size());
    }
    if (in_.take("in")) op.buffer = names_.buffer();
    if (op.code == OpCode::tile_loop) op.scheduler = scheduler();
    op.descending = in_.take("descending");
    op.unordered = in_.take("unordered");
    std::vector<TypedLayout> types;
    if (in_.at(":")) types = result_types();
    in_.expect("{");
    in_.line_end();

    op.body = f_.add_block();
    in_.expect(op.axis || op.code == OpCode::tile_loop ? "tile" : "count");
    argument(op.body);
    in_.line_end();
    std::vector<TypedLayout> carried;
    while (in_.take("carry")) {
      const Token name = in_.value("the name of the carried value");
      in_.expect("=");
      op.operands.push_back(use());
      in_.expect(":");
      carried.push_back(names_.typed());
      define(name, f_.add_argument(op.body, carried.back().type), carried.back());
      in_.line_end();
    }
    if (types.empty()) types = carried;
    if (results.size() != carried.size())
      throw SpecError({"expected a line \"carry\" for each result of loop",
                       fmt::format("found {} names before \"=\" and {} carried values",
                                   results.size(), carried.size()),
                       "", op.where});
    const BlockId body = op.body;
    block(body);
    append(outer, std::move(op), results, std::move(types));
  }

  TileScheduler scheduler() {
    for (int i = 0; i <= static_cast<int>(TileScheduler::dynamic); ++i)
      if (const auto one = static_cast<TileScheduler>(i); in_.take(name_of(one))) return one;
    in_.expected("a tile scheduler: consecutive, serpentine or dynamic");
  }

  void argument(BlockId block) {
    const Token name = in_.value("the name of the number");
    in_.expect(":");
    const TypedLayout t = names_.typed();
    define(name, f_.add_argument(block, t.type), t);
  }

  Lexer in_;
  Function f_;
  DeclarationReader names_{in_, f_};
  std::map<std::string, ValueId> values_;
  int depth_ = 0;
};

}  // namespace

Function parse(std::string_view text, std::string file_name) {
  return Parser(text, std::move(file_name)).whole();
}

}  // namespace flashcore::ir
