// Writes the bundle that the tests of the C interface and of Rust read: attention of head_dim 32
// for sm_80. The argument is its path.
#include <fstream>

#include "codegen/generate.h"
#include "dsl/target.h"
#include "runtime/build.h"
#include "runtime/bundle/bundle.h"
#include "templates/attention.h"

int main(int count, char** arguments) {
  using namespace flashcore;
  if (count != 2) return 2;
  AttentionSpec spec;
  spec.head_dim = 32;
  const Target& target = find_target("sm_80");
  const auto kernel =
      build_first_fitting(attention_forward(spec), attention_schedules(spec, target), target);
  std::ofstream(arguments[1], std::ios::binary) << write_bundle({kernel->entry()}, "[]");
  return 0;
}
