// A bundle. As its digest would end nearly every search at once, the bytes are also taken for the
// manifest of a file that is whole, and for what lies behind it.
#include "runtime/bundle/bundle.h"

#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/cache/stored_kernel.h"
#include "tests/fuzz/fuzz_target.h"

namespace flashcore::fuzz {
namespace {

void read(std::string_view file) {
  static const int memory = memfd_create("bundle", MFD_CLOEXEC);
  require(ftruncate(memory, 0) == 0 &&
              pwrite(memory, file.data(), file.size(), 0) == static_cast<ssize_t>(file.size()),
          "the file can be written");
  try_to([&] {
    const auto bundle = Bundle::open(fmt::format("/proc/self/fd/{}", memory));
    for (const BundledKernel& kernel : bundle->kernels())
      try_to([&] { (void)read_stored_kernel(bundle->read(kernel), "x"); });
    (void)bundle->find(file.substr(0, 2));
  });
}

}  // namespace
}  // namespace flashcore::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace flashcore;
  const std::string_view text = fuzz::as_text(bytes, size);
  fuzz::read(text);
  const std::size_t end = text.find("\n#\n");
  const std::string_view manifest = text.substr(0, end);
  std::string whole = std::string("FCBUNDLE\1\0\0\0\0\0\0\0", 16);
  const std::uint64_t manifest_bytes = manifest.size();
  whole.append(reinterpret_cast<const char*>(&manifest_bytes), sizeof manifest_bytes);
  whole += manifest;
  whole += secure_digest_of(whole);
  whole += '\0';
  if (end != text.npos) whole += text.substr(end + 3);
  fuzz::read(whole);
  return 0;
}
