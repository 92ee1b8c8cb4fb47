// Copies of ops and regions, with names for what the originals read.
#pragma once

#include <map>

#include "dsl/ir/builder.h"
#include "dsl/ir/function.h"

namespace flashcore {

/// Copies ops one after the other; values they make get new ids, and later copies read those.
/// Values that no copied op has made are kept, or replaced as `rename` says.
class OpCopier {
 public:
  explicit OpCopier(ir::Function& f) : f_(f) {}

  void rename(ir::ValueId from, ir::ValueId to) { names_[from] = to; }
  [[nodiscard]] ir::ValueId renamed(ir::ValueId value) const;

  /// The copy, in no block yet, or where a builder stands.
  ir::OpId copy(ir::OpId source);
  ir::OpId copy(ir::Builder& b, ir::OpId source);
  ir::BlockId copy_region(ir::BlockId source);

 private:
  ir::ValueId copy_value(ir::ValueId value);

  ir::Function& f_;
  std::map<ir::ValueId, ir::ValueId> names_;
};

}  // namespace flashcore
