# Compiles every header on its own, so that none leans on what its user happened to include before. A header with a source
# of its own name is the first thing which that one includes (scripts/lint/rooms.py), so builds without unity compile it so
# already: debug, and clang-tidy's.
# Headers named *.h are for C programs too and are compiled as both.
file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/src/*.hpp
  ${PROJECT_SOURCE_DIR}/src/*.h)
file(GLOB_RECURSE public_headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/include
  ${PROJECT_SOURCE_DIR}/include/*.hpp ${PROJECT_SOURCE_DIR}/include/*.h)

set(units)
foreach(header ${headers} ${public_headers})
  string(REGEX REPLACE "\\.hpp$" ".cpp" source ${header})
  if(NOT source STREQUAL header AND EXISTS ${PROJECT_SOURCE_DIR}/src/${source})
    continue()
  endif()
  set(languages cpp)
  if(header MATCHES "\\.h$")
    list(APPEND languages c)
  endif()
  foreach(language ${languages})
    set(unit ${PROJECT_BINARY_DIR}/headers/${header}.${language})
    file(CONFIGURE OUTPUT ${unit} CONTENT "#include \"@header@\"\n#include \"@header@\"\n" @ONLY)
    list(APPEND units ${unit})
  endforeach()
endforeach()

add_library(tw_headers OBJECT ${units})
target_link_libraries(tw_headers PRIVATE tw_flags)
set_target_properties(tw_headers PROPERTIES UNITY_BUILD OFF)
# A header that defines constants or inline helpers for others is not to blame for not using them itself.
target_compile_options(tw_headers PRIVATE -Wno-unused)
