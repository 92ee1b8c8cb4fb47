// Prints the CUDA C++ of attention for one shape and target, and compiles it: no GPU needed.
//
//   show_kernel [head_dim] [target]
#include <cstdio>
#include <exception>
#include <string>

#include "codegen/generate.h"
#include "runtime/kernel.h"
#include "templates/attention.h"

int main(int argc, char** argv) {
  try {
    const int head_dim = argc > 1 ? std::stoi(argv[1]) : 128;
    const flashcore::Target& target = flashcore::find_target(argc > 2 ? argv[2] : "sm_80");
    const flashcore::AttentionSpec spec{.head_dim = head_dim, .mask = flashcore::causal()};

    const flashcore::KernelSource source = flashcore::generate(
        flashcore::attention_forward(spec), flashcore::attention_schedule(spec, target), target);
    std::fputs(source.body.c_str(), stdout);

    const auto kernel = flashcore::CompiledKernel::build(source, std::string(target.name));
    std::printf("// %s: %d registers, %d bytes of shared memory, %s\n",
                kernel->architecture().c_str(), kernel->resources().registers,
                kernel->resources().dynamic_shared_bytes,
                kernel->from_cache() ? "from the cache" : "compiled");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
