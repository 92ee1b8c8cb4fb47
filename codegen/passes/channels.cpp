#include "codegen/passes/channels.h"

#include <string>

#include <fmt/format.h>

#include "codegen/passes/rewrite.h"
#include "dsl/error.h"

namespace flashcore {

using namespace ir;

bool is_copied(const Function& f, const Op& op) {
  return op.code == OpCode::load && f[op.results[0]].layout.space == Space::shared;
}

Buffer channel_for(const Function& f, const Op& load, Transport transport, int stages) {
  const TileType& type = f[load.results[0]].type;
  if (type.axes.size() != 2)
    throw SpecError({fmt::format("a product of a vector of {}", f[load.tensor].name),
                     "an operand of a product has two axes", "load a tile with two axes",
                     load.where});
  // Two loops may load the same tensor; each has a channel of its own.
  const std::string& named = f[load.results[0]].name;
  return {.name = unused_buffer_name(f, named.empty() ? f[load.tensor].name : named),
          .dtype = type.dtype,
          .rows = f[type.axes[0]].tile,
          .columns = f[type.axes[1]].tile,
          .stages = stages,
          .transport = transport};
}

void refuse_inner_loop(const Function& f, const Op& loop) {
  throw SpecError({fmt::format("a loop over {} inside another loop", f[loop.axis].name),
                   "products in nested loops cannot be pipelined",
                   "make the outer axis a parallel one", loop.where});
}

}  // namespace flashcore
