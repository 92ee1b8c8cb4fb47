# Puts text files into a library, so that an installed FlashCore reads nothing from disk.
#
# flashcore_embed(<target> FUNCTION <name> HEADER <header> [TYPE <type>] FILES <pattern>...) defines
# flashcore::<name>(), declared in <header>: a span of <type>{name, text}, sorted by name; without a
# type the text of the one file that there is.
set(FLASHCORE_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_DIR}/embed_files.cmake)

function(flashcore_embed target)
  cmake_parse_arguments(arg "" "FUNCTION;HEADER;TYPE" "FILES" ${ARGN})
  file(GLOB files CONFIGURE_DEPENDS ${arg_FILES})
  list(SORT files)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${arg_FUNCTION}.cpp)
  string(REPLACE ";" "," joined "${files}")
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${output} -DFUNCTION=${arg_FUNCTION} -DHEADER=${arg_HEADER}
            -DTYPE=${arg_TYPE} "-DFILES=${joined}" -P ${FLASHCORE_EMBED_SCRIPT}
    DEPENDS ${files} ${FLASHCORE_EMBED_SCRIPT}
    COMMENT "Embedding the files of ${arg_FUNCTION}()"
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()
