# `cmake --install <build> --component development` gives C++ users the libraries, the headers under
# include/flashcore, and a package: find_package(flashcore), then link flashcore::dsl, ::codegen,
# ::templates, ::runtime, ::emulator or ::reference.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/flashcore)
set(libraries dsl codegen templates runtime emulator reference)
if(TARGET flashcore_fmt)
  list(APPEND libraries fmt)
endif()
foreach(name IN LISTS libraries)
  set_target_properties(flashcore_${name} PROPERTIES EXPORT_NAME ${name})
  install(TARGETS flashcore_${name} EXPORT flashcoreTargets COMPONENT development
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endforeach()
install(TARGETS flashcore_c EXPORT flashcoreTargets COMPONENT development
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES c/flashcore.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(EXPORT flashcoreTargets NAMESPACE flashcore:: DESTINATION ${package} COMPONENT development)
install(DIRECTORY dsl codegen templates runtime DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/flashcore
        COMPONENT development FILES_MATCHING PATTERN "*.h" PATTERN "*.def" PATTERN "prelude" EXCLUDE)

configure_package_config_file(cmake/flashcoreConfig.cmake.in flashcoreConfig.cmake
                              INSTALL_DESTINATION ${package})
write_basic_package_version_file(flashcoreConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES cmake/Findsodium.cmake ${CMAKE_CURRENT_BINARY_DIR}/flashcoreConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/flashcoreConfigVersion.cmake
        DESTINATION ${package} COMPONENT development)
