# flashcore_source_digest(<target> FUNCTION <name> HEADER <header> FILES <pattern>...) defines
# flashcore::<name>(), declared in <header>: hexadecimal digits that change with any of the files.
set(FLASHCORE_DIGEST_SCRIPT ${CMAKE_CURRENT_LIST_DIR}/write_source_digest.cmake)

function(flashcore_source_digest target)
  cmake_parse_arguments(arg "" "FUNCTION;HEADER" "FILES" ${ARGN})
  file(GLOB_RECURSE files CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${arg_FILES})
  list(SORT files)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${arg_FUNCTION}.cpp)
  string(REPLACE ";" "," joined "${files}")
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${output} -DFUNCTION=${arg_FUNCTION} -DHEADER=${arg_HEADER}
            "-DFILES=${joined}" -P ${FLASHCORE_DIGEST_SCRIPT}
    DEPENDS ${files} ${FLASHCORE_DIGEST_SCRIPT}
    WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}
    COMMENT "The digest of the sources of ${arg_FUNCTION}()"
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()
