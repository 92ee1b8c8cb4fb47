# What FlashCore links. Debian's packages are the reference; any other source of the same CMake targets
# does as well. All that is missing is told at once: whoever builds a wheel with pip sees this and nothing else.
if(FLASHCORE_STATIC)
  set(Boost_USE_STATIC_LIBS ON)
  set(sodium_USE_STATIC_LIBS ON)
endif()
find_package(fmt QUIET)
find_package(nlohmann_json QUIET)
find_package(Boost QUIET COMPONENTS context)
find_package(sodium QUIET)
find_path(XXHASH_INCLUDE_DIR xxhash.h)
find_package(Threads REQUIRED)

set(missing_debian "")
set(missing_fedora "")
function(flashcore_need found debian fedora)
  if(NOT found)
    set(missing_debian "${missing_debian} ${debian}" PARENT_SCOPE)
    set(missing_fedora "${missing_fedora} ${fedora}" PARENT_SCOPE)
  endif()
endfunction()
flashcore_need("${fmt_FOUND}" libfmt-dev fmt-devel)
flashcore_need("${nlohmann_json_FOUND}" nlohmann-json3-dev json-devel)
flashcore_need("${Boost_FOUND}" libboost-context-dev "boost-devel boost-static")
flashcore_need("${sodium_FOUND}" libsodium-dev "libsodium-devel libsodium-static")
flashcore_need("${XXHASH_INCLUDE_DIR}" libxxhash-dev xxhash-devel)
if(missing_debian)
  message(FATAL_ERROR "FlashCore is built with libraries that are not here. Install them:\n"
    "  Debian, Ubuntu: apt-get install${missing_debian}\n"
    "  Fedora, RHEL (with EPEL): dnf install${missing_fedora}")
endif()

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
