# SPDX-License-Identifier: Apache-2.0
"""A page of docs/benchmarks: what was measured, where, with what. Never written by hand."""
import datetime
import os
import platform
import re
import subprocess


def processor():
    with open("/proc/cpuinfo", encoding="ascii") as info:
        return next(line.split(":")[1].strip() for line in info if line.startswith("model name"))


def memory_gib():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def compiler(program):
    """Of the build folder that `program` lies in, else of the path."""
    command = "c++"
    cache = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(program))), "CMakeCache.txt")
    if os.path.exists(cache):
        with open(cache, encoding="utf-8") as file:
            found = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.+)$", file.read(), re.MULTILINE)
        command = found.group(1) if found else command
    return subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]


def where(program, **versions):
    """The lines that every page has: date, machine, versions."""
    facts = {"date": datetime.date.today().isoformat(),
             "processor": f"{processor()}, {os.cpu_count()} cores, {memory_gib():.0f} GiB",
             "system": f"{platform.freedesktop_os_release()['PRETTY_NAME']}, Linux {platform.release()}",
             "compiler": compiler(program), **versions}
    return ["| | |", "|---|---|", *[f"| {name} | {value} |" for name, value in facts.items()], ""]


def table(heads, rows):
    return ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads),
            *["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows], ""]


def write(path, title, script, lines):
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w", encoding="utf-8") as page:
        page.write("\n".join([f"# {title}", "", f"Written by `tests/benchmark/{script}`; do not edit.", "", *lines]))
