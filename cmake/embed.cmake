# cmake -DFILES=a;b -DOUT=x.cpp -DHEADER=h -DNAMESPACE=n -DFUNCTION=f -P embed.cmake: a source whose function gives the
# files' text by name.
set(text "#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\nnamespace {\n\n")
string(APPEND text "struct EmbeddedPart {\n  std::string_view name, text;\n};\n\nconstexpr EmbeddedPart kEmbeddedParts[] = {\n")
foreach(file ${FILES})
  get_filename_component(name ${file} NAME)
  file(READ ${file} content)
  string(LENGTH "${content}" size)
  set(at 0)
  while(at LESS size)  # compilers need not take strings above 64 KiB
    string(SUBSTRING "${content}" ${at} 8000 part)
    string(APPEND text "    {\"${name}\", R\"~~~~(${part})~~~~\"},\n")
    math(EXPR at "${at} + 8000")
  endwhile()
endforeach()
string(APPEND text "};\n\n}  // namespace\n\nstd::string ${FUNCTION}(std::string_view name) {\n  std::string text;\n")
string(APPEND text "  for (const EmbeddedPart& part : kEmbeddedParts) {\n    if (part.name == name) text += part.text;\n  }\n  return text;\n}\n\n}  // namespace ${NAMESPACE}\n")
file(WRITE ${OUT} "${text}")
