# sluice_layer(NAME DEPS... LIBS...): one static library for one folder of src/. DEPS is the whole list of folders that
# its sources may include; tools/check_layers holds the includes against it. EXCLUDE: folders in it that are left out.
function(sluice_layer name)
  cmake_parse_arguments(ARG "" "" "DEPS;LIBS;EXCLUDE" ${ARGN})
  # Relative, so that no folder above the sources counts as one of them.
  set(root ${CMAKE_CURRENT_SOURCE_DIR}/${name})
  file(GLOB_RECURSE sources RELATIVE ${root} CONFIGURE_DEPENDS ${root}/*.cpp)
  foreach(folder ${ARG_EXCLUDE})
    list(FILTER sources EXCLUDE REGEX "^${folder}/")
  endforeach()
  list(TRANSFORM sources PREPEND ${root}/)
  get_property(tables GLOBAL PROPERTY sluice_tables_${name})
  if(sources OR tables)
    add_library(sluice_${name} STATIC ${sources} ${tables})
    target_include_directories(sluice_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
    set(scope PUBLIC)
  else()
    add_library(sluice_${name} INTERFACE)
    target_include_directories(sluice_${name} INTERFACE ${CMAKE_SOURCE_DIR}/src)
    set(scope INTERFACE)
  endif()
  list(TRANSFORM ARG_DEPS PREPEND sluice_)
  target_link_libraries(sluice_${name} ${scope} ${ARG_DEPS} ${ARG_LIBS} Threads::Threads)
endfunction()

# sluice_table(LAYER FOLDER TYPE PREFIX HEADER NAMESPACE): generates FOLDER_table() (of a path, its last folder), the list of every `const TYPE PREFIX_file`
# in LAYER/FOLDER/*.cpp. The file name is the registration. Call before sluice_layer(LAYER). A last argument: their extension, if it is another.
function(sluice_table layer folder type prefix header namespace)
  cmake_path(GET folder FILENAME name)
  set(extension cpp ${ARGN})
  list(GET extension -1 extension)
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${layer}/${folder}/*.${extension})
  set(externs "")
  set(entries "")
  foreach(file ${files})
    get_filename_component(stem ${file} NAME_WE)
    string(APPEND externs "extern const ${type} ${prefix}_${stem};\n")
    string(APPEND entries "      &${prefix}_${stem},\n")
  endforeach()
  set(out ${CMAKE_BINARY_DIR}/generated/${layer}_${name}_table.cpp)
  file(CONFIGURE OUTPUT ${out} CONTENT
"// Generated from src/${layer}/${folder}/*.${extension} by cmake/layers.cmake.
#include \"${header}\"
namespace ${namespace} {
${externs}
std::span<const ${type}* const> ${name}_table() {
  static const ${type}* const kTable[] = {
${entries}  };
  return kTable;
}
}  // namespace ${namespace}
" @ONLY)
  set_property(GLOBAL APPEND PROPERTY sluice_tables_${layer} ${out})
endfunction()
