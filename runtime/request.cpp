#include "runtime/request.h"

#include <array>
#include <string_view>

#include "codegen/generate.h"
#include "dsl/json.h"
#include "runtime/bundle/signature.h"
#include "runtime/cache/digest.h"
#include "runtime/cache/key.h"

namespace flashcore {

std::string request_of(const Program& program, const Schedule& schedule, const Target& target) {
  const std::string how = to_json(schedule), what = program.text();
  const std::array<std::string_view, 5> fields{"flashcore request 1", generator_digest(),
                                               target.name, how, what};
  return hexadecimal(secure_digest_of(make_key(fields, "").preimage));
}

}  // namespace flashcore
