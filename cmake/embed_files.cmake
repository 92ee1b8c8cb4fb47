# Runs at build time for flashcore_embed: writes OUTPUT, the text of a file or the table of FILES, as
# C++ raw strings.
string(REPLACE "," ";" FILES "${FILES}")
set(table "")
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME)
  file(READ ${file} text)
  set(literal "R\"~embedded~(${text})~embedded~\"")
  string(APPEND table "    {\"${name}\", ${literal}},\n")
endforeach()
if(TYPE)
  set(result "std::span<const ${TYPE}>")
  set(body "  static constexpr ${TYPE} files[] = {\n${table}  };\n  return files;")
else()
  set(result "std::string_view")
  set(body "  return ${literal};")
endif()
file(WRITE ${OUTPUT} "#include \"${HEADER}\"

namespace flashcore {

${result} ${FUNCTION}() {
${body}
}

}  // namespace flashcore
")
