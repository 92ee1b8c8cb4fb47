# Runs at build time for flashcore_embed: writes OUTPUT, the table of FILES as C++ raw strings.
string(REPLACE "," ";" FILES "${FILES}")
set(table "")
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME)
  file(READ ${file} text)
  string(APPEND table "    {\"${name}\", R\"~embedded~(${text})~embedded~\"},\n")
endforeach()
file(WRITE ${OUTPUT} "#include \"${HEADER}\"

namespace flashcore {

std::span<const ${TYPE}> ${FUNCTION}() {
  static constexpr ${TYPE} files[] = {
${table}  };
  return files;
}

}  // namespace flashcore
")
