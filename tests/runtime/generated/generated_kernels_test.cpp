// The kernels that ship, as NVRTC sees them: every target compiles, and no schedule breaks its
// promise.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <gmock/gmock.h>

#include "codegen/generate.h"
#include "runtime/compile.h"
#include "templates/attention.h"
#include "tests/runtime/support/expectations.h"

namespace flashcore {
namespace {

/// A text that several problems of a test share is compiled once an architecture: NVRTC gives the same bytes
/// for it (SameInputSameBytes).
const Cubin& compiled(const KernelSource& source, const std::string& architecture) {
  static std::map<std::pair<std::string, std::string>, Cubin> known;
  const std::pair key(architecture, source.entry + '\n' + source.text());
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  return known.emplace(key, compile_cubin(*test::installed_nvrtc(), source, architecture))
      .first->second;
}

// Why the kernel does not compile for the target under the schedule that ships, or what it spills;
// empty if all is well. The safer schedules behind it do not count: they are for other compilers.
std::string failure(AttentionSpec spec, const Target& target,
                    const AttentionProblem& problem = {}) {
  if (!target.bf16) spec.dtype = DType::f16;
  try {
    const KernelSource source =
        generate(attention_forward(spec), attention_schedule(spec, target, problem), target);
    const std::string architecture(target.name);
    const Cubin& cubin = compiled(source, architecture);
    check_resources(source, cubin.resources, architecture);
    if (cubin.resources.stack_bytes == 0) return {};
    return fmt::format("{}: {} bytes of stack", architecture, cubin.resources.stack_bytes);
  } catch (const Error& error) {
    return fmt::format("{}: {}", target.name, error.what());
  }
}

// Compiles for every target that this NVRTC knows and returns what went wrong, a line each. One
// text is often shared by targets; it is still compiled for each of them.
std::vector<std::string> failures(const AttentionSpec& spec, std::span<const Target> targets) {
  std::vector<std::string> found;
  const std::vector<int>& known = test::installed_nvrtc()->architectures();
  for (const Target& target : targets) {
    if (std::find(known.begin(), known.end(), target.capability) == known.end()) continue;
    std::string why = failure(spec, target);
    if (!why.empty()) found.push_back(std::move(why));
  }
  return found;
}

// One of each kind: Turing, Ampere, Hopper with and without what is Hopper's own, and Blackwell
// with the shared memory of a workstation.
std::vector<Target> generations() {
  std::vector<Target> targets;
  for (const char* name : {"sm_75", "sm_80", "sm_90", "sm_90a", "sm_120"}) {
    targets.push_back(find_target(name));
  }
  return targets;
}

TEST(GeneratedKernels, EveryTarget) {
  FLASHCORE_REQUIRE_NVRTC();
  EXPECT_THAT(failures({.head_dim = 128, .mask = causal()}, all_targets()), testing::IsEmpty());
}

class HeadDims : public testing::TestWithParam<int> {};

TEST_P(HeadDims, FullAndCausal) {
  FLASHCORE_REQUIRE_NVRTC();
  for (const bool is_causal : {false, true}) {
    EXPECT_THAT(
        failures({.head_dim = GetParam(), .mask = is_causal ? causal() : full()}, generations()),
        testing::IsEmpty())
        << (is_causal ? "causal" : "full");
  }
}

INSTANTIATE_TEST_SUITE_P(GeneratedKernels, HeadDims,
                         testing::Values(8, 32, 40, 64, 80, 96, 128, 160, 192, 256),
                         testing::PrintToStringParamName());

TEST(GeneratedKernels, GroupsLayoutsAndTypes) {
  FLASHCORE_REQUIRE_NVRTC();
  const std::vector<Target> targets = generations();
  EXPECT_THAT(failures({.head_dim = 128, .heads = 32, .kv_heads = 8}, targets), testing::IsEmpty());
  EXPECT_THAT(
      failures({.head_dim = 64, .dtype = DType::f16, .layout = TensorLayout::bshd}, targets),
      testing::IsEmpty());
  EXPECT_THAT(
      failures({.head_dim = 192, .head_dim_v = 128, .mask = causal(), .lse = true}, targets),
      testing::IsEmpty());
  EXPECT_THAT(failures({.head_dim = 64, .q_len = 512, .kv_len = 512}, targets), testing::IsEmpty());
}

// Hopper's kernels depend on how much there is to do.
TEST(GeneratedKernels, EveryProblem) {
  FLASHCORE_REQUIRE_NVRTC();
  for (const int dim : {64, 128, 256})
    for (const Mask& mask : {full(), causal()})
      for (const int length : {512, 1024, 2048, 4096, 16384}) {
        const AttentionProblem problem{
            .batch = std::max(1, 16384 / length), .heads = 16, .q_len = length, .kv_len = length};
        EXPECT_EQ(failure({.head_dim = dim, .mask = mask}, find_target("sm_90a"), problem), "")
            << dim << ", " << length << " keys, " << mask.text;
      }
}

TEST(GeneratedKernels, SameInputSameBytes) {
  FLASHCORE_REQUIRE_NVRTC();
  const auto compile = [] {
    const AttentionSpec spec{.head_dim = 64, .mask = causal()};
    const Target& target = find_target("sm_80");
    return compile_cubin(
               *test::installed_nvrtc(),
               generate(attention_forward(spec), attention_schedule(spec, target), target), "sm_80")
        .bytes;
  };
  EXPECT_EQ(compile(), compile());
}

}  // namespace
}  // namespace flashcore
