// Several programs that one call runs one after another: what a single grid cannot compute, because
// a later part needs what all blocks of an earlier one have written.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/program.h"

namespace flashcore {

/// A number that every launch of a module computes before its kernels: the length of workspaces
/// that no argument has (the number of splits), or an i32 scalar of its kernels. `text` is an
/// expression of whole numbers, in the language of masks (dsl/expression.h), of
///
///   - the named extents of the module's arguments, and its i32 scalars,
///   - numbers that were declared before,
///   - `multiprocessors`, those of the GPU that the launch runs on.
struct LaunchNumber {
  std::string name, text;
  bool operator==(const LaunchNumber&) const = default;
};

/// Kernels communicate through tensors, found by name: an output `delta` of one kernel is the input
/// `delta` of those behind it. A workspace is such a tensor that callers do not pass: every launch
/// places it in memory that it is given, and its contents are undefined before a kernel writes them.
/// All other tensors and scalars are the module's arguments, those of equal names one argument.
class Module {
 public:
  [[nodiscard]] const std::string& name() const { return name_; }
  /// In the order of their launches.
  [[nodiscard]] std::span<const Program> kernels() const { return kernels_; }
  /// The names of tensors.
  [[nodiscard]] std::span<const std::string> workspaces() const { return workspaces_; }
  [[nodiscard]] std::span<const LaunchNumber> numbers() const { return numbers_; }
  [[nodiscard]] std::span<const std::string> several_writers() const { return several_writers_; }

  [[nodiscard]] bool is_workspace(std::string_view tensor) const;
  /// Whether several kernels may store to it, each to other elements.
  [[nodiscard]] bool has_several_writers(std::string_view tensor) const;
  [[nodiscard]] bool is_number(std::string_view name) const;
  /// Tensors and scalars that a caller passes, in the order in which the kernels name them. An
  /// argument that one kernel writes is an output, also where another reads it.
  [[nodiscard]] std::vector<ir::Tensor> tensors() const;
  [[nodiscard]] std::vector<ir::Parameter> parameters() const;
  /// Whether a launch adds to what an output holds: no kernel stores anything there in front of the
  /// first that adds. It then has to hold what the sums begin with, or zeros for turns.
  [[nodiscard]] bool adds_to(std::string_view tensor) const;
  /// What the text of a number may name, where `count` numbers stand before it: extents of arguments,
  /// i32 scalars, `multiprocessors`, those numbers.
  [[nodiscard]] std::vector<std::string> known_numbers(std::size_t count) const;

  /// The text form: the module's own lines, then the programs.
  ///
  ///     module attention_decode
  ///     number splits: min(keys // 256 + 1, 2 * multiprocessors // (B * H))
  ///     workspace partial
  ///     program attend
  ///     ...
  [[nodiscard]] std::string text() const;
  /// The inverse of text(). Throws SpecError with the line that does not parse or verify.
  static Module parse(std::string_view text);

 private:
  friend class ModuleBuilder;
  Module() = default;

  std::string name_;
  std::vector<Program> kernels_;
  std::vector<std::string> workspaces_, several_writers_;
  std::vector<LaunchNumber> numbers_;
};

/// Collects the parts of a module:
///
///     ModuleBuilder m("attention_backward");
///     m.workspace("delta");
///     m.kernel(row_sums_of_gradient(spec));
///     m.kernel(gradients_of_keys(spec));
///     Module module = m.finish();
class ModuleBuilder {
 public:
  explicit ModuleBuilder(std::string name);

  /// Adds a kernel behind those that were added before.
  void kernel(Program program);
  /// Makes the tensor of this name, which one kernel writes and later ones read, a workspace.
  void workspace(std::string tensor);
  /// Lets several kernels store to the tensor of this name, each to other elements. Where two of them store
  /// to the same one, what the later one stores stays.
  void several_writers(std::string tensor);
  /// Has every launch compute a number.
  void number(std::string name, std::string text);

  /// Checks that the kernels fit together and returns the module. Throws SpecError with the first
  /// reason that they do not.
  Module finish();

 private:
  Module module_;
};

}  // namespace flashcore
