// Tiles as an author sees them: values over named axes. Every operator appends one operation to the
// program being built and remembers the author's line.
#pragma once

#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/dtype.h"
#include "dsl/error.h"
#include "dsl/extent.h"
#include "dsl/ir/builder.h"

namespace flashcore {

class ProgramBuilder;

/// A named dimension of the computation. Tiles broadcast against each other by axis, not by
/// position.
struct Axis {
  ProgramBuilder* owner = nullptr;
  ir::AxisId id;
};

/// An immutable value: a scalar (no axes), a vector (one) or a matrix (two).
class Tile {
 public:
  Tile() = default;
  Tile(ProgramBuilder* owner, ir::ValueId id) : owner_(owner), id_(id) {}

  /// Names the value in the IR and in the generated kernel. Returns it, for chaining.
  Tile named(std::string_view name) const;  // NOLINT(modernize-use-nodiscard)

  [[nodiscard]] DType dtype() const;
  [[nodiscard]] ProgramBuilder* owner() const { return owner_; }
  [[nodiscard]] ir::ValueId id() const { return id_; }

 private:
  ProgramBuilder* owner_ = nullptr;
  ir::ValueId id_;
};

/// What an operator takes: a tile, or a number that becomes a constant of the other operand's
/// dtype. Converting to it notes the place of the call.
struct Operand {
  Tile tile;
  double number = 0;
  Location where;
  bool empty = false;  ///< a Tile that names no value; no operation takes it

  Operand(Tile tile,  // NOLINT(google-explicit-constructor)
          const std::source_location& at = std::source_location::current())
      : tile(tile), where(at), empty(tile.owner() == nullptr) {}
  Operand(double number,  // NOLINT(google-explicit-constructor)
          const std::source_location& at = std::source_location::current())
      : number(number), where(at) {}
  Operand(float number,  // NOLINT(google-explicit-constructor)
          const std::source_location& at = std::source_location::current())
      : number(number), where(at) {}
  Operand(int number,  // NOLINT(google-explicit-constructor)
          const std::source_location& at = std::source_location::current())
      : number(number), where(at) {}
  [[nodiscard]] bool is_tile() const { return tile.owner() != nullptr; }
};

Tile operator-(Operand a);
Tile operator!(Operand a);
Tile operator+(Operand a, Operand b);
Tile operator-(Operand a, Operand b);
Tile operator*(Operand a, Operand b);
Tile operator/(Operand a, Operand b);  ///< integers round towards minus infinity
Tile operator%(Operand a, Operand b);  ///< integers; the sign of b
Tile operator<(Operand a, Operand b);
Tile operator<=(Operand a, Operand b);
Tile operator>(Operand a, Operand b);
Tile operator>=(Operand a, Operand b);
Tile operator==(Operand a, Operand b);
Tile operator!=(Operand a, Operand b);
Tile operator&&(Operand a, Operand b);
Tile operator||(Operand a, Operand b);
Tile operator&(Operand a, Operand b);  ///< the same as &&
Tile operator|(Operand a, Operand b);  ///< the same as ||

Tile minimum(Operand a, Operand b);
Tile maximum(Operand a, Operand b);
Tile abs(Operand a);
Tile exp(Operand a);
Tile exp2(Operand a);
Tile log(Operand a);
Tile log2(Operand a);
Tile sqrt(Operand a);
Tile tanh(Operand a);
Tile sin(Operand a);  ///< of radians
Tile cos(Operand a);  ///< of radians
Tile tan(Operand a);  ///< of radians
Tile atan(Operand a);
Tile erf(Operand a);
Tile expm1(Operand a);
Tile log1p(Operand a);
Tile floor(Operand a);
Tile round(Operand a);  ///< halves to the even number
Tile reciprocal(Operand a);

/// `yes` where the condition holds, else `no`.
Tile where(Operand condition, Operand yes, Operand no);
Tile cast(Operand a, DType dtype);

/// Reductions remove the axis. They range over its true length, whatever the tile size.
Tile reduce_max(Operand a, Axis axis);
Tile reduce_min(Operand a, Axis axis);
Tile reduce_sum(Operand a, Axis axis);

Tile transpose(Operand a);
/// [m, k] x [k, n] -> [m, n]. Operands are f16 or bf16, or f32 that the product rounds to tf32;
/// products are summed in f32.
Tile dot(Operand a, Operand b, OperandRounding rounding = OperandRounding::none);

/// The positions along an axis: a scalar for a parallel axis, else a vector of i32.
Tile index(Axis axis, const std::source_location& at = std::source_location::current());
/// The true length of an axis, an i32 scalar.
Tile length(Axis axis, const std::source_location& at = std::source_location::current());

/// One index of a tensor access: the tile of an axis, the position of a parallel axis, a scalar, or
/// a tile of i32 over one axis, the position of each of its elements. Positions outside the tensor
/// read zeros, and nothing is written there.
struct Index {
  Axis axis;
  Tile position;
  Location where;
  Index(Axis axis,  // NOLINT(google-explicit-constructor)
        const std::source_location& at = std::source_location::current())
      : axis(axis), where(at) {}
  Index(Tile position,  // NOLINT(google-explicit-constructor)
        const std::source_location& at = std::source_location::current())
      : position(position), where(at) {}
};

/// A tensor with its indices: what load and store take.
struct Access {
  ProgramBuilder* owner = nullptr;
  ir::TensorId tensor;
  std::vector<ir::Coordinate> coordinates;
  Location where;
};

/// An argument of the kernel. `q(batch, head, rows, d)` names one of its tiles.
class Tensor {
 public:
  Tensor() = default;
  Tensor(ProgramBuilder* owner, ir::TensorId id) : owner_(owner), id_(id) {}

  /// One index a dimension, outermost first.
  template <class... Indices>
  Access operator()(Index first, Indices... rest) const {
    return access({first, Index(rest)...});
  }
  [[nodiscard]] Access access(const std::vector<Index>& indices) const;

  [[nodiscard]] ProgramBuilder* owner() const { return owner_; }
  [[nodiscard]] ir::TensorId id() const { return id_; }

 private:
  ProgramBuilder* owner_ = nullptr;
  ir::TensorId id_;
};

/// The length of a dimension of a tensor, an i32 scalar.
Tile length(const Tensor& tensor, int dimension,
            const std::source_location& at = std::source_location::current());

/// The elements of a gathered input at computed positions, one i32 index a dimension: tiles of f32,
/// i32 or i1 over the axes of the indices. Outside the tensor it is zero.
Tile gather(const Tensor& tensor, const std::vector<Operand>& indices);

/// How many elements of a list of i32, which must not decrease, are at most `number`, an i32 scalar: where
/// each of a row of segments begins, the segment that has a position is the one before.
Tile searchsorted(const Tensor& tensor, Operand number);

/// Elements outside the tensor are zero.
Tile load(const Access& access);
/// Elements outside the tensor are not written. The tile's dtype is the tensor's.
void store(const Access& access, Operand tile);
/// Adds to the elements that an f32 output holds, which other blocks may do as well: atomically, so
/// that how sums are rounded may differ from launch to launch.
void accumulate(const Access& access, Operand tile);
/// The same in a fixed order: one block after the other along the axis of tiles that the access does
/// not name. In `turns`, an i32 output with a dimension for each parallel axis in the order of their
/// declaration, blocks note how far they have come; it has to hold zeros before.
void accumulate(const Access& access, Operand tile, const Tensor& turns);

}  // namespace flashcore
