// The fields of the kernel's parameter block: what they are called, and which of them the kernel
// reads. They have the names of the program's arguments wherever those can be names of fields, one
// beside the other. Code that reads a field asks for its text here, so that a block has no field
// that nothing reads.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "codegen/kernel_source.h"
#include "dsl/ir/function.h"

namespace flashcore {

class Fields {
 public:
  Fields() = default;
  /// Of the arguments of `f`, whose extents and tensor maps `source` lists.
  Fields(const ir::Function& f, const KernelSource& source);

  // The text that reads a field, "p.q_stride_0".
  std::string tensor(ir::TensorId tensor) const { return read(tensors_[tensor.index]); }
  std::string stride(ir::TensorId tensor, std::size_t dim) const {
    return read(strides_[tensor.index][dim]);
  }
  std::string extent(const std::string& name) const;
  std::string scalar(std::size_t parameter) const { return read(scalars_[parameter]); }
  std::string map(std::size_t map) const { return read(maps_[map]); }
  std::string tile_counter() const { return read(tile_counter_); }

  const std::string& name_of(const ParameterField& field) const;
  bool is_read(const ParameterField& field) const { return read_.contains(name_of(field)); }

 private:
  std::string read(const std::string& name) const;

  std::vector<std::string> tensors_, scalars_, extents_, maps_;
  std::vector<std::vector<std::string>> strides_;
  std::vector<std::string> extent_names_;  ///< the author's
  std::string tile_counter_;
  mutable std::set<std::string> read_;  ///< the names that the kernel's text has
};

}  // namespace flashcore
