# The installed tree is relocatable: bin/tensorwire, lib/tensorwire/ with the drop-in libibverbs.so.1 and every library
# that is not part of glibc, include/tensorwire/. The build tree has the same shape, so the program finds the drop-in
# beside itself in both.
include(GNUInstallDirs)
set(TENSORWIRE_LIBDIR lib/tensorwire)

if(TARGET tensorwire)
  set_target_properties(tensorwire PROPERTIES INSTALL_RPATH "$ORIGIN/../${TENSORWIRE_LIBDIR}")
  install(TARGETS tensorwire RUNTIME DESTINATION bin)
endif()
