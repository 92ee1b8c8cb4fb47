// The declarative half of parse(): axes, arguments, buffers, types and layouts.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "dsl/ir/function.h"
#include "dsl/ir/lexer.h"

namespace flashcore::ir {

/// A type, the layout after its `@`, the array after its `in`, and whether that is pinned.
struct TypedLayout {
  TileType type;
  Layout layout;
  int array = 0;
  bool pinned = false;
};

class DeclarationReader {
 public:
  DeclarationReader(Lexer& in, Function& f) : in_(in), f_(f) {}

  /// One line above the body.
  void declaration();

  TypedLayout typed();
  AxisLayout layout();
  AxisId axis() { return AxisId(find(f_.axes, "an axis")); }
  TensorId tensor() { return TensorId(find(f_.tensors, "a tensor")); }
  ParameterId parameter() { return ParameterId(find(f_.parameters, "a parameter")); }
  BufferId buffer() { return BufferId(find(f_.buffers, "a buffer")); }
  int integer(std::string_view what) { return static_cast<int>(in_.integer(what)); }

 private:
  using Names = std::set<std::string, std::less<>>;

  void declare_axis();
  void declare_tensor(bool output);
  void declare_buffer(bool channel);
  Transport transport();
  /// A new name and the colon after it.
  std::string declared(std::string_view what, Names& taken);

  Extent extent();
  DType dtype();
  TileType type();
  Layout value_layout(const TileType& type);

  template <class Things>
  std::size_t find(const Things& things, std::string_view kind) {
    const Token name = in_.word(fmt::format("the name of {}", kind));
    for (std::size_t i = 0; i < things.size(); ++i)
      if (things[i].name == name.text) return i;
    std::string known;
    for (const auto& thing : things) known += (known.empty() ? "" : ", ") + thing.name;
    in_.refuse(name, fmt::format("expected the name of {}", kind),
               fmt::format("found \"{}\"", name.text),
               known.empty() ? "declare it above the body" : "known are " + known);
  }

  Lexer& in_;
  Function& f_;
  Names names_, buffers_;  // a buffer may be called like the tensor it holds a tile of
};

}  // namespace flashcore::ir
