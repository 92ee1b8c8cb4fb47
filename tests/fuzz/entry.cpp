// The file of a kernel. Its digest would end nearly every search at once, so the bytes are also
// taken for the sections of a file that is whole.
#include "runtime/cache/entry.h"

#include <array>

#include "runtime/cache/digest.h"
#include "runtime/cache/envelope.h"
#include "runtime/cache/launch_data.h"
#include "runtime/cache/stored_kernel.h"
#include "runtime/launch.h"
#include "tests/fuzz/fuzz_target.h"

namespace flashcore::fuzz {
namespace {

void read(std::string_view file) {
  try_to([&] { (void)LoadedKernel(read_stored_kernel(file, "x.kernel").compiled()); });
}

/// A whole entry whose launch data is `launch`, which says of itself what its key says.
std::string entry_with(std::string_view launch) {
  const std::array<std::string_view, 8> fields{"schema", "sm_80", "f",    "text",
                                               launch,   "13.0",  "0123", "0"};
  std::string code =
      "\x7f"
      "ELF" +
      std::string(100, '\0');
  code[18] = '\xbe';
  return encode_entry(make_key(fields, "f for sm_80", kernel_fields_asked),
                      {.bytes = code, .resources = {}});
}

}  // namespace
}  // namespace flashcore::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace flashcore;
  const std::string_view text = fuzz::as_text(bytes, size);
  fuzz::read(text);
  fuzz::read(fuzz::entry_with(text));
  // Three sections, with a line of # between two.
  const std::size_t first = text.find("\n#\n");
  const std::size_t second = first == text.npos ? first : text.find("\n#\n", first + 3);
  if (second != text.npos) {
    fuzz::read(seal(std::array<std::string_view, 3>{text.substr(0, first),
                                                    text.substr(first + 3, second - first - 3),
                                                    text.substr(second + 3)}));
  }
  return 0;
}
