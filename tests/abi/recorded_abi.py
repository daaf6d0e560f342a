# SPDX-License-Identifier: Apache-2.0
"""The library's binary interface against the recorded ones, with libabigail.

    recorded_abi.py check LIBRARY ABI    ABI/<version>/libcua.abi.xml must be what LIBRARY has, with no
                                         difference at all; older records may lack fields at the end
                                         of a struct and whole functions, nothing else
    recorded_abi.py record CXX ABI       writes the record of a new version; refuses to change one. From a
                                         library that has nothing but the header's functions, so that
                                         the record holds no more than the header
    recorded_abi.py faults CXX ABI       breaks the interface in every way that check must see

LIBRARY is built with -g; ABI is the folder abi/. A version is the header's major and minor.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def version(header):
    return ".".join(re.search(rf"^#define CUA_ABI_{part} (\d+)u$", header, re.MULTILINE).group(1)
                    for part in ("MAJOR", "MINOR"))


def write(library, headers, path):
    """The interface as XML, without the types that the headers do not show."""
    subprocess.run(["abidw", "--drop-private-types", "--headers-dir", headers, "--drop-undefined-syms", "--no-corpus-path",
                    "--no-comp-dir-path", "--no-show-locs", "--no-elf-needed", "--out-file", path, library], check=True)


def abidiff(record, now, *flags):
    """What differs, or nothing."""
    done = subprocess.run(["abidiff", *flags, record, now], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.stdout.strip() or f"abidiff: status {done.returncode}" if done.returncode else ""


def without_tails(record, now):
    """`now` without the fields that its structs have behind those of the record. (A suppression of
    libabigail that lets such fields through lets a field of another type through as well.)"""
    structs = {struct.get("name"): struct for struct in ElementTree.parse(record).iter("class-decl")}
    tree = ElementTree.parse(now)
    for struct in tree.iter("class-decl"):
        old = structs.get(struct.get("name"))
        if old is not None and old.get("size-in-bits") is not None:
            for field in struct.findall("data-member")[len(old.findall("data-member")):]:
                struct.remove(field)
            if int(struct.get("size-in-bits")) > int(old.get("size-in-bits")):
                struct.set("size-in-bits", old.get("size-in-bits"))
    return tree


def differences(library, headers, abi):
    now = version(read(os.path.join(headers, "cua.h")))
    found = [] if os.path.exists(os.path.join(abi, now)) else [f"no record of {now}: recorded_abi.py record"]
    with tempfile.NamedTemporaryFile(suffix=".abi.xml") as file:
        write(library, headers, file.name)
        for recorded in os.listdir(abi):
            record = os.path.join(abi, recorded, "libcua.abi.xml")
            if recorded == now:
                found.append(abidiff(record, file.name))
            elif re.fullmatch(rf"{now.split('.')[0]}\.\d+", recorded):
                with tempfile.NamedTemporaryFile(suffix=".abi.xml") as cut:
                    without_tails(record, file.name).write(cut.name)
                    found.append(abidiff(record, cut.name, "--no-added-syms"))
    return "\n".join(filter(None, found))


def record(cxx, abi):
    header = read(os.path.join(abi, "cua.h"))
    kept = os.path.join(abi, version(header))
    path = os.path.join(kept, "libcua.abi.xml")
    if os.path.exists(path):
        sys.exit(f"{path} exists: a released version does not change; raise CUA_ABI_MINOR")
    os.makedirs(kept, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        write(library_of(cxx, header, os.path.join(folder, "library"), read(os.path.join(abi, "cua.map"))), abi, path)
    shutil.copy(os.path.join(abi, "cua.h"), kept)


def library_of(cxx, header, folder, script, soname="libcua_cpu.so.4"):
    """A library that has the header's functions, and nothing in them."""
    os.makedirs(folder)
    for name, text in (("cua.h", header), ("cua.map", script or "")):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    bodies = [declaration + (" {}" if declaration.startswith("CUA_API void cua") else " { return 0; }")
              for declaration in re.findall(r"^CUA_API [^;]*", header, re.MULTILINE)]
    with open(os.path.join(folder, "functions.cpp"), "w", encoding="utf-8") as file:
        file.write('#include "cua.h"\nextern "C" {\n' + "\n".join(bodies) + "\n}\n")
    library = os.path.join(folder, "libcua_cpu.so")
    subprocess.run([cxx, "-g", "-w", "-shared", "-fPIC", "functions.cpp", "-o", library, f"-Wl,-soname,{soname}",
                    *(["-Wl,--version-script=cua.map"] if script else [])], check=True, cwd=folder)
    return library


def replaced(text, *pairs):
    for old, new in pairs:
        if old not in text:
            sys.exit(f"cua.h has no {old!r}: recorded_abi.py is out of date")
        text = text.replace(old, new, 1)
    return text


def faults(cxx, abi):
    header, script = read(os.path.join(abi, "cua.h")), read(os.path.join(abi, "cua.map"))
    minor = ("CUA_ABI_MINOR 0u", "CUA_ABI_MINOR 1u")
    tail = ("} cua_stats;", "  uint64_t later;\n} cua_stats;")
    score_tail = ("} cua_score;", "  uint64_t later;\n} cua_score;")
    middle = ("  uint32_t n_options;", "  uint32_t earlier, beside;\n  uint32_t n_options;")
    removed = ("CUA_API uint32_t cua_abi_version(void);", "")
    added = ("CUA_API uint32_t cua_abi_version(void);", "CUA_API uint32_t cua_later(void);\nCUA_API uint32_t cua_abi_version(void);")
    parameter = ("cua_prompt *prompts, uint32_t n,", "cua_prompt *prompts, uint64_t n,")
    result = ("CUA_API int32_t cua_set_graph_mode", "CUA_API int64_t cua_set_graph_mode")
    kind = ("float logits[26];", "uint32_t logits[26];")
    shorter = ("  float probabilities[26]; /* softmax over the first n_options; 0 from there on */\n", "")
    map_4_1 = script + "CUA_4.1 {\n  global: cua_later;\n} CUA_4.0;\n"
    same = (  # what, whether check is content, changes of the header, version script
        ("the header as it is", True, [], script),
        ("a field at the end, in the same minor", False, [tail], script),
        ("a new function, in the same minor", False, [added], script),
        ("a function gone", False, [removed], script),
        ("a field in the middle", False, [middle], script),
        ("a parameter of another type", False, [parameter], script),
        ("a result of another type", False, [result], script),
        ("a field of another type", False, [kind], script),
        ("a field gone", False, [shorter], script),
        ("no version script", False, [], None),
        ("another version", False, [], script.replace("4.0", "4.1")))
    # The same to a 4.1 with its own record: against 4.0 only what is new may differ.
    later = (("a field at the end", True, [tail], script),
             ("a new function", True, [added], map_4_1),
             ("a function gone", False, [removed], script),
             ("a field in the middle", False, [middle], script),
             ("a field of another type", False, [kind], script),
             ("a field of another type, and one at the end", False, [kind, score_tail], script),
             ("a field gone", False, [shorter], script),
             ("a parameter of another type", False, [parameter, tail], script),
             ("another version", False, [], script.replace("4.0", "4.1")))
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, (what, wanted, changes, script) in enumerate([*same, *later]):
            is_later = number >= len(same)
            text = replaced(header, *changes, *([minor] if is_later else []))
            at = os.path.join(folder, str(number))
            library = library_of(cxx, text, at, script)
            records = abi
            if is_later:
                records = os.path.join(folder, f"records{number}")
                shutil.copytree(abi, records, ignore=shutil.ignore_patterns("examples"))
                shutil.copy(os.path.join(at, "cua.h"), records)
                shutil.copy(os.path.join(at, "cua.map"), records)
                record(cxx, records)
            found = differences(library, at, records)
            good = (found == "") == wanted
            wrong += not good
            print("ok  " if good else "WRONG", "4.1:" if is_later else "4.0:", what, "" if good else "\n" + found)
    sys.exit(1 if wrong else 0)


if not shutil.which("abidiff") or not shutil.which("abidw"):
    print("SKIP: abidiff and abidw are missing; install abigail-tools")
    sys.exit(77)
if sys.argv[1] == "check":
    headers = sys.argv[3]
    found = differences(sys.argv[2], headers, headers)
    print(found or "as recorded")
    sys.exit(1 if found else 0)
elif sys.argv[1] == "record":
    record(sys.argv[2], sys.argv[3])
elif sys.argv[1] == "faults":
    faults(sys.argv[2], sys.argv[3])
else:
    sys.exit(__doc__)
