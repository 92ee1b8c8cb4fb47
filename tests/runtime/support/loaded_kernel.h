// A kernel on the driver that tests stand in for, whose machine code no other test has.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runtime/kernel.h"
#include "tests/runtime/support/fake_cuda.h"
#include "tests/runtime/support/kernels.h"

namespace flashcore::test {

class LoadedKernelTest : public testing::Test {
 protected:
  LoadedKernelTest() {
    fake_cuda().clear_contexts();
    const auto keep = fake_cuda().clear_contexts;
    const auto push = fake_cuda().push_new_context;
    fake_cuda() = {};
    fake_cuda().clear_contexts = keep;
    fake_cuda().push_new_context = push;
    fake_cuda().parameter_bytes = 40;
  }

  // Of machine code that no other test has: kernels of equal code share what is loaded.
  static std::shared_ptr<const CompiledKernel> compiled(KernelSource source,
                                                        const char* architecture = "sm_80",
                                                        const std::string& variant = "") {
    const char* const test = testing::UnitTest::GetInstance()->current_test_info()->name();
    return CompiledKernel::from_cubin(std::move(source), architecture,
                                      {.bytes = fmt::format("\x7f{} {} {}", "ELF", test, variant),
                                       .resources = {.registers = 32}});
  }
  static std::unique_ptr<LoadedKernel> prepared(const std::string& variant) {
    auto loaded = std::make_unique<LoadedKernel>(compiled(test::scale_kernel(), "sm_80", variant));
    loaded->prepare(0);
    return loaded;
  }
  static std::array<TensorView, 2> rows(std::int64_t count, int device) {
    return {TensorView::dense(reinterpret_cast<void*>(0x1000), DType::f32, {count, 64}, device),
            TensorView::dense(reinterpret_cast<void*>(0x2000), DType::f32, {count, 64}, device)};
  }

  const std::array<ScalarValue, 1> factor{2.F};
  LoadedKernel kernel{compiled(test::scale_kernel())};
};

}  // namespace flashcore::test
