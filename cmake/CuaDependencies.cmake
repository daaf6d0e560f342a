# SPDX-License-Identifier: Apache-2.0
# Third-party packages, all from the distribution. What goes inside the libraries is linked statically.
find_package(Threads REQUIRED)
set(Boost_USE_STATIC_LIBS ON)  # programs run where no Boost is installed
find_package(Boost 1.81 REQUIRED COMPONENTS program_options)

# Static archives, hidden inside the library that links them.
foreach(dependency IN ITEMS "pcre2-8;pcre2.h;libpcre2-dev" "utf8proc;utf8proc.h;libutf8proc-dev"
                           "crypto;openssl/evp.h;libssl-dev")  # SHA-256, for cua-export alone
  list(GET dependency 0 library)
  list(GET dependency 1 header)
  list(GET dependency 2 package)
  find_library(CUA_${library}_ARCHIVE lib${library}.a)
  find_path(CUA_${library}_INCLUDE ${header})
  if(NOT CUA_${library}_ARCHIVE OR NOT CUA_${library}_INCLUDE)
    message(FATAL_ERROR "lib${library}.a or ${header} not found: install the package ${package}")
  endif()
  add_library(cua::${library} STATIC IMPORTED)
  set_target_properties(cua::${library} PROPERTIES
    IMPORTED_LOCATION ${CUA_${library}_ARCHIVE}
    INTERFACE_INCLUDE_DIRECTORIES ${CUA_${library}_INCLUDE})
endforeach()
set_property(TARGET cua::pcre2-8 PROPERTY INTERFACE_COMPILE_DEFINITIONS PCRE2_CODE_UNIT_WIDTH=8 PCRE2_STATIC)
set_property(TARGET cua::utf8proc PROPERTY INTERFACE_COMPILE_DEFINITIONS UTF8PROC_STATIC)

# Boost.JSON is compiled here because Debian's archive is not position-independent.
add_library(cua_json STATIC ${CMAKE_SOURCE_DIR}/cmake/boost_json.cpp)
target_link_libraries(cua_json PUBLIC Boost::headers)
