# SPDX-License-Identifier: Apache-2.0
"""libcua through ctypes, for the tests that compare it with PyTorch."""
import ctypes
import json

U32, U64, I32 = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int32


class Error(ctypes.Structure):
    _fields_ = [("struct_size", U32), ("code", I32), ("message", ctypes.c_char * 1024)]


class Options(ctypes.Structure):
    _fields_ = [("struct_size", U32), ("device", I32), ("model_dir", ctypes.c_char_p), ("model_dir_length", U64),
                ("max_prompt_tokens", U32), ("max_batch_tokens", U32), ("graph_mode", U32), ("graph_capacity", U32),
                ("log", ctypes.c_void_p), ("log_user", ctypes.c_void_p), ("threads", U32), ("precision", U32),
                ("prefix", ctypes.c_char_p), ("prefix_length", U64), ("plans", ctypes.c_char_p), ("plans_length", U64)]


class Prompt(ctypes.Structure):
    _fields_ = [("struct_size", U32), ("n_options", U32), ("ids", ctypes.POINTER(U32)), ("n_ids", U64),
                ("text", ctypes.c_char_p), ("text_length", U64)]


class Score(ctypes.Structure):
    _fields_ = [("struct_size", U32), ("best", U32), ("n_ids", U64), ("flags", U32), ("reserved", U32),
                ("logits", ctypes.c_float * 26), ("probabilities", ctypes.c_float * 26)]


class Stats(ctypes.Structure):
    _fields_ = [("struct_size", U32), ("reserved", U32)] + [(name, U64) for name in (
        "forwards", "prompts", "tokens", "captures", "replays", "evictions", "fallbacks", "scratch_bytes",
        "device_bytes")]


class LibraryError(Exception):
    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code = code


class Engine:
    def __init__(self, library, model, **options):
        self.lib = ctypes.CDLL(library)
        self.lib.cua_build_info.restype = ctypes.c_char_p
        self.error = Error(struct_size=ctypes.sizeof(Error))
        folder = str(model).encode()
        prefix = options.pop("prefix", "").encode()
        plans = str(options.pop("plans", "")).encode()
        o = Options(struct_size=ctypes.sizeof(Options), model_dir=folder, model_dir_length=len(folder),
                    prefix=prefix, prefix_length=len(prefix), plans=plans, plans_length=len(plans), **options)
        self.engine = ctypes.c_void_p()
        self._check(self.lib.cua_engine_create(ctypes.byref(o), ctypes.byref(self.engine), ctypes.byref(self.error)))

    def _check(self, code):
        if code != 0:
            raise LibraryError(code, self.error.message.decode())

    def close(self):
        if self.engine:
            self.lib.cua_engine_destroy(self.engine)
            self.engine = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def tokenize(self, text):
        data = text.encode()
        ids = (U32 * (len(data) * 3 + 1))()
        count = U64()
        self._check(self.lib.cua_tokenize(self.engine, data, U64(len(data)), ids, U64(len(ids)), ctypes.byref(count),
                                          ctypes.byref(self.error)))
        return list(ids[:count.value])

    def score(self, prompts, n_options=26):
        """prompts: lists of ids. One Score each."""
        arrays = [(U32 * len(ids))(*ids) for ids in prompts]
        counts = n_options if isinstance(n_options, list) else [n_options] * len(prompts)
        p = (Prompt * len(prompts))(*[Prompt(struct_size=ctypes.sizeof(Prompt), n_options=n, ids=a, n_ids=len(a))
                                      for a, n in zip(arrays, counts)])
        s = (Score * len(prompts))(*[Score(struct_size=ctypes.sizeof(Score)) for _ in prompts])
        self._check(self.lib.cua_score_prompts(self.engine, p, U32(len(prompts)), s, ctypes.byref(self.error)))
        return list(s)

    def set_graph_mode(self, mode):
        self._check(self.lib.cua_set_graph_mode(self.engine, U32(mode), ctypes.byref(self.error)))

    def stats(self):
        s = Stats(struct_size=ctypes.sizeof(Stats))
        self._check(self.lib.cua_engine_stats(self.engine, ctypes.byref(s), ctypes.byref(self.error)))
        return s

    def describe(self):
        buffer = ctypes.create_string_buffer(4096)
        needed = U64()
        self._check(self.lib.cua_engine_describe(self.engine, buffer, U64(len(buffer)), ctypes.byref(needed),
                                                 ctypes.byref(self.error)))
        return json.loads(buffer.raw[:needed.value])
