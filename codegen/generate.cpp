#include "codegen/generate.h"

#include "codegen/pass.h"
#include "codegen/prelude/prelude_text.h"
#include "codegen/print/kernel_printer.h"

namespace flashcore {

KernelSource generate(const Program& program, const Schedule& schedule, const Target& target,
                      const PassObserver& observer, PassNotes* notes) {
  const ir::Function f = lower(program, schedule, target, observer, notes);
  KernelSource source = KernelPrinter(f, schedule).print();
  source.prelude = prelude_for(source.body);
  return source;
}

std::vector<std::string_view> pass_names() {
  std::vector<std::string_view> names;
  for (const Pass& pass : pipeline()) names.push_back(pass.name);
  return names;
}

}  // namespace flashcore
