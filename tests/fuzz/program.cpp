// A program as text.
#include "dsl/program.h"

#include "tests/fuzz/fuzz_target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace flashcore;
  fuzz::try_to([&] {
    const Program program = Program::parse(fuzz::as_text(bytes, size));
    fuzz::require(Program::parse(program.text()).text() == program.text(),
                  "a program is read as written");
  });
  return 0;
}
