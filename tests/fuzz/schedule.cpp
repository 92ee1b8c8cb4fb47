// A schedule as JSON.
#include "dsl/json.h"
#include "tests/fuzz/fuzz_target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace flashcore;
  fuzz::try_to([&] {
    const Schedule schedule = schedule_from_json(fuzz::as_text(bytes, size));
    fuzz::require(to_json(schedule_from_json(to_json(schedule))) == to_json(schedule),
                  "a schedule is read as written");
  });
  return 0;
}
