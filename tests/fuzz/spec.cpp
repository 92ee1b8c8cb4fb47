// A spec as JSON, and the program that is made of it.
#include "dsl/json.h"
#include "templates/attention.h"
#include "tests/fuzz/fuzz_target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace flashcore;
  fuzz::try_to([&] {
    const AttentionSpec spec = attention_spec_from_json(fuzz::as_text(bytes, size));
    fuzz::require(to_json(attention_spec_from_json(to_json(spec))) == to_json(spec),
                  "a spec is read as written");
    const Program program = attention_forward(spec);
    fuzz::require(Program::parse(program.text()).text() == program.text(),
                  "a program is read as written");
  });
  return 0;
}
