# What FlashCore links. Debian's packages are the reference; any other source of the same CMake targets
# does as well.
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Threads REQUIRED)

# A wheel must not need the distribution's libfmt.so, and there is no libfmt.a in Debian. Compiled here
# once, from the headers of the version it is written for, a build takes half the time.
if(NOT FLASHCORE_STATIC)
  set(FLASHCORE_FMT fmt::fmt)
elseif(fmt_VERSION VERSION_LESS 9 OR fmt_VERSION VERSION_GREATER_EQUAL 10)
  set(FLASHCORE_FMT fmt::fmt-header-only)
else()
  set(FLASHCORE_FMT flashcore_fmt)
  add_library(flashcore_fmt STATIC ${CMAKE_CURRENT_LIST_DIR}/fmt_library.cpp)
  target_compile_features(flashcore_fmt PUBLIC cxx_std_20)
  target_include_directories(flashcore_fmt SYSTEM PUBLIC
    $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)
endif()
if(FLASHCORE_STATIC)
  set(Boost_USE_STATIC_LIBS ON)
  set(sodium_USE_STATIC_LIBS ON)
endif()
find_package(sodium REQUIRED)
