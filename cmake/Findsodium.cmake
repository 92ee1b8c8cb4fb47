# libsodium brings no package for CMake. Gives the target sodium::sodium; of its static library where
# sodium_USE_STATIC_LIBS is set, and of whatever there is elsewhere.
find_path(sodium_INCLUDE_DIR sodium.h)
if(sodium_USE_STATIC_LIBS)
  find_library(sodium_LIBRARY NAMES libsodium.a)
else()
  find_library(sodium_LIBRARY NAMES sodium)
endif()
mark_as_advanced(sodium_INCLUDE_DIR sodium_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(sodium REQUIRED_VARS sodium_LIBRARY sodium_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "It is in libsodium-dev of Debian, in libsodium-devel of others.")

if(sodium_FOUND AND NOT TARGET sodium::sodium)
  add_library(sodium::sodium UNKNOWN IMPORTED)
  set_target_properties(sodium::sodium PROPERTIES
    IMPORTED_LOCATION "${sodium_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${sodium_INCLUDE_DIR}")
  if(sodium_USE_STATIC_LIBS)
    # Debian's is compiled for executables alone. In a shared library its symbols have to be hidden,
    # which they should be in any case: others in the process bring a libsodium of their own.
    set_target_properties(sodium::sodium PROPERTIES
      INTERFACE_LINK_OPTIONS "LINKER:--exclude-libs,libsodium.a")
  endif()
endif()
