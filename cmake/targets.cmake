# How every library of FlashCore is built: sources by pattern, so that a new pass or template is a new
# file and nothing else.
include(embed)
include(source_digest)
include(unity)

# What nearly every file includes is parsed once for all libraries, and once for all tests. Every file
# still names what it uses: the preset dev builds without precompiled headers.
set(FLASHCORE_COMMON_HEADERS <algorithm> <array> <cmath> <map> <optional> <set> <string> <utility> <vector>
                             <fmt/format.h>)

# flashcore_precompile(<target> <owner> <header>...): the first target that comes is the owner, and compiles
# the headers for those that follow, which must be compiled by the same options.
function(flashcore_precompile target owner)
  if(target STREQUAL owner)
    target_precompile_headers(${target} PRIVATE ${ARGN} ${FLASHCORE_COMMON_HEADERS})
  else()
    target_precompile_headers(${target} REUSE_FROM ${owner})
  endif()
endfunction()

function(flashcore_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Werror=switch
                         -Wno-missing-field-initializers)
  # GCC 12 sees overlaps and overflows in text + std::string (https://gcc.gnu.org/PR105651).
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE -Wno-restrict -Wno-stringop-overflow -Wno-array-bounds)
  endif()
  if(FLASHCORE_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
endfunction()

# flashcore_library(<name> SOURCES <pattern>... [LINK <target>...] [HEADERS_OF <target>...]) makes
# flashcore_<name>. Patterns are relative to the current folder. HEADERS_OF names header-only libraries
# that its .cpp files include; who links an installed flashcore does not need them.
function(flashcore_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK;HEADERS_OF" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${arg_SOURCES})
  flashcore_alone(${sources})
  add_library(flashcore_${name} STATIC ${sources})
  add_library(flashcore::${name} ALIAS flashcore_${name})
  target_include_directories(flashcore_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                      $<INSTALL_INTERFACE:include/flashcore>)
  target_compile_features(flashcore_${name} PUBLIC cxx_std_20)
  target_link_libraries(flashcore_${name} PUBLIC ${arg_LINK})
  foreach(library IN LISTS arg_HEADERS_OF)
    target_link_libraries(flashcore_${name} PRIVATE $<BUILD_INTERFACE:${library}>)
  endforeach()
  flashcore_warnings(flashcore_${name})
  flashcore_precompile(flashcore_${name} flashcore_dsl)
endfunction()
