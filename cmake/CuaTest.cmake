# SPDX-License-Identifier: Apache-2.0
# Catch2 is version 2 in Debian 12; version 3 works as well (tests include "catch.h").
add_library(cua_test_main STATIC ${CMAKE_SOURCE_DIR}/tests/catch_main.cpp)
# Catch2 itself is not under test, and takes 95 s to compile with the sanitizers.
target_compile_options(cua_test_main PRIVATE -O1 -fno-sanitize=all)
target_include_directories(cua_test_main PUBLIC ${CMAKE_SOURCE_DIR}/tests)
if(Catch2_VERSION VERSION_GREATER_EQUAL 3)
  target_link_libraries(cua_test_main PUBLIC Catch2::Catch2WithMain)
  target_compile_definitions(cua_test_main PUBLIC CUA_CATCH2_V3)
else()
  target_link_libraries(cua_test_main PUBLIC Catch2::Catch2)
endif()

# A Catch2 executable that is one ctest test.
#   cua_add_test(NAME SOURCES ... [LINK ...] [LABELS ...] [TIMEOUT seconds])
# CUA_TEST_DATA is the folder with the unpacked tests/data. Tests labelled `threads` run under
# ThreadSanitizer in CI; the target threaded_tests builds them (add_dependencies for those that are
# not made here).
add_custom_target(threaded_tests)
function(cua_add_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LINK;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE cua_options cua_test_main ${ARG_LINK})
  target_compile_definitions(${name} PRIVATE CUA_TEST_DATA="${CUA_TEST_DATA}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_dependencies(${name} test_data)
  if("threads" IN_LIST ARG_LABELS)
    add_dependencies(threaded_tests ${name})
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
endfunction()

# For a test in Python that loads the library into itself: Python is not built with the sanitizers. Its
# own leaks are not ours; the C programs look for those.
function(cua_test_loads_library name)
  if(NOT CUA_SANITIZE MATCHES address)
    return()
  endif()
  set(runtimes)
  foreach(runtime asan stdc++)
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=lib${runtime}.so
      OUTPUT_VARIABLE path OUTPUT_STRIP_TRAILING_WHITESPACE)
    list(APPEND runtimes ${path})
  endforeach()
  list(JOIN runtimes ":" runtimes)
  set_tests_properties(${name} PROPERTIES
    ENVIRONMENT "LD_PRELOAD=${runtimes};ASAN_OPTIONS=detect_leaks=0")
endfunction()
