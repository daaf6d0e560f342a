# SPDX-License-Identifier: Apache-2.0
"""cua-export synthetic as a program: exit status, messages, what is left after a signal.

usage: cua_export_test.py CUA_EXPORT TOKENIZER_FOLDER
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

EXPORT, TOKENIZER = sys.argv[1], sys.argv[2]


def run(*arguments):
    return subprocess.run([EXPORT, *arguments], capture_output=True, text=True, timeout=120)


class CuaExport(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.out = os.path.join(folder.name, "out")

    def test_usage(self):
        os.mkdir(os.path.join(self.folder, "full"))
        full = os.path.join(self.folder, "full")
        open(os.path.join(full, "file"), "w").close()
        for wrong, word in [
            ([], "usage"),
            (["nope"], "nope"),
            (["synthetic"], "--shape"),
            (["synthetic", "--shape", "tiny"], "--out"),
            (["synthetic", "--shape", "huge", "--out", self.out], "huge"),
            (["synthetic", "--shape", "tiny", "--out", full], full),
            (["synthetic", "--shape", "tiny", "--seed", "-1", "--out", self.out], "--seed"),
            (["synthetic", "--shape", "tiny", "--seed=1x", "--out", self.out], "1x"),
            (["synthetic", "--shape", "tiny", "--seed", "18446744073709551616", "--out", self.out],
             "18446744073709551616"),
            (["synthetic", "--shape", "tiny", "--threads=-1", "--out", self.out], "--threads"),
            (["synthetic", "--shape", "tiny", "--out", self.out, "more"], "positional"),
            (["synthetic", "--shape", "tiny", "--out", self.out, "--out", self.out], "--out"),
            (["synthetic", "--shape", "tiny", "--unknown", "--out", self.out], "--unknown"),
        ]:
            with self.subTest(wrong):
                done = run(*wrong)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn(word, done.stderr)
        self.assertEqual(os.listdir(self.folder), ["full"])
        self.assertEqual(os.listdir(full), ["file"])

    def test_help(self):
        for arguments in (["--help"], ["synthetic", "--help"]):
            done = run(*arguments)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("synthetic" if len(arguments) == 1 else "--tokenizer", done.stdout)

    def test_what_cannot_be_read_or_written(self):
        done = run("synthetic", "--shape", "tiny", "--tokenizer", self.folder, "--out", self.out)
        self.assertEqual(done.returncode, 1)
        self.assertIn(os.path.join(self.folder, "tokenizer.json"), done.stderr)
        done = run("synthetic", "--shape", "tiny", "--out", "/proc/no/such/place")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/proc", done.stderr)
        self.assertEqual(os.listdir(self.folder), [])

    def test_the_folder(self):
        done = run("synthetic", "--shape", "tiny", "--seed", "5", "--tokenizer", TOKENIZER,
                   "--out", self.out)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(os.listdir(self.folder), ["out"])
        self.assertEqual(
            sorted(os.listdir(self.out)),
            ["chat_template.jinja", "config.json", "cua_s1_export.json", "model.safetensors",
             "tokenizer.json", "tokenizer_config.json"])
        with open(os.path.join(self.out, "cua_s1_export.json")) as file:
            marker = json.load(file)
        self.assertEqual((marker["format"], marker["model"]),
                         ("cua-s1-text-merged/1", "synthetic/tiny-5"))
        with open(os.path.join(self.out, "config.json")) as file:
            vocabulary = json.load(file)["vocab_size"]
        with open(os.path.join(TOKENIZER, "tokenizer.json")) as file:
            largest = max(token["id"] for token in json.load(file)["added_tokens"])
        self.assertGreater(vocabulary, largest)
        self.assertEqual(vocabulary % 64, 0)
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            with open(os.path.join(self.out, name), "rb") as made, \
                    open(os.path.join(TOKENIZER, name), "rb") as given:
                self.assertEqual(made.read(), given.read())

    def test_a_signal_leaves_nothing(self):
        for stop in (signal.SIGINT, signal.SIGTERM):
            # 8.4 GB if it were let run. A child of a background job may have SIGINT ignored.
            process = subprocess.Popen(
                [EXPORT, "synthetic", "--shape", "4b", "--threads", "1", "--out", self.out],
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
            while not any(name.startswith("out") for name in os.listdir(self.folder)):
                self.assertIsNone(process.poll())
                time.sleep(0.001)
            process.send_signal(stop)
            self.assertEqual(process.wait(timeout=120), -stop)
            self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
