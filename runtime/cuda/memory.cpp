#include "runtime/cuda/memory.h"

#include <fmt/format.h>

#include "dsl/error.h"
#include "runtime/cuda/device.h"

namespace flashcore {
namespace {

void require_fit(std::size_t given, std::size_t room, const char* what) {
  if (given <= room) return;
  throw DeviceError({.what = fmt::format("{} of {} bytes", what, given),
                     .why = fmt::format("the allocation has {}", room),
                     .fix = "a larger DeviceMemory",
                     .where = {}});
}

}  // namespace

DeviceMemory::DeviceMemory(std::size_t bytes) : bytes_(bytes) {
  const Driver& driver = Driver::get();
  device_ = current_device(driver);
  const ContextGuard context(driver, device_);
  if (bytes > 0) {
    driver.check(driver.cuMemAlloc_v2(&address_, bytes),
                 fmt::format("{} bytes cannot be allocated on GPU {}", bytes, device_));
  }
}

DeviceMemory::~DeviceMemory() {
  if (address_ == 0) return;
  const Driver& driver = Driver::get();
  const ContextGuard context(driver, device_);
  driver.cuMemFree_v2(address_);
}

void DeviceMemory::upload(std::span<const std::byte> source) {
  require_fit(source.size(), bytes_, "upload");
  const Driver& driver = Driver::get();
  const ContextGuard context(driver, device_);
  driver.check(driver.cuMemcpyHtoD_v2(address_, source.data(), source.size()), "the upload failed");
}

void DeviceMemory::download(std::span<std::byte> target) const {
  require_fit(target.size(), bytes_, "download");
  const Driver& driver = Driver::get();
  const ContextGuard context(driver, device_);
  driver.check(driver.cuMemcpyDtoH_v2(target.data(), address_, target.size()),
               "the download failed");
}

}  // namespace flashcore
