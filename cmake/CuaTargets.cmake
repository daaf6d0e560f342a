# SPDX-License-Identifier: Apache-2.0
# What every target of the project shares: language level, warnings, visibility, sanitizers.
add_library(cua_options INTERFACE)
target_compile_features(cua_options INTERFACE cxx_std_20 c_std_99)
target_compile_options(cua_options INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wpedantic>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>)
# GCC 12 takes "text" + std::string for an overlapping copy (its bug 105651), and, once it has inlined
# half of the pair, the operators new and delete of a coroutine's frame for strangers.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(cua_options INTERFACE 
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict -Wno-mismatched-new-delete>)
endif()
if(CUA_WERROR)
  target_compile_options(cua_options INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:-Werror>
    $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings -Xcompiler=-Werror>)
endif()
if(CUA_SANITIZE)
  add_compile_options(-fsanitize=${CUA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${CUA_SANITIZE})
  if(CUA_SANITIZE MATCHES "thread")
    # ThreadSanitizer does not know fences; Asio can do without.
    add_compile_definitions(BOOST_ASIO_DISABLE_FENCED_BLOCK)
  endif()
endif()
if(CUA_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "CUA_FUZZ needs clang: configure with the preset fuzz, or CXX=clang++")
  endif()
  # clang 14 cannot compile coroutines with the check of function types.
  add_compile_options(-fsanitize=fuzzer-no-link -fno-sanitize=function)
endif()
# What libcua's libdir is from the folder of the programs, once both are installed.
include(GNUInstallDirs)
file(RELATIVE_PATH CUA_RELATIVE_LIBDIR ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

# A static library of one room. Includes are written from the root of its half of the house
# (libcua/ or server/), as in #include "tokenizer/tokenizer.h".
#   cua_room(NAME SOURCES ... [LINK ...])
function(cua_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC ${ARG_LINK} PRIVATE cua_options)
  if(CMAKE_CURRENT_SOURCE_DIR MATCHES "^${CMAKE_SOURCE_DIR}/libcua")
    target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR}/libcua)
  else()
    target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR}/server)
  endif()
endfunction()
