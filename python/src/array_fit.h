// Whether the arrays of a spec's ready-made masks, scores and sinks have the shapes that a call's
// lengths ask for. Which does not, and why, is told by kernels/shapes.py.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "codegen/kernel_source.h"
#include "dsl/attention_spec.h"
#include "runtime/tensor.h"

namespace flashcore::python {

class ArrayFit {
 public:
  /// What one array has to be: "batch", "heads", "q_len", "kv_len", "length" or a number, by
  /// dimension.
  using Shape = std::vector<std::variant<std::int64_t, std::string>>;

  /// `shapes` are by the name of the tensor.
  ArrayFit(const AttentionSpec& spec, const KernelSource& source,
           const std::vector<std::pair<std::string, Shape>>& shapes);

  /// `longest` is the length of the longest packed sequence, -1 where nobody said it. True also of
  /// tensors that a launch refuses.
  [[nodiscard]] bool holds(std::span<const TensorView> tensors, std::int64_t longest) const {
    return rules_.empty() || check(tensors, longest);
  }

 private:
  enum class Size : std::uint8_t { batch, heads, q_len, kv_len, length, number };
  struct Dimension {
    Size size = Size::number;
    std::int64_t number = 0;
  };
  struct Rule {
    std::size_t tensor = 0;
    std::vector<Dimension> dimensions;
  };

  [[nodiscard]] bool check(std::span<const TensorView> tensors, std::int64_t longest) const;

  TensorLayout layout_;
  bool is_paged_;
  std::size_t starts_ = 0;  ///< the tensor with the starts of packed sequences
  std::vector<Rule> rules_;
};

}  // namespace flashcore::python
