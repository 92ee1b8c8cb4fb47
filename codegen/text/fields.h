// What the fields of the kernel's parameter block are called. They have the names of the program's
// arguments wherever those can be names of fields, one beside the other.
#pragma once

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

  const std::string& tensor(ir::TensorId tensor) const { return tensors_[tensor.index]; }
  const std::string& stride(ir::TensorId tensor, std::size_t dim) const {
    return strides_[tensor.index][dim];
  }
  const std::string& extent(const std::string& name) const;
  const std::string& scalar(std::size_t parameter) const { return scalars_[parameter]; }
  const std::string& map(std::size_t map) const { return maps_[map]; }
  const std::string& name_of(const ParameterField& field) const;

 private:
  std::vector<std::string> tensors_, scalars_, extents_, maps_;
  std::vector<std::vector<std::string>> strides_;
  std::vector<std::string> extent_names_;  ///< the author's
  std::string tile_counter_;
};

}  // namespace flashcore
