# SPDX-License-Identifier: Apache-2.0
# The source expression of a Content-Security-Policy that allows exactly this text of a <script> or
# <style>: 'sha256-' and the hash in base64, which CMake cannot write by itself.
function(cua_content_hash result text)
  set(letters ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/)
  string(SHA256 digits "${text}")
  set(base64)
  foreach(at RANGE 0 60 3)  # 3 hexadecimal digits are 2 letters
    string(SUBSTRING ${digits} ${at} 3 three)
    math(EXPR first "0x${three} >> 6")
    math(EXPR second "0x${three} & 63")
    string(SUBSTRING ${letters} ${first} 1 first)
    string(SUBSTRING ${letters} ${second} 1 second)
    string(APPEND base64 ${first}${second})
  endforeach()
  string(SUBSTRING ${digits} 63 1 last)  # of 64
  math(EXPR last "0x${last} << 2")
  string(SUBSTRING ${letters} ${last} 1 last)
  set(${result} "'sha256-${base64}${last}='" PARENT_SCOPE)
endfunction()

# The text between the one <tag> of a page and its end.
function(cua_element_text result page tag)
  string(FIND "${page}" "<${tag}>" begin)
  string(FIND "${page}" "</${tag}>" end)
  string(LENGTH "<${tag}>" length)
  math(EXPR begin "${begin} + ${length}")
  math(EXPR length "${end} - ${begin}")
  string(SUBSTRING "${page}" ${begin} ${length} text)
  set(${result} "${text}" PARENT_SCOPE)
endfunction()
