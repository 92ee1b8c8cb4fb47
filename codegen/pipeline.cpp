#include <algorithm>

#include <fmt/format.h>

#include "codegen/passes/passes.h"

namespace flashcore {
namespace {

void add(PassNotes* notes, std::string line) {
  if (notes && std::ranges::count(*notes, line) == 0) notes->push_back(std::move(line));
}

}  // namespace

void PassContext::note_numerics(const std::string& how) const { add(notes, "numerics: " + how); }

void PassContext::note_refusal(const std::string& asked, const std::string& why) const {
  add(notes, fmt::format("not taken: {}: {}", asked, why));
}

std::span<const Pass> pipeline() {
  static constexpr Pass passes[] = {
#define FC_PASS(name, why_here) {#name, name},
#include "codegen/passes/passes.def"
#undef FC_PASS
  };
  return passes;
}

}  // namespace flashcore
