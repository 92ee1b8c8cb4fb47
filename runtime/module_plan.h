// What a launch of a module (dsl/module.h) hands to each of its kernels: checks the arguments once
// for all, computes the module's numbers and places its workspaces.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "codegen/kernel_source.h"
#include "dsl/inline_list.h"
#include "dsl/launch_number.h"
#include "dsl/module.h"
#include "runtime/launch.h"
#include "runtime/tensor.h"

namespace flashcore {

/// What `multiprocessors` is in a module's numbers where arrays lie in CPU memory: few enough for
/// the emulator, and enough that work is split.
constexpr int emulated_multiprocessors = 4;

class ModulePlan {
 public:
  static constexpr int max_tensors = 32, max_scalars = 32, max_numbers = 64;
  /// Where a workspace begins is a multiple of this; so has the memory given for all of them to.
  static constexpr std::size_t workspace_alignment = 256;

  /// `sources` are the module's kernels, generated, in its order.
  ModulePlan(Module module, std::span<const std::shared_ptr<const KernelSource>> sources);

  /// Tensors and scalars that a launch takes, in their order, under the module's name: a kernel
  /// without code.
  [[nodiscard]] const KernelSource& signature() const { return *signature_; }
  [[nodiscard]] const Module& module() const { return module_; }

  /// The numbers of one launch.
  struct Bound {
    std::array<std::int64_t, max_numbers> values;
    std::array<std::size_t, max_tensors> offsets;  ///< of workspaces, in bytes
    std::size_t workspace_bytes = 0;
    int device = cpu_device;
  };
  /// Throws an Error (launch_errors.h) that names the argument, or SpecError for a number that
  /// cannot be computed. Allocates nothing when it succeeds.
  [[nodiscard]] Bound bind(std::span<const TensorView> tensors,
                           std::span<const ScalarValue> scalars, int multiprocessors) const;

  /// The value of a number in a launch, by its place among the module's numbers.
  [[nodiscard]] std::int64_t number(const Bound& bound, std::size_t which) const {
    return bound.values[first_number_ + which];
  }

  /// Calls `launch(kernel, tensors, scalars)` for every kernel, in order. `workspace` is
  /// `workspace_bytes` of memory on the launch's device.
  template <class Launch>
  void run(const Bound& bound, std::span<const TensorView> tensors,
           std::span<const ScalarValue> scalars, void* workspace, Launch&& launch) const {
    for (std::size_t i = 0; i < kernels_.size(); ++i) {
      InlineList<TensorView, max_tensors> views;
      InlineList<ScalarValue, max_scalars> values;
      for (const Source from : kernels_[i].tensors) {
        if (from.computed)
          views.push_made([&] { return workspace_view(bound, from.index, workspace); });
        else
          views.push(tensors[static_cast<std::size_t>(from.index)]);
      }
      for (const Source from : kernels_[i].scalars) {
        const auto at = static_cast<std::size_t>(from.index);
        values.push(from.computed ? ScalarValue(static_cast<std::int32_t>(number(bound, at)))
                                  : scalars[at]);
      }
      launch(i, views.span(), values.span());
    }
  }

 private:
  /// Where an argument of a kernel comes from: one of the launch's, or a workspace or number.
  struct Source {
    int index = 0;
    bool computed = false;
  };
  struct Kernel {
    std::vector<Source> tensors, scalars;
  };
  /// Of a workspace: how long it is along a dimension.
  struct Length {
    std::int64_t constant = 0;
    int value = -1;  ///< what is added to it
  };
  struct Workspace {
    DType dtype = DType::f32;
    std::vector<Length> shape;
  };

  void add_signature(std::span<const std::shared_ptr<const KernelSource>> sources);
  void add_numbers();
  void add_workspaces();
  void connect();
  static std::int64_t length_of(const Length& length, const Bound& bound);
  [[nodiscard]] TensorView workspace_view(const Bound& bound, int which, void* memory) const;

  Module module_;
  std::shared_ptr<KernelSource> signature_;
  std::unique_ptr<LaunchPlan> checks_;
  std::vector<std::string> value_names_;  ///< extents, i32 scalars, multiprocessors, numbers
  std::size_t first_number_ = 0;
  std::vector<NumberFormula> formulas_;
  std::vector<Workspace> workspaces_;
  std::vector<Kernel> kernels_;
};

}  // namespace flashcore
