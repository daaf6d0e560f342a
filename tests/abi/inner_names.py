# SPDX-License-Identifier: Apache-2.0
"""A C source that defines, as functions that trap, every name which the library keeps to itself: of Boost, PCRE2,
utf8proc and its own.

    inner_names.py NM LIBRARY OUT
"""
import re
import subprocess
import sys

nm, library, out = sys.argv[1:]
listed = subprocess.run([nm, "--defined-only", library], check=True, capture_output=True, text=True).stdout
names = sorted({name for line in listed.splitlines() for name in [line.split()[-1]]
                if re.fullmatch(r"_?\w*(pcre2|utf8proc)\w*|_Z\w*(5boost|3cua)\w*", name)})
for each in ("pcre2_compile_8", "utf8proc_map_custom", "_ZN5boost4json", "_ZN3cua6engine"):
    if not any(name.startswith(each) for name in names):
        sys.exit(f"{library} has no symbol that begins with {each}: was it stripped?")
with open(out, "w", encoding="utf-8") as file:
    file.write("/* Made by inner_names.py. */\n")
    for i, name in enumerate(names):
        file.write(f'void inner_{i}(void) __asm__("{name}");\n'
                   f"void inner_{i}(void) {{ __builtin_trap(); }}\n")
print(f"{len(names)} names")
