# Third-party libraries that distributions ship as shared libraries only: they travel beside the drop-in under their sonames
# (the parallel lists TENSORWIRE_BUNDLED and TENSORWIRE_BUNDLED_SONAMES), and $ORIGIN finds them there. They have a folder
# of their own: were they beside the drop-in, the program's run path would lead to the drop-in too, and a host with a NIC
# would never see its own libibverbs.
set(TENSORWIRE_LIBDIR lib/tensorwire)
set(TENSORWIRE_BUNDLE_FOLDER bundled)
set(TENSORWIRE_BUNDLED)
set(TENSORWIRE_BUNDLED_SONAMES)
foreach(name isal)
  find_library(${name}_library ${name} REQUIRED)
  file(REAL_PATH ${${name}_library} file)
  execute_process(COMMAND ${CMAKE_OBJDUMP} -p ${file} OUTPUT_VARIABLE headers COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCH "SONAME +([^\n]+)" _ "${headers}")
  list(APPEND TENSORWIRE_BUNDLED ${file})
  list(APPEND TENSORWIRE_BUNDLED_SONAMES ${CMAKE_MATCH_1})
endforeach()
