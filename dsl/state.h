// Loop-carried state is a plain struct of tiles, or of lists of tiles. This walks its members in
// order, so that a loop can carry them without the author listing them twice.
#pragma once

#include <concepts>
#include <vector>

#include "dsl/tile.h"

namespace flashcore::detail {

struct ConvertsToMember {
  operator Tile() const;               // NOLINT(google-explicit-constructor)
  operator std::vector<Tile>() const;  // NOLINT(google-explicit-constructor)
};

template <class State, class... Fields>
consteval int count_fields() {
  if constexpr (requires { State{Fields{}..., ConvertsToMember{}}; })
    return count_fields<State, Fields..., ConvertsToMember>();
  else
    return sizeof...(Fields);
}

/// Calls visit(Tile&) for the tile itself, for those of a list, or for those of up to eight members.
template <class State, class Visit>
void for_each_tile(State& state, Visit&& visit) {
  if constexpr (std::same_as<std::remove_const_t<State>, Tile>) {
    visit(state);
  } else if constexpr (std::same_as<std::remove_const_t<State>, std::vector<Tile>>) {
    for (auto& tile : state) visit(tile);
  } else {
    constexpr int n = count_fields<std::remove_const_t<State>>();
    static_assert(n >= 1 && n <= 8,
                  "a loop carries a Tile or a struct of one to eight Tiles or lists");
    auto each = [&](auto&... members) { (for_each_tile(members, visit), ...); };
    if constexpr (n == 1) {
      auto& [a] = state;
      each(a);
    }
    if constexpr (n == 2) {
      auto& [a, b] = state;
      each(a, b);
    }
    if constexpr (n == 3) {
      auto& [a, b, c] = state;
      each(a, b, c);
    }
    if constexpr (n == 4) {
      auto& [a, b, c, d] = state;
      each(a, b, c, d);
    }
    if constexpr (n == 5) {
      auto& [a, b, c, d, e] = state;
      each(a, b, c, d, e);
    }
    if constexpr (n == 6) {
      auto& [a, b, c, d, e, f] = state;
      each(a, b, c, d, e, f);
    }
    if constexpr (n == 7) {
      auto& [a, b, c, d, e, f, g] = state;
      each(a, b, c, d, e, f, g);
    }
    if constexpr (n == 8) {
      auto& [a, b, c, d, e, f, g, h] = state;
      each(a, b, c, d, e, f, g, h);
    }
  }
}

}  // namespace flashcore::detail
