# SPDX-License-Identifier: Apache-2.0
"""The library through Python's ctypes: what it answers, and that company, passes, threads and a
prefix change no bit of it.

    ctypes_test.py LIBRARY IDS_MODEL TEXT_MODEL DATA [--sanitized]

IDS_MODEL is golden/tiny with a marker; TEXT_MODEL a synthetic tiny model with the tokenizer; DATA
the unpacked test data. Standard library only.
"""
import ctypes as c
import gc
import json
import os
import random
import resource
import shutil
import struct
import sys
import tempfile
import threading
import unittest

LIBRARY, IDS_MODEL, TEXT_MODEL, DATA = sys.argv[1:5]
SANITIZED = "--sanitized" in sys.argv[5:]
(OK, INVALID_ARGUMENT, BAD_MODEL, OUT_OF_MEMORY, PROMPT_TOO_LONG, UNSUPPORTED, BUFFER_TOO_SMALL,
 NOT_FINITE) = (0, 1, 3, 5, 6, 8, 9, 10)
BATCHED = 4


class Error(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("code", c.c_int32), ("message", c.c_char * 1024)]


LogFunction = c.CFUNCTYPE(None, c.c_void_p, c.c_int32, c.POINTER(c.c_char), c.c_uint64)


class Options(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("device", c.c_int32),
                ("model_dir", c.c_char_p), ("model_dir_length", c.c_uint64),
                ("max_prompt_tokens", c.c_uint32), ("max_batch_tokens", c.c_uint32),
                ("graph_mode", c.c_uint32), ("graph_capacity", c.c_uint32),
                ("log", LogFunction), ("log_user", c.c_void_p),
                ("threads", c.c_uint32), ("precision", c.c_uint32),
                ("prefix", c.c_char_p), ("prefix_length", c.c_uint64),
                ("plans", c.c_char_p), ("plans_length", c.c_uint64)]


class Prompt(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("n_options", c.c_uint32),
                ("ids", c.POINTER(c.c_uint32)), ("n_ids", c.c_uint64),
                ("text", c.c_char_p), ("text_length", c.c_uint64)]


class Score(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("best", c.c_uint32), ("n_ids", c.c_uint64),
                ("flags", c.c_uint32), ("reserved", c.c_uint32),
                ("logits", c.c_float * 26), ("probabilities", c.c_float * 26)]

    def bits(self):
        return self.best, self.n_ids, bytes(self.logits), bytes(self.probabilities)


class Stats(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("reserved", c.c_uint32)] + [
        (name, c.c_uint64) for name in ("forwards", "prompts", "tokens", "captures", "replays",
                                        "evictions", "fallbacks", "scratch_bytes", "device_bytes")]


assert [c.sizeof(s) for s in (Error, Options, Prompt, Score, Stats)] == [1032, 96, 40, 232, 80]

lib = c.CDLL(LIBRARY)
lib.cua_abi_version.restype = c.c_uint32
lib.cua_build_info.restype = c.c_char_p
lib.cua_engine_create.argtypes = [c.POINTER(Options), c.POINTER(c.c_void_p), c.POINTER(Error)]
lib.cua_engine_destroy.argtypes = [c.c_void_p]
lib.cua_engine_destroy.restype = None
lib.cua_engine_describe.argtypes = [c.c_void_p, c.c_char_p, c.c_uint64, c.POINTER(c.c_uint64), c.POINTER(Error)]
lib.cua_tokenize.argtypes = [c.c_void_p, c.c_char_p, c.c_uint64, c.POINTER(c.c_uint32), c.c_uint64,
                             c.POINTER(c.c_uint64), c.POINTER(Error)]
lib.cua_score_prompts.argtypes = [c.c_void_p, c.POINTER(Prompt), c.c_uint32, c.POINTER(Score), c.POINTER(Error)]
lib.cua_set_graph_mode.argtypes = [c.c_void_p, c.c_uint32, c.POINTER(Error)]
lib.cua_engine_stats.argtypes = [c.c_void_p, c.POINTER(Stats), c.POINTER(Error)]


class CuaError(Exception):
    def __init__(self, error):
        super().__init__(f"{error.code}: {error.message.decode()}")
        self.code, self.message = error.code, error.message.decode()


def call(function, *arguments):
    error = Error(c.sizeof(Error))
    code = function(*arguments, c.byref(error))
    assert code == error.code, (code, error.code)
    if code != OK:
        raise CuaError(error)


class Engine:
    def __init__(self, model, **options):
        o = Options(c.sizeof(Options), model_dir=model.encode(), model_dir_length=len(model.encode()))
        if "prefix" in options:
            options["prefix"] = options["prefix"].encode()
            options["prefix_length"] = len(options["prefix"])
        for name, value in options.items():
            setattr(o, name, value)
        self.handle = c.c_void_p()
        call(lib.cua_engine_create, c.byref(o), c.byref(self.handle))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        lib.cua_engine_destroy(self.handle)
        self.handle = c.c_void_p()

    def describe(self):
        needed = c.c_uint64()
        try:
            call(lib.cua_engine_describe, self.handle, None, 0, c.byref(needed))
            raise AssertionError("an empty buffer was enough")
        except CuaError as error:
            assert error.code == BUFFER_TOO_SMALL, error
        buffer = c.create_string_buffer(needed.value)
        call(lib.cua_engine_describe, self.handle, buffer, len(buffer), c.byref(needed))
        return json.loads(buffer.raw.decode())

    def tokenize(self, text):
        text = text if isinstance(text, bytes) else text.encode()
        ids = (c.c_uint32 * (2 * len(text) + 1))()
        count = c.c_uint64()
        call(lib.cua_tokenize, self.handle, text, len(text), ids, len(ids), c.byref(count))
        return ids[:count.value]

    def score(self, *prompts):
        """prompts: (ids or text, number of options)."""
        arguments, scores = (Prompt * len(prompts))(), (Score * len(prompts))()
        for argument, score, (prompt, n_options) in zip(arguments, scores, prompts):
            argument.struct_size, score.struct_size = c.sizeof(Prompt), c.sizeof(Score)
            argument.n_options = n_options
            if isinstance(prompt, str):
                argument.text, argument.text_length = prompt.encode(), len(prompt.encode())
            else:
                argument.ids = (c.c_uint32 * len(prompt))(*prompt)
                argument.n_ids = len(prompt)
        call(lib.cua_score_prompts, self.handle, arguments, len(prompts), scores)
        return list(scores)

    def stats(self):
        stats = Stats(c.sizeof(Stats))
        call(lib.cua_engine_stats, self.handle, c.byref(stats))
        return stats


def bits(scores):
    return [score.bits() for score in scores]


def random_prompts(seed, lengths, vocabulary=512):
    generator = random.Random(seed)
    return [([generator.randrange(vocabulary) for _ in range(n)], generator.randint(1, 26)) for n in lengths]


def anonymous_bytes():
    """Resident, without what free() keeps, and without files: the system drops those as it likes."""
    c.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        _, resident, shared = map(int, file.read().split()[:3])
    return (resident - shared) * os.sysconf("SC_PAGESIZE")


def read_json(*path):
    with open(os.path.join(DATA, *path), encoding="utf-8") as file:
        return json.load(file)


class Ctypes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.ids = Engine(IDS_MODEL)
        cls.text = Engine(TEXT_MODEL)

    @classmethod
    def tearDownClass(cls):
        for engine in (cls.ids, cls.text):
            lib.cua_engine_destroy(engine.handle)

    def refused(self, code, *needles):
        test = self

        class Context:
            def __enter__(self):
                return self

            def __exit__(self, kind, error, _):
                test.assertIs(kind, CuaError, f"{code} expected")
                test.assertEqual(error.code, code, error)
                for needle in needles:
                    test.assertIn(needle, error.message)
                return True

        return Context()

    def test_versions(self):
        self.assertEqual(lib.cua_abi_version() >> 16, 4)
        info = json.loads(lib.cua_build_info())
        self.assertIn(info["backend"], ("cpu", "cuda"))
        self.assertTrue(info["architectures"] and all(isinstance(a, str) for a in info["architectures"]))
        if info["backend"] == "cpu":
            self.assertIsNone(info["cuda"])
            self.assertIsNone(info["cublaslt"])
        self.assertRegex(info["version"], r"^\d+\.\d+\.\d+$")

    def test_describe(self):
        about = self.ids.describe()
        self.assertIsNone(about["model"])
        self.assertIs(about["tokenizer"], False)
        self.assertEqual((about["vocabulary"], about["max_prompt_tokens"]), (512, 16384))
        about = self.text.describe()
        self.assertEqual(about["model"], "synthetic/tiny-1")
        self.assertIs(about["tokenizer"], True)
        self.assertGreaterEqual(about["vocabulary"], 248077)
        self.assertEqual(about["backend"], json.loads(lib.cua_build_info())["backend"])
        self.assertIsInstance(about["device"], str)
        with Engine(IDS_MODEL, max_prompt_tokens=77) as engine:
            self.assertEqual(engine.describe()["max_prompt_tokens"], 77)

    def test_tokenize(self):
        fixture = read_json("tokenizer", "fixture.json")
        self.assertEqual(self.text.tokenize(fixture["text"]), fixture["ids"])
        self.assertEqual(self.text.tokenize(""), [])
        self.assertEqual([self.text.tokenize(letter) for letter in "ABYZ"], [[32], [33], [56], [57]])
        with self.refused(UNSUPPORTED, "tokenizer.json"):
            self.ids.tokenize("text")

    def test_malformed_text(self):
        """Text is refused where Python refuses it, and at the same byte."""
        generator = random.Random(1)
        pieces = [b"a", b"0123456789", "\u00e9".encode(), "\u20ac".encode(), "\U0001f600".encode(), b"\0",
                  "\ud7ff".encode(), "\ue000".encode(), "\U0010ffff".encode()]
        refused = 0
        for _ in range(3000):
            text = bytearray(b"".join(generator.choices(pieces, k=generator.randint(1, 8))))
            for _ in range(generator.randint(0, 2)):
                at = generator.randrange(len(text))
                if generator.random() < 0.5:
                    text[at] = generator.choice((0x80, 0xbf, 0xc0, 0xc2, 0xe0, 0xed, 0xf0, 0xf4, 0xf5, 0xff,
                                                 generator.randrange(256)))
                elif len(text) > 1:
                    del text[at]
            text = bytes(text)
            try:
                text.decode()
                self.text.tokenize(text)
            except UnicodeDecodeError as wrong:
                refused += 1
                with self.refused(INVALID_ARGUMENT, f"text is not UTF-8 at byte {wrong.start}"):
                    self.text.tokenize(text)
        self.assertGreater(refused, 500)

    def test_golden_logits(self):
        golden = read_json("golden", "golden_tiny.json")["prompts"]
        scores = self.ids.score(*[(prompt["ids"], 26) for prompt in golden])
        for prompt, score in zip(golden, scores):
            self.assertEqual(score.n_ids, len(prompt["ids"]))
            self.assertEqual(len(prompt["fp64"]["logits"]), 26)
            worst = max(abs(a - b) for a, b in zip(score.logits, prompt["fp64"]["logits"]))
            self.assertLess(worst, 1e-4)
            self.assertAlmostEqual(sum(score.probabilities), 1, places=5)
            self.assertEqual(score.best, max(range(26), key=lambda i, s=score: s.logits[i]))

    def test_text_is_its_ids(self):
        texts = [(read_json("tokenizer", "fixture.json")["text"], 3), ("A", 1), ("\u4e2d\u6587 e\u0301\r\n<|im_end|>", 26)]
        by_ids = [(self.text.tokenize(text), n) for text, n in texts]
        self.assertEqual(bits(self.text.score(*texts)), bits(self.text.score(*by_ids)))
        mixed = [by_ids[0], texts[1], by_ids[2]]
        self.assertEqual(bits(self.text.score(*mixed)), bits(self.text.score(*by_ids)))
        with self.refused(UNSUPPORTED, "prompts[1]", "tokenizer.json"):
            self.ids.score(([1, 2], 2), ("text", 2))

    def test_company_changes_nothing(self):
        prompts = random_prompts(2, [1, 2, 3, 63, 64, 65, 127, 128, 129, 200, 5, 5, 300, 31])
        alone = [self.ids.score(prompt)[0] for prompt in prompts]
        self.assertTrue(all(score.flags & BATCHED == 0 for score in alone))
        for seed in range(4):
            order = list(range(len(prompts)))
            random.Random(seed).shuffle(order)
            scores = self.ids.score(*[prompts[i] for i in order])
            self.assertEqual(bits(scores), [alone[i].bits() for i in order])
            self.assertTrue(all(score.flags & BATCHED for score in scores))
        self.assertEqual(bits(self.ids.score(*[prompts[5]] * 40)), [alone[5].bits()] * 40)

    def test_passes_and_threads_change_nothing(self):
        prompts = random_prompts(3, [1, 200, 7, 64, 63, 90, 3])
        expected = bits(self.ids.score(*prompts))
        for options, forwards in (({"max_batch_tokens": 1}, 7), ({"max_batch_tokens": 201}, None),
                                  ({"max_batch_tokens": 100}, None), ({"max_batch_tokens": 428}, 1),
                                  ({"max_batch_tokens": 427}, 2), ({"max_batch_tokens": 2**32 - 1}, 1),
                                  ({"threads": 1}, 1), ({"threads": 2}, 1), ({"threads": 3}, 1), ({"threads": 8}, 1)):
            with self.subTest(options), Engine(IDS_MODEL, **options) as engine:
                scores = engine.score(*prompts)
                self.assertEqual(bits(scores), expected)
                stats = engine.stats()
                self.assertEqual((stats.prompts, stats.tokens), (7, 428))
                if forwards is not None:
                    self.assertEqual(stats.forwards, forwards)
                self.assertEqual(any(score.flags & BATCHED for score in scores), stats.forwards < 7)

    def test_prefix_changes_nothing(self):
        prefix = read_json("tokenizer", "fixture.json")["text"]
        ids = self.text.tokenize(prefix)
        kept = len(ids) // 64 * 64
        self.assertGreaterEqual(kept, 128)
        other = ids[:kept - 1] + [ids[kept - 1] + 1]
        prompts = [(ids, 3), (ids[:kept], 4), (ids[:kept + 1], 5), (ids[:kept - 1], 6), (ids[:64], 7),
                   (other + ids[kept:], 8), (ids[1:], 9), (ids + ids, 10), ([5], 1)]
        text = [(prefix, 3), (prefix + "B", 2), (prefix[:50], 2)]
        expected, expected_text = bits(self.text.score(*prompts)), bits(self.text.score(*text))
        for options in ({}, {"threads": 3}, {"max_batch_tokens": 1}, {"max_batch_tokens": 300}):
            with self.subTest(options), Engine(TEXT_MODEL, prefix=prefix, **options) as engine:
                self.assertEqual(engine.describe()["prefix_tokens"], kept)
                self.assertEqual(bits(engine.score(*prompts)), expected)
                self.assertEqual([engine.score(prompt)[0].bits() for prompt in prompts], expected)
                self.assertEqual(bits(engine.score(*text)), expected_text)
                self.assertEqual(engine.stats().tokens, 2 * sum(len(p) for p, _ in prompts) +
                                 sum(score.n_ids for score in engine.score(*text)))
        for prefix, tokens in (("", 0), ("short", 0), ("x " * 80, 128 if len(self.text.tokenize("x " * 80)) >= 128 else 64)):
            with self.subTest(prefix=prefix), Engine(TEXT_MODEL, prefix=prefix) as engine:
                self.assertEqual(engine.describe()["prefix_tokens"], tokens)
                self.assertEqual(bits(engine.score(*prompts)), expected)

    def test_stats(self):
        with Engine(IDS_MODEL) as engine:
            self.assertEqual((engine.stats().forwards, engine.stats().prompts), (0, 0))
            engine.score(([1] * 10, 2))
            engine.score(([1] * 10, 2), ([2] * 5, 2))
            stats = engine.stats()
            self.assertEqual((stats.forwards, stats.prompts, stats.tokens), (2, 3, 25))
            self.assertGreater(stats.scratch_bytes, 0)
            with self.refused(INVALID_ARGUMENT, "prompts[1]"):
                engine.score(([1], 2), ([512], 2))
            self.assertEqual(engine.stats().prompts, 3)

    def test_one_engine_on_many_threads(self):
        prompts = random_prompts(4, [1, 30, 64, 65, 100, 17])
        expected = [self.ids.score(prompt)[0].bits() for prompt in prompts]
        text = read_json("tokenizer", "fixture.json")
        wrong = []

        def work(number):
            try:
                for turn in range(20):
                    i = (number + turn) % len(prompts)
                    if self.ids.score(prompts[i])[0].bits() != expected[i]:
                        wrong.append((number, turn, "alone"))
                    if turn % 5 == 0 and bits(self.ids.score(*prompts)) != expected:
                        wrong.append((number, turn, "together"))
                    if turn % 4 == 0 and self.text.tokenize(text["text"]) != text["ids"]:
                        wrong.append((number, turn, "tokens"))
                    self.ids.stats()
                    self.ids.describe()
            except Exception as error:
                wrong.append((number, error))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_two_engines(self):
        prompts = random_prompts(5, [10, 70])
        with Engine(IDS_MODEL) as one, Engine(IDS_MODEL, max_prompt_tokens=60) as other:
            expected = bits(one.score(*prompts))
            with self.refused(PROMPT_TOO_LONG, "prompts[1]", "70", "60"):
                other.score(*prompts)
            self.assertEqual(bits(other.score(prompts[0])), expected[:1])
            self.assertEqual(other.stats().forwards, 1)
            self.assertEqual(bits(one.score(*prompts)), expected)
        self.assertEqual(bits(self.ids.score(*prompts)), expected)

    def test_open_and_close(self):
        prompt = random_prompts(6, [100])[0]

        def once():
            with Engine(TEXT_MODEL, threads=2, prefix="word " * 100) as engine:
                engine.score(prompt, ("some text", 2))
            with self.refused(BAD_MODEL):
                Engine(os.path.join(DATA, "golden", "tiny"))

        resident = []
        for _ in range(12):
            once()
            gc.collect()
            resident.append(anonymous_bytes())
        if not SANITIZED:  # a sanitizer keeps freed memory for a while
            self.assertLess(resident[-1] - resident[3], 1 << 20, resident)

    @unittest.skipIf(SANITIZED, "a sanitizer needs more address space than there is")
    def test_out_of_memory(self):
        """In a process with little address space: a code, never an end."""

        def attempt(megabytes, **options):
            child = os.fork()
            if child == 0:
                code = 97
                try:
                    with open("/proc/self/statm") as file:
                        used = int(file.read().split()[0]) * os.sysconf("SC_PAGESIZE")
                    resource.setrlimit(resource.RLIMIT_AS, (used + (megabytes << 20),) * 2)
                    try:
                        with Engine(IDS_MODEL, **options) as engine:
                            engine.score(([1, 2, 3], 2))
                        code = OK
                    except CuaError as error:
                        code = error.code
                        if "threads" in options and "threads" not in error.message:
                            code = 98
                finally:
                    os._exit(code)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

        self.assertEqual(attempt(4000, threads=64), OK)
        self.assertEqual(attempt(100, threads=2000), OUT_OF_MEMORY)

    def test_log(self):
        lines = []

        @LogFunction
        def log(user, level, message, length):
            lines.append((user, level, c.string_at(message, length).decode()))

        with Engine(IDS_MODEL, log=log, log_user=1234) as engine:
            engine.score(([1, 2, 3], 2))
        for user, level, line in lines:
            self.assertEqual(user, 1234)
            self.assertIn(level, range(4))
            self.assertTrue(line)
        lines.clear()
        with Engine(TEXT_MODEL, log=log, log_user=1234, prefix="too short to keep"):
            pass
        self.assertEqual([(user, level) for user, level, _ in lines], [(1234, 1)])
        self.assertIn("prefix", lines[0][2])

    def test_not_finite(self):
        """A model whose last norm holds a NaN or an infinity gives an error, never an answer."""
        for value in (0x7fc0, 0x7f80):
            with self.subTest(hex(value)), tempfile.TemporaryDirectory() as folder:
                copy = shutil.copytree(IDS_MODEL, os.path.join(folder, "model"))
                path = os.path.join(copy, "model.safetensors")
                with open(path, "rb") as file:
                    content = bytearray(file.read())
                size = struct.unpack_from("<Q", content)[0]
                header = json.loads(content[8:8 + size])
                name = next(n for n in header if n in ("model.norm.weight", "model.language_model.norm.weight"))
                self.assertEqual(header[name]["dtype"], "BF16")
                struct.pack_into("<H", content, 8 + size + header[name]["data_offsets"][0], value)
                with open(path, "wb") as file:
                    file.write(content)
                with Engine(copy) as engine:
                    for _ in range(2):
                        with self.refused(NOT_FINITE, "prompts[0]"):
                            engine.score(([1, 2, 3], 2), ([4], 3))

    def test_long_prompts(self):
        longest = random_prompts(7, [16384])[0]
        with Engine(IDS_MODEL, max_prompt_tokens=20) as engine:
            with self.refused(PROMPT_TOO_LONG, "16384", "20"):
                engine.score(longest)
        with self.refused(PROMPT_TOO_LONG, "16385", "16384"):
            self.ids.score((longest[0] + [0], 2))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
