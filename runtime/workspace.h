// The memory between the kernels of one launch of a module (runtime/module_plan.h).
#pragma once

#include <cstddef>

#include "runtime/cuda/driver.h"

namespace flashcore {

/// Lives until the launch is queued.
class Workspace {
 public:
  Workspace() = default;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  /// So many bytes on the launch's device, at a multiple of ModulePlan::workspace_alignment. What is
  /// queued on the launch's stream while this lives may use them; a graph that captures it keeps them.
  /// At most once.
  virtual void* reserve(std::size_t bytes) = 0;

 protected:
  ~Workspace() = default;
};

/// Memory that the caller has.
class GivenWorkspace final : public Workspace {
 public:
  GivenWorkspace(void* data, std::size_t bytes) : data_(data), bytes_(bytes) {}

  /// Throws DeviceError where that is too little, or begins elsewhere.
  void* reserve(std::size_t bytes) override;

 private:
  void* const data_;
  const std::size_t bytes_;
};

/// From a pool of the driver's that FlashCore has on each device: taken and given back in the order of
/// the stream. The pool keeps up to 64 MiB that no launch uses.
class StreamWorkspace final : public Workspace {
 public:
  StreamWorkspace(int device, CudaStream stream) : device_(device), stream_(stream) {}
  StreamWorkspace(const StreamWorkspace&) = delete;
  StreamWorkspace& operator=(const StreamWorkspace&) = delete;
  ~StreamWorkspace();

  /// Throws DeviceError where the GPU has no memory left.
  void* reserve(std::size_t bytes) override;

 private:
  const int device_;
  const CudaStream stream_;
  CudaAddress address_ = 0;
};

}  // namespace flashcore
