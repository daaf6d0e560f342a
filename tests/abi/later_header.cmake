# SPDX-License-Identifier: Apache-2.0
# A coming version 4.1 of cua.h: a field more at the end of every struct but cua_error, and a
# function more.
file(READ ${CMAKE_SOURCE_DIR}/abi/cua.h header)
function(cua_later from to)
  string(FIND "${header}" "${from}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "abi/cua.h has no \"${from}\": later_header.cmake is out of date")
  endif()
  string(REPLACE "${from}" "${to}" header "${header}")
  set(header "${header}" PARENT_SCOPE)
endfunction()
cua_later("CUA_ABI_MINOR 0u" "CUA_ABI_MINOR 1u")
foreach(struct cua_engine_options cua_prompt cua_score cua_stats)
  cua_later("} ${struct};" "  uint64_t later;\n} ${struct};")
endforeach()
cua_later("CUA_API int32_t cua_engine_stats("
          "CUA_API int32_t cua_later_function(cua_engine *engine, cua_error *error);\nCUA_API int32_t cua_engine_stats(")
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/later/cua.h CONTENT "${header}" @ONLY)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/abi/cua.h)
