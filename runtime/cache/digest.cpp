#define XXH_INLINE_ALL
#include "runtime/cache/digest.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

namespace flashcore {

std::string raw_digest_of(std::string_view bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  static_assert(sizeof canonical.digest == digest_bytes);
  return {reinterpret_cast<const char*>(canonical.digest), digest_bytes};
}

std::string hexadecimal(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

std::string digest_of(std::string_view bytes) { return hexadecimal(raw_digest_of(bytes)); }

std::string digest_of_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return "";
  std::string digest;
  struct stat status {};
  if (fstat(file, &status) == 0 && status.st_size > 0) {
    const auto size = static_cast<std::size_t>(status.st_size);
    void* const content = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
    if (content != MAP_FAILED) {
      digest = digest_of({static_cast<const char*>(content), size});
      munmap(content, size);
    }
  }
  close(file);
  return digest;
}

}  // namespace flashcore
