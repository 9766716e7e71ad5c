# A room is a folder of src/ and a static library tw_<room>. Its sources are its *.cpp files; what it may use is what its
# CMakeLists.txt names (scripts/lint/rooms.py checks the includes against the architecture).
set(TENSORWIRE_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize takes them: address,undefined or thread")

add_library(tw_flags INTERFACE)
target_compile_options(tw_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Werror)
target_include_directories(tw_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_compile_definitions(tw_flags INTERFACE FMT_HEADER_ONLY=1 _GNU_SOURCE)
if(TENSORWIRE_SANITIZE)
  target_compile_options(tw_flags INTERFACE -fsanitize=${TENSORWIRE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(tw_flags INTERFACE -fsanitize=${TENSORWIRE_SANITIZE})
endif()

# tw_room(wire USES base LIBRARIES isal)
function(tw_room name)
  cmake_parse_arguments(ARG "" "" "USES;LIBRARIES" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  if(NOT sources)  # nothing but headers yet
    message(STATUS "room ${name}: no sources")
    add_library(tw_${name} INTERFACE)
    return()
  endif()
  add_library(tw_${name} STATIC ${sources})
  list(TRANSFORM ARG_USES PREPEND tw_)
  target_link_libraries(tw_${name} PUBLIC tw_flags ${ARG_USES} ${ARG_LIBRARIES})
endfunction()

# tw_test(wire [USES extra rooms] [LABELS unit]): all of tests/<room>/*.cpp as one GoogleTest program test_<room>.
function(tw_test name)
  cmake_parse_arguments(ARG "" "" "USES;LABELS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  add_executable(test_${name} ${sources})
  list(TRANSFORM ARG_USES PREPEND tw_)
  target_link_libraries(test_${name} PRIVATE tw_${name} ${ARG_USES} GTest::gtest_main)
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  gtest_discover_tests(test_${name} TEST_PREFIX ${name}. DISCOVERY_TIMEOUT 60 PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 120)
endfunction()
