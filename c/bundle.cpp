// Bundles of the C interface.
#include "runtime/bundle/bundle.h"

#include "c/guard.h"
#include "c/objects.h"
#include "dsl/error.h"
#include "runtime/cache/cache.h"
#include "runtime/cache/stored_kernel.h"

using namespace flashcore;

extern "C" {

fc_status fc_bundle_open(const char* path, fc_bundle** bundle) {
  if (path == nullptr) return c::refuse_null(__func__, "path");
  if (bundle == nullptr) return c::refuse_null(__func__, "bundle");
  return c::guarded([&] {
    auto made = std::make_unique<fc_bundle>();
    made->open = Bundle::open(path);
    if (made->open->signer()) made->signer = made->open->signer()->text();
    *bundle = made.release();
  });
}

void fc_bundle_free(fc_bundle* bundle) { delete bundle; }

size_t fc_bundle_count(const fc_bundle* bundle) { return bundle->open->kernels().size(); }

fc_status fc_bundle_entry_at(const fc_bundle* bundle, size_t index, fc_bundle_entry* entry) {
  if (bundle == nullptr) return c::refuse_null(__func__, "bundle");
  if (entry == nullptr) return c::refuse_null(__func__, "entry");
  const auto& kernels = bundle->open->kernels();
  if (index >= kernels.size()) return c::refuse_index(__func__, index, kernels.size());
  const BundledKernel& kernel = kernels[index];
  *entry = {.key = kernel.key.c_str(),
            .kernel = kernel.kernel.c_str(),
            .target = kernel.target.c_str(),
            .bytes = kernel.bytes};
  return FC_OK;
}

const char* fc_bundle_signer(const fc_bundle* bundle) {
  return bundle->signer.empty() ? nullptr : bundle->signer.c_str();
}

fc_status fc_kernel_from_bundle(const fc_bundle* bundle, const char* key, fc_kernel** kernel) {
  if (bundle == nullptr) return c::refuse_null(__func__, "bundle");
  if (key == nullptr) return c::refuse_null(__func__, "key");
  if (kernel == nullptr) return c::refuse_null(__func__, "kernel");
  return c::guarded([&] {
    const Bundle& open = *bundle->open;
    for (const BundledKernel* found : open.find(key)) {
      if (found->key != key) continue;
      *kernel = new fc_kernel(read_stored_kernel(open.read(*found), open.path()).compiled());
      return;
    }
    throw CacheError({.what = fmt::format("the kernel {} of {}", key, open.path()),
                      .why = "the bundle has none of that key",
                      .fix = "a key that fc_bundle_entry_at tells",
                      .where = {}});
  });
}

fc_status fc_bundle_use(const fc_bundle* bundle) {
  if (bundle == nullptr) return c::refuse_null(__func__, "bundle");
  return c::guarded([&] { KernelCache::shared().add_bundle(bundle->open); });
}

}  // extern "C"
