// Writes the bundles that the tests of the C interface and of Rust read: attention of head_dim 32 for
// sm_80, and for sm_90a what launches of 37 and of 4096 rows want. The arguments are their paths.
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "codegen/generate.h"
#include "dsl/error.h"
#include "dsl/target.h"
#include "runtime/build.h"
#include "runtime/bundle/bundle.h"
#include "runtime/cache/stored_kernel.h"
#include "runtime/request.h"
#include "templates/attention.h"
#include "templates/schedule_chooser.h"

using namespace flashcore;

namespace {

void write_chosen(const char* path) {
  const AttentionSpec spec{.head_dim = 32};
  const Target& target = find_target("sm_90a");
  const Program program = attention_forward(spec);
  const ScheduleChooser chooser(spec, target);
  std::vector<std::string> entries;
  std::map<std::string, std::string> requests;
  for (const std::int64_t length : {37, 4096})
    for (const std::size_t list :
         chooser.choose_all({{1, 1}, {2, 2}, {length, length}, {length, length}}))
      for (const Schedule& schedule : chooser.schedules(list)) {
        const std::string request = request_of(program, schedule, target);
        if (requests.contains(request)) break;
        try {
          entries.push_back(
              CompiledKernel::build(generate(program, schedule, target), std::string(target.name))
                  ->entry());
        } catch (const Error&) {
          continue;  // the next one fits
        }
        requests[request] = read_stored_kernel(entries.back(), path).key;
        break;
      }
  std::ofstream(path, std::ios::binary) << write_bundle(entries, "[]", nullptr, requests);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  write_chosen(arguments[2]);
  AttentionSpec spec;
  spec.head_dim = 32;
  const Target& target = find_target("sm_80");
  const auto kernel =
      build_first_fitting(attention_forward(spec), attention_schedules(spec, target), target);
  std::ofstream(arguments[1], std::ios::binary) << write_bundle({kernel->entry()}, "[]");
  return 0;
}
