// Ranges that NVIDIA's profilers show on their time line (NVTX), in a domain called flashcore. They
// cost a look at a pointer where no profiler listens, and nothing where FlashCore was built without
// NVTX's headers.
#pragma once

namespace flashcore {

/// From here to the end of the scope.
class ProfilerRange {
 public:
  explicit ProfilerRange(const char* name);
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
  ~ProfilerRange();
};

}  // namespace flashcore
