# How every target is compiled: warnings, sanitizers, what the program may need at run time. All of it hangs on tw_flags.
set(TENSORWIRE_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize takes them: address,undefined or thread")
set(TENSORWIRE_STATIC_RUNTIME_DEFAULT ON)
if(TENSORWIRE_SANITIZE)
  set(TENSORWIRE_STATIC_RUNTIME_DEFAULT OFF)
endif()
option(TENSORWIRE_STATIC_RUNTIME "Link libstdc++ and libgcc statically, so that an installed tree needs only glibc"
  ${TENSORWIRE_STATIC_RUNTIME_DEFAULT})

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Clones and build folders share results although their paths differ.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_NOHASHDIR=1 ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()

# The instruction set stays baseline: what is faster with AVX is chosen at run time. Frame pointers cost nothing that can
# be measured and make every profile readable.
add_library(tw_flags INTERFACE)
set(not_cuda $<NOT:$<COMPILE_LANGUAGE:CUDA>>)
target_compile_options(tw_flags INTERFACE $<${not_cuda}:-fno-omit-frame-pointer>
  "$<${not_cuda}:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Wno-sign-conversion>")
# Warnings are errors for the compilers that the code is held to; another one may warn of more.
if((CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION MATCHES "^12\\.") OR
   (CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION MATCHES "^16\\."))
  target_compile_options(tw_flags INTERFACE $<${not_cuda}:-Werror>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC bug 105651: at -O3, adding std::string to a literal is called an overlapping copy.
  target_compile_options(tw_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
target_include_directories(tw_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_compile_definitions(tw_flags INTERFACE $<${not_cuda}:_GNU_SOURCE>)

# Every room with coverage feedback; the programs of tests/fuzz bring libFuzzer's main.
if(TENSORWIRE_FUZZ)
  target_compile_options(tw_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

if(TENSORWIRE_STATIC_RUNTIME)
  target_link_options(tw_flags INTERFACE -static-libstdc++ -static-libgcc)
endif()

if(TENSORWIRE_SANITIZE)
  target_compile_options(tw_flags INTERFACE -fsanitize=${TENSORWIRE_SANITIZE} -fno-sanitize-recover=all)
  target_link_options(tw_flags INTERFACE -fsanitize=${TENSORWIRE_SANITIZE})
  # Callers of the drop-in are C programs: an enumeration may hold any number (that it is refused is tested), and a symbol
  # that dlsym() found is called by whatever prototype its finder knows.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    target_compile_options(tw_flags INTERFACE -fno-sanitize=enum,function)
  endif()
  # For the few tests that a sanitizer answers differently; the compilers' own macros for it differ.
  if(TENSORWIRE_SANITIZE MATCHES "address")
    target_compile_definitions(tw_flags INTERFACE TENSORWIRE_ASAN)
  elseif(TENSORWIRE_SANITIZE MATCHES "thread")
    target_compile_definitions(tw_flags INTERFACE TENSORWIRE_TSAN)
  endif()

  # The sanitizers of GCC 12 and clang 16 cannot place their shadow memory when the kernel randomises addresses with
  # more than 28 bits, so their programs run without randomisation where the machine allows that.
  execute_process(COMMAND setarch ${CMAKE_SYSTEM_PROCESSOR} -R true RESULT_VARIABLE setarch_result OUTPUT_QUIET ERROR_QUIET)
  if(setarch_result EQUAL 0)
    set(CMAKE_CROSSCOMPILING_EMULATOR setarch ${CMAKE_SYSTEM_PROCESSOR} -R)
  elseif(EXISTS /proc/sys/vm/mmap_rnd_bits)
    file(STRINGS /proc/sys/vm/mmap_rnd_bits random_bits LIMIT_COUNT 1)
    if(random_bits GREATER 28)
      message(WARNING "vm.mmap_rnd_bits is ${random_bits} and `setarch -R` is forbidden here: sanitized programs may "
        "die at start. As root on the host: sysctl vm.mmap_rnd_bits=28")
    endif()
  endif()
endif()
