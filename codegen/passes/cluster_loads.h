// What the loops of a cluster's two blocks load for both of them, each block half of the rows of every
// tile. The blocks have neighbouring tiles of an axis, such as that of the query rows, and may visit
// different tiles in their loops, as under a causal mask. Both load all that one of them visits:
//
//   loop cols from %begin to %end {      producer    loop cols from %both_begin to %both_end {
//     %k = load k ; ...                                acquire k ; issue k
//   }                                                }
//                                        consumers   loop cols from %begin to %end { wait k ; ... }
//                                                    loop from %end to %both_end { wait k }
//
// A tile that is waited for and not read is released at once.
#pragma once

#include <map>
#include <vector>

#include "dsl/ir/builder.h"
#include "dsl/ir/function.h"

namespace flashcore {

class ClusterLoads {
 public:
  ClusterLoads(ir::Function& f, int blocks) : f_(f), blocks_(blocks) {}

  /// How many blocks load a loop's tile together.
  [[nodiscard]] int blocks_of(const ir::Op& load) const;

  /// For the loops of a block of ops, whose loads have their rings: builds the bounds of what both
  /// blocks visit.
  void join_bounds(ir::BlockId block);
  /// Between which tiles a loop's loads are issued.
  [[nodiscard]] std::vector<ir::ValueId> bounds_of_loads(ir::OpId loop) const;
  /// Has those who wait for the loads pass the tiles that only the other block visits.
  void pass_other_tiles(ir::BlockId block);

 private:
  [[nodiscard]] bool differs(const ir::Op& op) const;
  [[nodiscard]] bool differs(ir::ValueId value) const;
  /// What a scalar is in the other block.
  ir::ValueId in_other_block(ir::Builder& b, ir::ValueId value);
  void pass_tiles(ir::Builder& b, const std::vector<ir::OpId>& waits, ir::ValueId begin,
                  ir::ValueId end);

  ir::Function& f_;
  int blocks_;  ///< 1: no cluster shares loads
  std::map<ir::OpId, std::vector<ir::ValueId>> joined_;
  std::map<ir::ValueId, ir::ValueId> others_;
};

}  // namespace flashcore
