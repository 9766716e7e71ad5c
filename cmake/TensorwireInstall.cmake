# The installed tree is relocatable: bin/tensorwire, lib/tensorwire/ with the drop-in libibverbs.so.1 and every library
# that is not part of glibc, lib/libtensorwire.so and include/tensorwire/ (TensorwirePackage). The build tree has the same
# shape, so program and library find the drop-in beside themselves in both.
set(TENSORWIRE_DOCDIR share/doc/tensorwire)

if(TARGET tensorwire)
  install(TARGETS tensorwire RUNTIME DESTINATION bin)
  add_dependencies(rooms tensorwire)
endif()
if(TARGET ibverbs_dropin)
  install(TARGETS ibverbs_dropin LIBRARY DESTINATION ${TENSORWIRE_LIBDIR})
  add_dependencies(rooms ibverbs_dropin)
endif()
if(TARGET nccl_shim)
  install(TARGETS nccl_shim LIBRARY DESTINATION ${TENSORWIRE_LIBDIR}/nccl NAMELINK_SKIP)
  add_dependencies(rooms nccl_shim)
endif()

foreach(library soname IN ZIP_LISTS TENSORWIRE_BUNDLED TENSORWIRE_BUNDLED_SONAMES)
  install(PROGRAMS ${library} DESTINATION ${TENSORWIRE_LIBDIR}/${TENSORWIRE_BUNDLE_FOLDER} RENAME ${soname})
endforeach()

install(DIRECTORY include/ DESTINATION include OPTIONAL)
install(FILES README.md LICENSE DESTINATION ${TENSORWIRE_DOCDIR})
install(DIRECTORY docs/ DESTINATION ${TENSORWIRE_DOCDIR} OPTIONAL FILES_MATCHING PATTERN "*.md")

# The licences of what is compiled in or bundled, as the distribution recorded them.
foreach(package libisal2 libfmt-dev libspdlog-dev libcli11-dev nlohmann-json3-dev libstdc++6)
  install(FILES /usr/share/doc/${package}/copyright DESTINATION ${TENSORWIRE_DOCDIR}/third-party
    RENAME ${package}.txt OPTIONAL)
endforeach()
