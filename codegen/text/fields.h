// The fields of the kernel's parameter block: what they are called, and which of them the kernel
// reads. They have the names of the program's arguments wherever those can be names of fields, one
// beside the other. Code that reads a field asks for its text here, so that a block has no field
// that nothing reads.
#pragma once

#include <string>
#include <vector>

#include "codegen/kernel_source.h"
#include "dsl/ir/function.h"

namespace flashcore {

class Fields {
 public:
  using Kind = ParameterField::Kind;

  Fields() = default;
  /// Of the arguments of `f`, whose extents and tensor maps `source` lists.
  Fields(const ir::Function& f, const KernelSource& source);

  // The text that reads a field, "p.q_stride_0".
  std::string tensor(ir::TensorId tensor) const { return read(Kind::pointer, tensor.index); }
  /// "1" where unit stride is promised.
  std::string stride(ir::TensorId tensor, std::size_t dim) const;
  /// Of a dimension, which may be a number or a sum.
  std::string extent(const Extent& extent) const;
  std::string scalar(std::size_t parameter) const { return read(Kind::scalar, parameter); }
  std::string map(std::size_t map) const { return read(Kind::tensor_map, map); }
  std::string tile_counter() const { return read(Kind::tile_counter, 0); }

  const std::string& name_of(const ParameterField& field) const { return find(field)->name; }
  /// Lays the fields that the kernel reads out in its parameter block.
  void lay_out(KernelSource& source) const;

 private:
  struct Named {
    ParameterField field;
    std::string name;
    mutable bool is_read = false;
  };
  [[nodiscard]] const Named* find(const ParameterField& field) const;
  std::string read(Kind kind, std::size_t index, std::size_t dim = 0) const;

  std::vector<Named> fields_;
  std::vector<std::string> extent_names_;  ///< the author's
};

}  // namespace flashcore
