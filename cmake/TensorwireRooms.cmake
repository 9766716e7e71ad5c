# A room is a folder of src/ and a static library tw_<room>. Its sources are its *.cpp (and *.cu) files, those of its
# sub-folders included; what it may use is what its CMakeLists.txt names (scripts/lint/rooms.py checks both against the architecture).

# All rooms, without the tests: what clang-tidy looks at.
add_custom_target(rooms)

# tw_room(wire USES base LIBRARIES isal)
function(tw_room name)
  cmake_parse_arguments(ARG "" "" "USES;LIBRARIES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp
    ${CMAKE_CURRENT_SOURCE_DIR}/*.cu)
  if(NOT sources)  # nothing but headers yet
    message(STATUS "room ${name}: no sources")
    add_library(tw_${name} INTERFACE)
    return()
  endif()
  add_library(tw_${name} STATIC ${sources})
  add_dependencies(rooms tw_${name})
  list(TRANSFORM ARG_USES PREPEND tw_)
  target_link_libraries(tw_${name} PUBLIC tw_flags ${ARG_USES} ${ARG_LIBRARIES})
endfunction()

# Sanitized programs run several times slower.
set(TENSORWIRE_TIMEOUT_FACTOR 1)
if(TENSORWIRE_SANITIZE)
  set(TENSORWIRE_TIMEOUT_FACTOR 4)
endif()

# GoogleTest programs take longer to compile than to run, so they are optimised less than the rooms they test (sanitized
# that halves their compile time), but for those that compute much themselves: COMPUTES.
set(TENSORWIRE_TEST_OPTIMIZATION -O1)
if(TENSORWIRE_SANITIZE)
  set(TENSORWIRE_TEST_OPTIMIZATION -O0)
endif()

# Everything that `ctest -L unit` runs: what a sanitizer build needs to compile.
add_custom_target(unit_tests)

# tw_test(wire [USES extra rooms] [LIBRARIES ...] [LABELS unit] [TIMEOUT 60] [SERIAL] [COMPUTES]): all of
# tests/<room>/*.cpp as one GoogleTest program test_<room>. TIMEOUT is in seconds for each test; SERIAL keeps every other
# test from running beside.
function(tw_test name)
  cmake_parse_arguments(ARG "SERIAL;COMPUTES" "TIMEOUT" "USES;LIBRARIES;LABELS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  if(NOT sources OR NOT TARGET tw_${name})
    message(STATUS "room ${name}: no tests")
    return()
  endif()
  add_executable(test_${name} ${sources})
  list(TRANSFORM ARG_USES PREPEND tw_)
  target_link_libraries(test_${name} PRIVATE tw_${name} ${ARG_USES} ${ARG_LIBRARIES} GTest::gtest_main)
  target_include_directories(test_${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  if(NOT ARG_COMPUTES)
    target_compile_options(test_${name} PRIVATE ${TENSORWIRE_TEST_OPTIMIZATION})
  endif()
  # GoogleTest's macros are slow to analyse and full of findings that are not ours.
  set_target_properties(test_${name} PROPERTIES CXX_CLANG_TIDY "")
  tw_test_defaults()
  if("unit" IN_LIST ARG_LABELS)
    add_dependencies(unit_tests test_${name})
  endif()
  # gtest_discover_tests cannot pass on a list, so of the environment only what this build's sanitizer reads is set.
  set(environment UBSAN_OPTIONS=print_stacktrace=1)
  if(TENSORWIRE_SANITIZE STREQUAL "thread")
    set(environment TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1)
  endif()
  gtest_discover_tests(test_${name} TEST_PREFIX ${name}. DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} RUN_SERIAL ${ARG_SERIAL} ENVIRONMENT ${environment})
endfunction()

# tw_script_test(name COMMAND program args... [LABELS e2e] [TIMEOUT 60] [SERIAL]): a test that is a program; it passes
# when it exits 0 and counts as skipped when it exits 77. It finds the built program in TENSORWIRE_BIN and the build folder
# in TW_BUILD_DIR.
function(tw_script_test name)
  cmake_parse_arguments(ARG "SERIAL" "TIMEOUT" "COMMAND;LABELS" ${ARGN})
  tw_test_defaults()
  add_test(NAME ${name} COMMAND ${ARG_COMMAND} WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} RUN_SERIAL ${ARG_SERIAL}
    SKIP_RETURN_CODE 77 ENVIRONMENT
    "TENSORWIRE_BIN=${PROJECT_BINARY_DIR}/bin/tensorwire;TW_BUILD_DIR=${PROJECT_BINARY_DIR};PYTHONDONTWRITEBYTECODE=1")
endfunction()

macro(tw_test_defaults)
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * ${TENSORWIRE_TIMEOUT_FACTOR}")
endmacro()
