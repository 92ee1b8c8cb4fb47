#include "dsl/module.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dsl/error.h"
#include "dsl/launch_number.h"
#include "dsl/shortened.h"

namespace flashcore {
namespace {

constexpr std::string_view multiprocessors = "multiprocessors";

std::string shown(const ir::Tensor& tensor) {
  std::vector<std::string> dims;
  for (const Extent& dim : tensor.dims) dims.push_back(dim.text());
  return fmt::format("{}[{}]", name_of(tensor.dtype), fmt::join(dims, ", "));
}

template <class Range>
bool holds(const Range& range, std::string_view name) {
  return std::find(range.begin(), range.end(), name) != range.end();
}

/// Whether blocks note there whose turn it is to add.
bool keeps_turns_in(const ir::Function& f, ir::TensorId tensor) {
  bool keeps = false;
  for_each_op(f, f.body,
              [&](const ir::Op& op, ir::BlockId) { keeps = keeps || op.turns == tensor; });
  return keeps;
}

/// What a module is checked for once all its parts are there.
class Fit {
 public:
  explicit Fit(const Module& module) : module_(module) {}

  void check() {
    if (module_.kernels().empty()) refuse("it has no kernel", "add one with kernel(program)");
    check_names();
    for (const Program& kernel : module_.kernels()) {
      for (const ir::Tensor& tensor : kernel.function().tensors) check_tensor(kernel, tensor);
      for (const ir::Parameter& scalar : kernel.function().parameters) check_scalar(kernel, scalar);
    }
    for (const std::string& workspace : module_.workspaces()) check_workspace(workspace);
    for (const std::string& tensor : module_.several_writers()) check_writers(tensor);
    check_numbers();
    for (const std::string& workspace : module_.workspaces()) check_size(workspace);
  }

 private:
  struct Seen {
    const Program* first = nullptr;
    const Program* writer = nullptr;  ///< the last one, which may add
    const Program* loader = nullptr;  ///< the first one
    const Program* waiter = nullptr;  ///< whose blocks note their turns there
    const ir::Tensor* tensor = nullptr;
    int writers = 0;
    bool read = false;  ///< loaded, or added to
  };

  [[noreturn]] void refuse(std::string why, std::string fix) const {
    throw SpecError(
        {fmt::format("the module {}", module_.name()), std::move(why), std::move(fix), {}});
  }

  void check_names() const {
    std::set<std::string_view> taken;
    for (const Program& kernel : module_.kernels())
      if (!taken.insert(kernel.name()).second)
        refuse(fmt::format("two kernels are named {}", kernel.name()),
               "profilers and messages tell kernels apart by name; rename one");
  }

  void check_tensor(const Program& kernel, const ir::Tensor& tensor) {
    Seen& seen = seen_[tensor.name];
    const bool is_workspace = module_.is_workspace(tensor.name);
    if (seen.tensor != nullptr &&
        (seen.tensor->dtype != tensor.dtype || seen.tensor->dims != tensor.dims))
      refuse(fmt::format("{} is {} in {} and {} in {}", tensor.name, shown(*seen.tensor),
                         seen.first->name(), shown(tensor), kernel.name()),
             "tensors of one name are one tensor; declare both alike, or rename one");
    const ir::TensorId id(static_cast<std::size_t>(&tensor - kernel.function().tensors.data()));
    const bool adds = tensor.output && kernel.function().adds_to(id);
    if (adds && is_workspace && seen.writer == nullptr)
      refuse(fmt::format("{} adds to the workspace {}, which no kernel in front of it writes",
                         kernel.name(), tensor.name),
             "store zeros there in a kernel in front");
    if (tensor.output && seen.writer != nullptr && !adds &&
        !module_.has_several_writers(tensor.name))
      refuse(
          fmt::format("{} and {} both write {}", seen.writer->name(), kernel.name(), tensor.name),
          "the later one would overwrite the earlier; write a tensor in one kernel, or declare "
          "several_writers(\"" +
              tensor.name + "\"), if each writes other elements");
    if (tensor.output && seen.waiter != nullptr)
      refuse(fmt::format("{} and {} both note their turns in {}", seen.waiter->name(),
                         kernel.name(), tensor.name),
             "the later one would not find zeros there; each needs turns of its own");
    if (tensor.output && seen.loader != nullptr)
      refuse(fmt::format("{} writes {}, which {} has read", kernel.name(), tensor.name,
                         seen.loader->name()),
             "kernels run in the order in which they were added; add the one that writes first");
    if (!tensor.output && is_workspace && seen.writer == nullptr)
      refuse(fmt::format("{} reads the workspace {}, which no kernel in front of it writes",
                         kernel.name(), tensor.name),
             "what a workspace holds before a kernel writes it is undefined");
    if (seen.tensor == nullptr) seen.first = &kernel, seen.tensor = &tensor;
    if (tensor.output) seen.writer = &kernel, ++seen.writers;
    if (!tensor.output && seen.loader == nullptr) seen.loader = &kernel;
    if (keeps_turns_in(kernel.function(), id)) seen.waiter = &kernel;
    seen.read |= !tensor.output || adds;
  }

  void check_scalar(const Program& kernel, const ir::Parameter& scalar) {
    const auto [at, fresh] = scalars_.emplace(scalar.name, scalar.dtype);
    if (!fresh && at->second != scalar.dtype)
      refuse(fmt::format("the scalar {} is {} in {} and {} in another kernel", scalar.name,
                         name_of(scalar.dtype), kernel.name(), name_of(at->second)),
             "scalars of one name are one argument; declare both alike, or rename one");
    if (module_.is_number(scalar.name) && scalar.dtype != DType::i32)
      refuse(fmt::format("the number {} is the scalar of {}, which is {}", scalar.name,
                         kernel.name(), name_of(scalar.dtype)),
             "numbers that a launch computes are i32");
  }

  void check_workspace(const std::string& name) const {
    const auto found = seen_.find(name);
    if (found == seen_.end())
      refuse(fmt::format("no kernel has the workspace {}", name),
             "workspaces are tensors that one kernel stores and a later one loads");
    if (!found->second.read)
      refuse(fmt::format("no kernel reads the workspace {}", name),
             "what nobody reads need not be written; or make it an argument");
  }

  void check_writers(const std::string& name) const {
    const auto found = seen_.find(name);
    if (found == seen_.end() || found->second.writers < 2)
      refuse(fmt::format("{} is declared with several_writers, and {} kernel writes it", name,
                         found == seen_.end() || found->second.writers == 0 ? "no" : "one"),
             "leave the declaration out");
  }

  // A workspace has the size of its extents, which arguments or numbers have to give.
  void check_size(const std::string& name) const {
    const std::vector<std::string> known = module_.known_numbers(module_.numbers().size());
    for (const Extent& dim : seen_.at(name).tensor->dims)
      if (!dim.is_static() && !holds(known, dim.name))
        refuse(fmt::format("the workspace {} has the extent {}, which no argument has", name,
                           dim.name),
               fmt::format("number(\"{}\", ...): an expression of {}", dim.name,
                           fmt::join(known, ", ")));
  }

  void check_numbers() const {
    for (std::size_t i = 0; i < module_.numbers().size(); ++i) {
      const LaunchNumber& number = module_.numbers()[i];
      const std::vector<std::string> known = module_.known_numbers(i);
      if (holds(known, number.name))
        refuse(fmt::format("the number {} has the name of an argument's extent, of a scalar or of "
                           "another number",
                           number.name),
               "every number has a name of its own");
      (void)NumberFormula(number, known);
    }
  }

  const Module& module_;
  std::map<std::string, Seen, std::less<>> seen_;
  std::map<std::string, DType, std::less<>> scalars_;
};

}  // namespace

bool Module::is_workspace(std::string_view tensor) const { return holds(workspaces_, tensor); }

bool Module::has_several_writers(std::string_view tensor) const {
  return holds(several_writers_, tensor);
}

bool Module::is_number(std::string_view name) const {
  return std::any_of(numbers_.begin(), numbers_.end(),
                     [&](const LaunchNumber& number) { return number.name == name; });
}

std::vector<ir::Tensor> Module::tensors() const {
  std::vector<ir::Tensor> found;
  for (const Program& kernel : kernels_)
    for (const ir::Tensor& tensor : kernel.function().tensors) {
      if (is_workspace(tensor.name)) continue;
      const auto known = std::find_if(found.begin(), found.end(),
                                      [&](const ir::Tensor& t) { return t.name == tensor.name; });
      if (known == found.end())
        found.push_back(tensor);
      else
        known->output |= tensor.output;
    }
  return found;
}

std::vector<ir::Parameter> Module::parameters() const {
  std::vector<ir::Parameter> found;
  for (const Program& kernel : kernels_)
    for (const ir::Parameter& scalar : kernel.function().parameters) {
      if (is_number(scalar.name)) continue;
      const auto known = std::find_if(found.begin(), found.end(), [&](const ir::Parameter& p) {
        return p.name == scalar.name;
      });
      if (known == found.end())
        found.push_back(scalar);
      else
        known->positive |= scalar.positive;
    }
  return found;
}

bool Module::adds_to(std::string_view tensor) const {
  for (const Program& kernel : kernels_) {
    const ir::Function& f = kernel.function();
    for (std::size_t i = 0; i < f.tensors.size(); ++i)
      if (f.tensors[i].output && f.tensors[i].name == tensor) return f.adds_to(ir::TensorId(i));
  }
  return false;
}

std::vector<std::string> Module::known_numbers(std::size_t count) const {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (!holds(names, name)) names.push_back(name);
  };
  for (const ir::Tensor& tensor : tensors())
    for (const Extent& dim : tensor.dims)
      if (!dim.is_static()) add(dim.name);
  for (const ir::Parameter& scalar : parameters())
    if (scalar.dtype == DType::i32) add(scalar.name);
  add(std::string(multiprocessors));
  for (std::size_t i = 0; i < count; ++i) add(numbers_[i].name);
  return names;
}

std::string Module::text() const {
  std::string text = fmt::format("module {}\n", name_);
  for (const LaunchNumber& number : numbers_)
    text += fmt::format("number {}: {}\n", number.name, number.text);
  for (const std::string& workspace : workspaces_) text += fmt::format("workspace {}\n", workspace);
  for (const std::string& tensor : several_writers_)
    text += fmt::format("several_writers {}\n", tensor);
  for (const Program& kernel : kernels_) text += kernel.text();
  return text;
}

Module Module::parse(std::string_view text) {
  std::size_t line = 0;
  const auto refuse = [&](std::string_view found, std::string_view wanted) {
    throw SpecError(
        {fmt::format("the text of a module, line {}", line),
         fmt::format("expected {}, found \"{}\"", wanted, shortened(std::string(found))),
         "first `module NAME`, then `number NAME: EXPRESSION`, `workspace TENSOR` and "
         "`several_writers TENSOR`, then the programs",
         {}});
  };
  const auto next_line = [&] {
    const std::size_t end = text.find('\n');
    const std::string_view found = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++line;
    return found;
  };
  const auto take = [](std::string_view& from, std::string_view word) {
    if (!from.starts_with(word)) return false;
    from.remove_prefix(word.size());
    return true;
  };
  std::string_view found = next_line();
  if (!take(found, "module ")) refuse(found, "module and its name");
  ModuleBuilder builder{std::string(found)};
  constexpr std::string_view program = "program ";
  while (!text.empty() && !text.starts_with(program)) {
    found = next_line();
    if (take(found, "number ")) {
      const std::size_t colon = found.find(": ");
      if (colon == std::string_view::npos) refuse(found, "a name, a colon and an expression");
      builder.number(std::string(found.substr(0, colon)), std::string(found.substr(colon + 2)));
    } else if (take(found, "workspace ")) {
      builder.workspace(std::string(found));
    } else if (take(found, "several_writers ")) {
      builder.several_writers(std::string(found));
    } else if (!found.empty()) {
      refuse(found, "number, workspace, several_writers or program");
    }
  }
  while (!text.empty()) {
    const std::size_t begin = text.find("\nprogram ", 1);
    const std::string_view one = text.substr(0, begin);
    builder.kernel(Program::parse(one));
    text.remove_prefix(begin == std::string_view::npos ? text.size() : begin + 1);
  }
  return builder.finish();
}

ModuleBuilder::ModuleBuilder(std::string name) { module_.name_ = std::move(name); }

void ModuleBuilder::kernel(Program program) { module_.kernels_.push_back(std::move(program)); }

void ModuleBuilder::workspace(std::string tensor) {
  module_.workspaces_.push_back(std::move(tensor));
}

void ModuleBuilder::several_writers(std::string tensor) {
  module_.several_writers_.push_back(std::move(tensor));
}

void ModuleBuilder::number(std::string name, std::string text) {
  module_.numbers_.push_back({std::move(name), std::move(text)});
}

Module ModuleBuilder::finish() {
  Fit(module_).check();
  return std::move(module_);
}

}  // namespace flashcore
