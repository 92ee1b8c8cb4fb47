// A table of winners, as autotune writes it beside the kernels.
#include "templates/choice/attention_winners.h"
#include "tests/fuzz/fuzz_target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace flashcore;
  const std::string_view table = fuzz::as_text(bytes, size);
  fuzz::try_to([&] { (void)unusable_winners(table); });
  fuzz::try_to([&] {
    AttentionSpec spec;
    spec.head_dim = 64;
    (void)Winners::of(table, spec, find_target("sm_90a"), 132).find({});
  });
  return 0;
}
