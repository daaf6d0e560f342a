# SPDX-License-Identifier: Apache-2.0
"""libcua in Python, through the standard library's ctypes.

    library = cua.Library("libcua_cpu.so")
    with library.open("model") as engine:
        score = engine.score(cua.Prompt("A or B?", options=2))
        print(score.letter, score.probabilities)

Any thread may use an engine: ctypes lets other threads run during a call, and `close` waits for the
calls that are under way.
"""
from __future__ import annotations

import ctypes as c
import os
import threading
from array import array
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from types import TracebackType
from typing import Any, Callable, Iterable, Iterator, Sequence

ABI_MAJOR, ABI_MINOR = 4, 0
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Code(IntEnum):
    """Result codes. A later library may have more: they stay plain numbers."""

    INVALID_ARGUMENT = 1
    ABI_MISMATCH = 2
    BAD_MODEL = 3
    NO_DEVICE = 4
    OUT_OF_MEMORY = 5
    PROMPT_TOO_LONG = 6
    DEVICE_FAILED = 7
    UNSUPPORTED = 8
    BUFFER_TOO_SMALL = 9
    NOT_FINITE = 10
    INTERNAL = 99


class GraphMode(IntEnum):
    OFF = 0
    EXACT = 1
    BUCKET = 2


class CuaError(Exception):
    """`code` is what a program decides by; the text says what is wrong and what to do. With
    BUFFER_TOO_SMALL, `needed` is the size that is enough."""

    def __init__(self, code: int, message: str, needed: int = 0) -> None:
        super().__init__(message)
        self.code, self.needed = code, needed


@dataclass(frozen=True)
class Prompt:
    """A text (bytes are UTF-8), or token ids: any sequence of integers, and without a loop what has a
    buffer of 32-bit unsigned ones (array("I"), a NumPy array of uint32). `options` letters are in use."""

    content: str | bytes | Sequence[int] | Any
    options: int


@dataclass(frozen=True)
class Score:
    best: int
    tokens: int
    flags: int
    logits: tuple[float, ...]  # of A to Z
    probabilities: tuple[float, ...]  # of the options in use

    @property
    def letter(self) -> str:
        return LETTERS[self.best]


@dataclass(frozen=True)
class Stats:
    forwards: int
    prompts: int
    tokens: int
    captures: int
    replays: int
    evictions: int
    fallbacks: int
    scratch_bytes: int
    device_bytes: int


# The structs of cua.h. Each begins with its size, and what is not set is zero: the default.
class _Sized(c.Structure):
    def __init__(self, **fields: Any) -> None:
        super().__init__(struct_size=c.sizeof(self), **fields)


class _Error(_Sized):
    _fields_ = [("struct_size", c.c_uint32), ("code", c.c_int32), ("message", c.c_char * 1024)]


class _Options(_Sized):
    _fields_ = [("struct_size", c.c_uint32), ("device", c.c_int32),
                ("model_dir", c.c_char_p), ("model_dir_length", c.c_uint64),
                ("max_prompt_tokens", c.c_uint32), ("max_batch_tokens", c.c_uint32),
                ("graph_mode", c.c_uint32), ("graph_capacity", c.c_uint32),
                ("log", c.c_void_p), ("log_user", c.c_void_p),
                ("threads", c.c_uint32), ("precision", c.c_uint32),
                ("prefix", c.c_char_p), ("prefix_length", c.c_uint64),
                ("plans", c.c_char_p), ("plans_length", c.c_uint64)]


class _Prompt(_Sized):
    _fields_ = [("struct_size", c.c_uint32), ("n_options", c.c_uint32),
                ("ids", c.POINTER(c.c_uint32)), ("n_ids", c.c_uint64),
                ("text", c.c_char_p), ("text_length", c.c_uint64)]


class _Score(_Sized):
    _fields_ = [("struct_size", c.c_uint32), ("best", c.c_uint32), ("n_ids", c.c_uint64),
                ("flags", c.c_uint32), ("reserved", c.c_uint32),
                ("logits", c.c_float * 26), ("probabilities", c.c_float * 26)]


class _Stats(_Sized):
    _fields_ = [("struct_size", c.c_uint32), ("reserved", c.c_uint32)] + [
        (name, c.c_uint64) for name in Stats.__dataclass_fields__]


assert [c.sizeof(struct) for struct in (_Error, _Options, _Prompt, _Score, _Stats)] == [1032, 96, 40, 232, 80]

_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "cua_build_info": (c.c_char_p, []),
    "cua_engine_create": (c.c_int32, [c.POINTER(_Options), c.POINTER(c.c_void_p), c.POINTER(_Error)]),
    "cua_engine_destroy": (None, [c.c_void_p]),
    "cua_engine_describe": (c.c_int32, [c.c_void_p, c.c_void_p, c.c_uint64, c.POINTER(c.c_uint64),
                                        c.POINTER(_Error)]),
    "cua_tokenize": (c.c_int32, [c.c_void_p, c.c_char_p, c.c_uint64, c.c_void_p, c.c_uint64,
                                 c.POINTER(c.c_uint64), c.POINTER(_Error)]),
    "cua_score_prompts": (c.c_int32, [c.c_void_p, c.POINTER(_Prompt), c.c_uint32, c.POINTER(_Score),
                                      c.POINTER(_Error)]),
    "cua_set_graph_mode": (c.c_int32, [c.c_void_p, c.c_uint32, c.POINTER(_Error)]),
    "cua_engine_stats": (c.c_int32, [c.c_void_p, c.POINTER(_Stats), c.POINTER(_Error)]),
}


def _call(function: Callable[..., int], *arguments: Any, needed: c.c_uint64 | None = None) -> None:
    error = _Error()
    code = function(*arguments, c.byref(error))
    if code != 0:
        known = Code(code) if code in Code.__members__.values() else code
        raise CuaError(known, error.message.decode(), needed.value if needed is not None else 0)


def _ids(content: Any) -> c.Array[c.c_uint32]:
    try:
        view = memoryview(content)
    except TypeError:
        view = memoryview(array("I", content))  # refuses what is no 32-bit unsigned integer
    if view.format != "I" or view.ndim != 1 or not view.c_contiguous:
        view = memoryview(array("I", content))
    return (c.c_uint32 * len(view)).from_buffer_copy(view)


class Library:
    """An opened libcua. It stays open until the process ends: the CUDA runtime cannot be unloaded."""

    def __init__(self, path: str) -> None:
        """OSError if it cannot be loaded; CuaError with ABI_MISMATCH if its version is another."""
        self._functions: Any = c.CDLL(path)
        try:
            self._functions.cua_abi_version.restype = c.c_uint32
            version = self._functions.cua_abi_version()
            self.version = version >> 16, version & 0xffff
            major, minor = self.version
            if major != ABI_MAJOR:
                raise CuaError(Code.ABI_MISMATCH,
                               f"refusing {path}: its ABI is {major}.{minor}, this program needs {ABI_MAJOR}.{ABI_MINOR}; "
                               "use a library and a program of the same major version")
            if minor < ABI_MINOR:
                raise CuaError(Code.ABI_MISMATCH,
                               f"refusing {path}: its ABI {major}.{minor} is older than the {ABI_MAJOR}.{ABI_MINOR} that "
                               "this program needs; update the library")
            for name, (result, arguments) in _FUNCTIONS.items():
                function = getattr(self._functions, name)
                function.restype, function.argtypes = result, arguments
        except AttributeError as absent:
            raise OSError(f"refusing {path}: {absent}; is it libcua?") from None
        self.build_info: str = self._functions.cua_build_info().decode()

    def open(self, model_dir: str, *, device: int = 0, max_prompt_tokens: int = 0, max_batch_tokens: int = 0,
             graph_mode: GraphMode = GraphMode.OFF, graph_capacity: int = 0, threads: int = 0, precision: int = 0,
             prefix: str = "", plans: str = "") -> Engine:
        """Loads a model. 0 and "" are the library's defaults; cua.h says what each is."""
        folder, start, plan = model_dir.encode(), prefix.encode(), plans.encode()
        options = _Options(device=device, model_dir=folder, model_dir_length=len(folder),
                           max_prompt_tokens=max_prompt_tokens, max_batch_tokens=max_batch_tokens, graph_mode=graph_mode,
                           graph_capacity=graph_capacity, threads=threads, precision=precision,
                           prefix=start, prefix_length=len(start), plans=plan, plans_length=len(plan))
        handle = c.c_void_p()
        _call(self._functions.cua_engine_create, c.byref(options), c.byref(handle))
        return Engine(self._functions, handle)


class Engine:
    """A loaded model; made by Library.open. Close it, or use it in a `with`."""

    def __init__(self, functions: Any, handle: c.c_void_p) -> None:
        self._functions = functions
        self._handle: c.c_void_p | None = handle
        self._process = os.getpid()
        self._calls = 0  # under way
        self._changed = threading.Condition()

    def score(self, prompt: Prompt) -> Score:
        return self.score_batch([prompt])[0]

    def score_batch(self, prompts: Iterable[Prompt]) -> list[Score]:
        """In as few forward passes as can be. Each prompt gets the answer that it gets alone."""
        prompts = list(prompts)
        inputs, outputs = (_Prompt * len(prompts))(), (_Score * len(prompts))()
        for prompt, given, score in zip(prompts, inputs, outputs):
            given.struct_size, given.n_options = c.sizeof(given), prompt.options
            score.struct_size = c.sizeof(score)
            content = prompt.content.encode() if isinstance(prompt.content, str) else prompt.content
            if isinstance(content, bytes):
                given.text, given.text_length = content, len(content)  # the array keeps what it points at alive
            else:
                given.ids = ids = _ids(content)
                given.n_ids = len(ids)
        with self._handle_in_use() as handle:
            _call(self._functions.cua_score_prompts, handle, inputs, len(prompts), outputs)
        return [Score(score.best, score.n_ids, score.flags, tuple(score.logits),
                      tuple(score.probabilities[:prompt.options])) for prompt, score in zip(prompts, outputs)]

    def tokenize(self, text: str) -> array[int]:
        try:
            self.tokenize_into(text, array("I"))
        except CuaError as error:
            if error.code != Code.BUFFER_TOO_SMALL:
                raise
            ids = array("I", bytes(4 * error.needed))
            self.tokenize_into(text, ids)
            return ids
        return array("I")

    def tokenize_into(self, text: str, ids: array[int]) -> int:
        """Writes the ids into an array("I") and gives their number; BUFFER_TOO_SMALL if it is too
        short."""
        data, count = text.encode(), c.c_uint64()
        address, capacity = ids.buffer_info()
        with self._handle_in_use() as handle:
            _call(self._functions.cua_tokenize, handle, data, len(data), address if capacity else None, capacity,
                  c.byref(count), needed=count)
        return count.value

    def describe(self) -> str:
        """JSON."""
        needed = c.c_uint64()
        with self._handle_in_use() as handle:
            self._functions.cua_engine_describe(handle, None, 0, c.byref(needed), None)
            text = c.create_string_buffer(needed.value)
            _call(self._functions.cua_engine_describe, handle, text, len(text), c.byref(needed))
        return text.raw[:needed.value].decode()

    def set_graph_mode(self, mode: GraphMode) -> None:
        with self._handle_in_use() as handle:
            _call(self._functions.cua_set_graph_mode, handle, mode)

    def stats(self) -> Stats:
        stats = _Stats()
        with self._handle_in_use() as handle:
            _call(self._functions.cua_engine_stats, handle, c.byref(stats))
        return Stats(**{name: getattr(stats, name) for name in Stats.__dataclass_fields__})

    def close(self) -> None:
        """Waits for the calls under way and frees the model. Twice is fine."""
        with self._changed:
            handle, self._handle = self._handle, None
            self._changed.wait_for(lambda: self._calls == 0)
        if handle is not None and os.getpid() == self._process:  # a forked child has no engine
            self._functions.cua_engine_destroy(handle)

    @contextmanager
    def _handle_in_use(self) -> Iterator[c.c_void_p]:
        with self._changed:
            if self._handle is None:
                raise ValueError("the engine is closed")
            handle = self._handle
            self._calls += 1
        try:
            yield handle
        finally:
            with self._changed:
                self._calls -= 1
                self._changed.notify_all()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()
