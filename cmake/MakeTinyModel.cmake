# SPDX-License-Identifier: Apache-2.0
# Makes the tests' small model anew: cmake -DEXPORT=cua-export -DTOKENIZER=dir -DOUT=dir -P this
file(REMOVE_RECURSE ${OUT})
execute_process(COMMAND ${EXPORT} synthetic --shape tiny --seed 1 --tokenizer ${TOKENIZER} --out ${OUT}
                COMMAND_ERROR_IS_FATAL ANY)
