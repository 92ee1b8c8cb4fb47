// Builds a tile program: declares its axes and arguments, then records what its author computes.
#pragma once

#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "dsl/program.h"
#include "dsl/state.h"
#include "dsl/tile.h"

namespace flashcore {

inline constexpr double infinity = std::numeric_limits<double>::infinity();
/// The most negative finite f32. A running maximum starts here: subtracting it from -inf stays
/// -inf.
inline constexpr double lowest = -3.4028234663852886e+38;

/// The order in which a loop may visit its tiles.
enum class LoopOrder {
  sequential,  ///< from the first tile to the last, unless the compiler proves that the order does
               ///< not matter
  unordered,   ///< any order: the program promises that every order gives an equally good result
};

/// One thread block computes one position of every parallel axis and one tile of every
/// parallel_tiles axis. All handles belong to their builder and die with it.
class ProgramBuilder {
 public:
  using At = std::source_location;

  explicit ProgramBuilder(std::string name);
  ProgramBuilder(const ProgramBuilder&) = delete;
  ProgramBuilder& operator=(const ProgramBuilder&) = delete;

  /// One position a block: batch, head.
  Axis parallel(std::string name, Extent extent, const At& at = At::current());
  /// One tile a block; the schedule says how long. Blocks of a first axis are neighbours.
  Axis parallel_tiles(std::string name, Extent extent, const At& at = At::current());
  /// Cut into tiles that a loop visits; the schedule says how long they are.
  Axis tiles(std::string name, Extent extent, const At& at = At::current());
  /// Another name for an axis of tiles. Inside a loop over that axis both have the same current
  /// tile, so that a tile may have its positions twice: [t, s] are the scores of a chunk's queries
  /// t and keys s. The schedule gives both one tile size, by the name of the axis. The loop has to
  /// carry what lies outside the square, or results depend on that size.
  Axis alias(std::string name, Axis axis, const At& at = At::current());
  /// Always whole in a tile: head_dim.
  Axis whole(std::string name, int extent, const At& at = At::current());

  /// A tensor argument. Its last dimension has unit stride; the others any.
  Tensor input(std::string name, DType dtype, std::vector<Extent> dims,
               const At& at = At::current());
  /// An input that `gather` reads at computed positions: any dtype, any strides. `unit_stride`
  /// promises a stride of 1 along the last dimension; a launch with another stride is refused.
  /// `aligned_rows` promises besides that the tensor, and each row along its last dimension, begins at
  /// a multiple of 16 bytes, so that tiles of it can be loaded; kernels that load them check it.
  Tensor gathered_input(std::string name, DType dtype, std::vector<Extent> dims,
                        bool unit_stride = false, bool aligned_rows = false,
                        const At& at = At::current());
  Tensor output(std::string name, DType dtype, std::vector<Extent> dims,
                const At& at = At::current());
  /// A scalar argument. `positive` lets the compiler move it through a maximum; a launch with a
  /// value that is not is refused.
  Tile scalar(std::string name, DType dtype, bool positive = false, const At& at = At::current());

  /// Makes an axis ragged: in each block it covers positions [begin, end) of the dimension it
  /// indexes, two i32 scalars that are known to the block alone, such as elements of cu_seqlens.
  /// `length(axis)` is then end - begin, `index(axis)` counts from 0, loads give zeros and stores
  /// write nothing outside [begin, end), and a block without a tile in it exits at once. The
  /// segment is clipped to the dimension, so that wrong numbers read and write nothing outside the
  /// tensors.
  ///
  /// Stands at the top of the program; only scalars may stand in front of it. Along a
  /// parallel_tiles axis the grid has blocks for segments of up to `longest` positions, an i32
  /// scalar argument; positions beyond that are not computed. Without it the grid has blocks for
  /// segments as long as the whole dimension.
  void segment(Axis axis, Operand begin, Operand end, const At& at = At::current());
  void segment(Axis axis, Operand begin, Operand end, const Tile& longest,
               const At& at = At::current());

  Tile constant(double value, DType dtype = DType::f32, const At& at = At::current());
  /// The same value in every element, over the given axes, such as the initial state of a loop.
  Tile fill(const std::vector<Axis>& axes, double value, DType dtype = DType::f32,
            const At& at = At::current());

  /// Runs `body` once a tile of `axis`. `initial` is a Tile or a struct of Tiles; the body takes
  /// the state and returns the next one.
  template <class State, class Body>
  State loop(Axis axis, const State& initial, Body&& body, LoopOrder order = LoopOrder::sequential,
             const At& at = At::current()) {
    State state = initial;
    std::vector<Tile> tiles;
    detail::for_each_tile(state, [&](Tile& tile) { tiles.push_back(tile); });
    tiles = run_loop(axis, tiles, order, at, [&](const std::vector<Tile>& arguments) {
      scatter(state, arguments);
      State next = body(static_cast<const State&>(state));
      std::vector<Tile> results;
      detail::for_each_tile(next, [&](Tile& tile) { results.push_back(tile); });
      return results;
    });
    scatter(state, tiles);
    return state;
  }
  /// A loop that carries nothing and only stores.
  void loop(Axis axis, const std::function<void()>& body, LoopOrder order = LoopOrder::sequential,
            const At& at = At::current());

  /// Checks the program and returns it. The builder cannot be used afterwards.
  Program finish(const At& at = At::current());

  [[nodiscard]] ir::Builder& ops() { return ops_; }
  [[nodiscard]] ir::Function& function() { return function_; }

 private:
  using Run = std::function<std::vector<Tile>(const std::vector<Tile>&)>;
  std::vector<Tile> run_loop(Axis axis, std::vector<Tile> initial, LoopOrder order, const At& at,
                             const Run& body);
  Axis add_axis(ir::Axis axis, const At& at);
  void check_name(const std::string& name, const At& at);

  template <class State>
  static void scatter(State& state, const std::vector<Tile>& tiles) {
    std::size_t i = 0;
    detail::for_each_tile(state, [&](Tile& tile) { tile = tiles[i++]; });
  }

  ir::Function function_;
  ir::Builder ops_;
};

}  // namespace flashcore
