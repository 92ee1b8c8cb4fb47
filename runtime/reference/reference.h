// What a tile program means, evaluated on the CPU in double precision: the yardstick for kernels,
// and for passes, which must not change it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dsl/ir/function.h"
#include "runtime/tensor.h"

namespace flashcore {

enum class Precision : std::uint8_t {
  exact,    ///< every operation in double; casts between floats change nothing
  storage,  ///< every value rounded to its dtype, sums in f32: what any low-precision evaluation
            ///< loses
};

enum class Tiling : std::uint8_t {
  whole,  ///< every tiled axis in one tile of its true length; an online softmax becomes a plain
          ///< one
  scheduled,  ///< tiles of the scheduled size, padding included: runs what passes have made of a
              ///< program
};

struct ReferenceOptions {
  Precision precision = Precision::exact;
  Tiling tiling = Tiling::whole;
};

/// An output: dense, not rounded to the tensor's dtype unless the precision says so. Elements that
/// no store wrote are NaN, or what the tensor says they are worth.
struct ReferenceOutput {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<double> values;
  std::vector<bool> written;  ///< of each element, whether the program stores to it
};

/// Evaluates a verified function. `tensors` are all of the program's, in its order and in memory of
/// the host; of outputs only the shape matters, unless stores add to them. Throws DeviceError for arrays that do not fit the
/// program.
std::vector<ReferenceOutput> evaluate(const ir::Function& f, std::span<const TensorView> tensors,
                                      std::span<const ScalarValue> scalars,
                                      ReferenceOptions options = {});

}  // namespace flashcore
