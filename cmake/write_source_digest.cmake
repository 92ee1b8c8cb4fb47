# Runs at build time for flashcore_source_digest: writes OUTPUT, from the names and contents of FILES.
string(REPLACE "," ";" FILES "${FILES}")
set(list "")
foreach(file IN LISTS FILES)
  file(SHA256 ${file} digest)
  string(APPEND list "${file} ${digest}\n")
endforeach()
string(SHA256 digest "${list}")
file(WRITE ${OUTPUT} "#include \"${HEADER}\"

namespace flashcore {

std::string_view ${FUNCTION}() { return \"${digest}\"; }

}  // namespace flashcore
")
