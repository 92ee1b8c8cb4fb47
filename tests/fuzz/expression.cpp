// A mask, a score or a sink as text. The first byte says which.
#include "dsl/expression.h"

#include "dsl/score_range.h"
#include "tests/fuzz/fuzz_target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace flashcore;
  if (size == 0) return 0;
  const std::string text(fuzz::as_text(bytes + 1, size - 1));
  const std::vector<Captured> captured{
      {"table", DType::f32, 2}, {"ids", DType::i32, 1, true}, {"cap", DType::f32, 0}};
  fuzz::try_to([&] {
    switch (bytes[0] % 3) {
      case 0: {
        const Mask mask(text, captured);
        if (check(mask).empty()) fuzz::require(check(mask | ~mask).empty(), "masks combine");
        break;
      }
      case 1: {
        const Score score(text, captured);
        if (check(score).empty()) (void)is_within(score, 1e8);
        break;
      }
      default:
        (void)check(Sink(text, captured));
    }
  });
  return 0;
}
