#include "runtime/cuda/shared_library.h"

#include <filesystem>

#include <dlfcn.h>
#include <link.h>

namespace flashcore {

SharedLibrary SharedLibrary::open(const std::string& name, Symbols symbols) {
  SharedLibrary library;
  const int scope = symbols == Symbols::global ? RTLD_GLOBAL : RTLD_LOCAL;
  library.handle_ = dlopen(name.c_str(), RTLD_NOW | scope);
  if (library.handle_ == nullptr) {
    const char* message = dlerror();
    library.failure_ = message != nullptr ? message : "unknown failure of the loader";
  }
  return library;
}

std::string SharedLibrary::path() const {
  link_map* map = nullptr;
  if (handle_ == nullptr || dlinfo(handle_, RTLD_DI_LINKMAP, &map) != 0) return "";
  std::error_code error;
  const auto resolved = std::filesystem::canonical(map->l_name, error);
  return error ? std::string(map->l_name) : resolved.string();
}

void* SharedLibrary::symbol(const char* name) const { return dlsym(handle_, name); }

}  // namespace flashcore
