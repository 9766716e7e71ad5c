# What other builds need: find_package(tensorwire) gives the target tensorwire::tensorwire, pkg-config the name tensorwire.
# Both are relocatable: every path is relative to where the files lie.
include(CMakePackageConfigHelpers)

install(TARGETS tensorwire_library EXPORT tensorwire LIBRARY DESTINATION lib)
install(EXPORT tensorwire NAMESPACE tensorwire:: FILE tensorwire-targets.cmake DESTINATION lib/cmake/tensorwire)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/tensorwire-config-version.cmake
  COMPATIBILITY SameMinorVersion)
file(WRITE ${PROJECT_BINARY_DIR}/package/tensorwire-config.cmake
  "include(\${CMAKE_CURRENT_LIST_DIR}/tensorwire-targets.cmake)\n")
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/package/tensorwire.pc @ONLY CONTENT [[
prefix=${pcfiledir}/../..

Name: tensorwire
Description: Collectives between the ranks of a tensor-parallel model, over RoCEv2
Version: @PROJECT_VERSION@
Cflags: -I${prefix}/include
Libs: -L${prefix}/lib -ltensorwire
]])
install(FILES ${PROJECT_BINARY_DIR}/package/tensorwire-config.cmake
  ${PROJECT_BINARY_DIR}/package/tensorwire-config-version.cmake DESTINATION lib/cmake/tensorwire)
install(FILES ${PROJECT_BINARY_DIR}/package/tensorwire.pc DESTINATION lib/pkgconfig)
install(DIRECTORY examples/ DESTINATION share/doc/tensorwire/examples)
