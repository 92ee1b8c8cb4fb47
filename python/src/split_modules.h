// The modules that calls with split keys launch, by what a block of theirs computes.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <pybind11/pybind11.h>

#include "python/src/jit_module.h"
#include "templates/decode_choice.h"

namespace flashcore::python {

/// DecodeBlocks as Python has them.
using NamedBlocks = std::tuple<std::string, int, bool>;
NamedBlocks named(const DecodeBlocks& blocks);
DecodeBlocks blocks_named(const NamedBlocks& blocks);

/// Those of one spec that calls without the log-sum-exp came to. Needs the GIL.
class SplitModules {
 public:
  /// A module, and which of a call's arrays each of its own is.
  struct Entry {
    DecodeBlocks blocks;
    pybind11::object owner;
    JitModule* module;
    std::vector<std::size_t> order;
  };

  explicit SplitModules(std::shared_ptr<const DecodeChooser> chooser)
      : chooser_(std::move(chooser)) {}

  [[nodiscard]] const DecodeChooser& chooser() const { return *chooser_; }
  void add(const NamedBlocks& blocks, pybind11::object module, std::vector<std::size_t> order);
  /// Null where no call came to it before.
  [[nodiscard]] const Entry* find(const DecodeBlocks& blocks) const;

 private:
  std::shared_ptr<const DecodeChooser> chooser_;
  std::deque<Entry> entries_;
};

}  // namespace flashcore::python
