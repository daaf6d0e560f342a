# SPDX-License-Identifier: Apache-2.0
"""What a library shows to the loader: the functions of cua.h, all of version CUA_4.0, and nothing
else; its SONAME; that it needs no library beyond those of the system; and that it imports nothing which
prints, ends the process, or reads or changes what belongs to the host.

    exported_symbols.py READELF LIBRARY SONAME HEADER [ALLOWED_NEEDED...]
"""
import re
import subprocess
import sys

readelf, library, soname, header, *allowed = sys.argv[1:]


def lines(*flags):
    return subprocess.run([readelf, "-W", *flags, library], check=True, capture_output=True,
                          text=True).stdout.splitlines()


with open(header, encoding="utf-8") as file:
    declared = set(re.findall(r"^CUA_API [^;]*?(\w+)\(", file.read(), re.MULTILINE | re.DOTALL))
faults = [] if len(declared) >= 9 else [f"only {declared} found in {header}"]

HOSTS = re.compile(r"(secure_)?getenv|(un|clear)?setenv|putenv|environ|_?exit|_Exit|quick_exit|abort|f?chdir|setlocale"
                   r"|uselocale|signal|sigaction|raise|kill|sigprocmask|umask|fork|vfork|system|[vfd]*printf(_chk)?"
                   r"|f?puts|f?putc|putchar|fwrite|perror|stdout|stderr|_ZSt4c(out|err|log)")
exported = {}
for line in lines("--dyn-syms"):
    fields = line.split()
    # Num: Value Size Type Bind Vis Ndx Name
    if len(fields) < 8 or not fields[0].rstrip(":").isdigit():
        continue
    name, _, version = fields[7].partition("@")
    if fields[6] == "UND":
        of_nvcc = name == "exit" and allowed  # never called: in what it leaves of device functions for the host
        if HOSTS.fullmatch(name.removeprefix("__")) and not of_nvcc:
            faults.append(f"imports {name}, which is the host's business")
        continue
    if fields[6] == "ABS" and name == "CUA_4.0":
        continue  # the version itself
    if name in exported:
        faults.append(f"{name} is exported twice")
    exported[name] = (fields[3], fields[4], version)
for name in sorted(declared - set(exported)):
    faults.append(f"{name} is declared but not exported")
for name in sorted(set(exported) - declared):
    faults.append(f"{name} is exported but not declared")
for name, (kind, binding, version) in sorted(exported.items()):
    if (kind, binding, version) != ("FUNC", "GLOBAL", "@CUA_4.0"):
        faults.append(f"{name} is {kind} {binding} {version}")

dynamic = "\n".join(lines("-d"))
names = re.findall(r"\(SONAME\).*\[(.*)\]", dynamic)
if names != [soname]:
    faults.append(f"SONAME is {names}, not {soname}")
for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
    if not re.fullmatch(r"(libc|libm|libdl|libpthread|librt|libgcc_s|libstdc\+\+|ld-linux-x86-64)\.so\.\d+", needed) \
            and needed not in allowed:
        faults.append(f"needs {needed}: third-party code is linked statically")
if "TEXTREL" in dynamic:
    faults.append("has text relocations")
if not any("GNU_STACK" in line and "RWE" not in line for line in lines("-l")):
    faults.append("has an executable stack")

print("\n".join(faults) if faults else f"{library}: {len(exported)} functions")
sys.exit(1 if faults else 0)
