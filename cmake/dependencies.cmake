# What FlashCore links. Debian's packages are the reference; any other source of the same CMake targets
# does as well.
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Threads REQUIRED)

# A wheel must not need the distribution's libfmt.so, and there is no libfmt.a in Debian.
if(FLASHCORE_STATIC)
  set(FLASHCORE_FMT fmt::fmt-header-only)
  set(Boost_USE_STATIC_LIBS ON)
else()
  set(FLASHCORE_FMT fmt::fmt)
endif()
