# SPDX-License-Identifier: Apache-2.0
# A copy of a model folder that has no marker, with one: cmake -DFROM=dir -DOUT=dir -P this
file(REMOVE_RECURSE ${OUT})
file(COPY ${FROM}/ DESTINATION ${OUT})
file(WRITE ${OUT}/cua_s1_export.json "{\"format\": \"cua-s1-text-merged/1\"}\n")
