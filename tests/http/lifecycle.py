#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Start, stop, flags, refusals and failures of cua-server, with the tests' own library.

usage: lifecycle.py --server FILE --fake FILE --partial FILE --needy FILE
"""
import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from worker import MODEL_ID, PATIENCE, Worker, clean_environment, get, post, wait_for

failures = []
checks = 0
BODY = {"model": "cua-s1-4b-0.2", "state": "s", "questions": {"q": {
    "type": "choice", "instructions": None, "criteria": {"a": None, "b": None}}}}


def check(name, condition, *detail):
    global checks
    checks += 1
    if not condition:
        failures.append(name)
        print("FAILED", name, *detail, file=sys.stderr)


def run(server, *flags, env=None):
    """A worker that is expected to stop by itself: its status, stdout and stderr."""
    done = subprocess.run([server, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE,
                          env={**clean_environment(), **(env or {})}, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def usage(server, fake):
    good = ["--cuda-lib", fake, "--model", "x", "--port", "0"]
    for name, flags, env, needle in (
            ("no model", [], {}, "CUA_S1_MODEL"),
            ("unknown flag", [*good, "--colour"], {}, "--colour"),
            ("guessed flag", [*good, "--por", "1"], {}, "--por"),
            ("positional", [*good, "folder"], {}, "positional"),
            ("flag twice", [*good, "--port", "1"], {}, "--port"),
            ("no value", ["--model"], {}, "--model"),
            ("port text", ["--model", "x", "--port", "http"], {}, "--port"),
            ("port empty", ["--model", "x", "--port", ""], {}, "--port"),
            ("port high", ["--model", "x", "--port", "65536"], {}, "--port"),
            ("port negative", ["--model", "x", "--port=-1"], {}, "--port"),
            ("port blank", ["--model", "x", "--port", " 80"], {}, "--port"),
            ("port variable", ["--model", "x"], {"CUA_S1_PORT": "x"}, "CUA_S1_PORT"),
            ("graph", [*good, "--graph", "2"], {}, "--graph"),
            ("graph word", [*good, "--graph", "on"], {}, "--graph"),
            ("graph variable", good, {"CUA_S1_GRAPH": "yes"}, "CUA_S1_GRAPH"),
            ("device", [*good, "--device", "gpu"], {}, "--device"),
            ("device negative", [*good, "--device=-1"], {}, "--device"),
            ("exit variable", good, {"CUA_S1_EXIT_ON_DEVICE_FAILURE": "yes"}, "CUA_S1_EXIT_ON_DEVICE_FAILURE"),
            ("drain delay", [*good, "--drain-delay", "soon"], {}, "--drain-delay"),
            ("drain delay variable", good, {"CUA_S1_DRAIN_DELAY": "-1"}, "CUA_S1_DRAIN_DELAY"),
            ("threads", [*good, "--threads", "many"], {}, "--threads")):
        status, out, err = run(server, *flags, env=env)
        check(f"usage: {name}", status == 2 and needle in err and out == "", status, out, err)
    for flag in ("--help", "--version"):
        status, out, err = run(server, flag)
        check(flag, status == 0 and "cua-server" in out and err == "", status, out, err)
    status, out, _ = run(server, "--help")
    for name in ("--model", "--host", "--port", "--cuda-lib", "--graph", "--device", "--threads",
                 "--drain-delay", "CUA_S1_DRAIN_DELAY", "--exit-on-device-failure", "CUA_S1_EXIT_ON_DEVICE_FAILURE", "CUA_S1_MODEL", "CUA_S1_HOST", "CUA_S1_PORT", "CUA_S1_CUDA_LIB", "CUA_S1_GRAPH"):
        check(f"--help tells of {name}", name in out)


def libraries(server, fake, partial, needy, folder):
    def refused(name, lib, *needles, env=None):
        status, out, err = run(server, "--cuda-lib", lib, "--model", "x", "--port", "0", env=env)
        check(f"library: {name}", status == 3 and out == "" and len(err.splitlines()) == 1
              and all(n in err for n in needles), status, out, err)

    text = os.path.join(folder, "text.so")
    with open(text, "w", encoding="ascii") as file:
        file.write("not a library\n")
    refused("missing", "/nowhere/libcua.so", "/nowhere/libcua.so", "no such file")
    refused("not a library", text, "text.so")
    refused("a folder", folder, folder)
    refused("of another kind", "libc.so.6" if os.path.exists("libc.so.6") else find_libc(), "cua_abi_version")
    refused("missing symbol", partial, "cua_engine_stats")
    refused("missing CUDA runtime", needy, "libcudart_absent.so", "--device cpu")
    for abi in ("3.0", "3.9", "5.0"):
        refused(f"ABI {abi}", fake, abi, "4.0", "same major version", env={"CUA_FAKE_ABI": abi})
    with Worker(server, fake, "x", env={"CUA_FAKE_ABI": "4.7"}) as worker:  # newer minors are fine
        check("ABI 4.7", worker.stop()[0] == 0)

    # None named: beside the executable, and never the CPU library instead of the other.
    alone = os.path.join(folder, "cua-server")
    shutil.copy(server, alone)
    status, _, err = run(alone, "--model", "x", "--port", "0")
    check("no library: both remedies", status == 3 and "--cuda-lib" in err and "--device cpu" in err, status, err)
    status, _, err = run(alone, "--model", "x", "--port", "0", "--device", "cpu")
    check("no CPU library", status == 3 and "libcua_cpu.so" in err and "--cuda-lib" in err, status, err)
    shutil.copy(fake, os.path.join(folder, "libcua_cpu.so"))
    status, _, err = run(alone, "--model", "x", "--port", "0")
    check("never the CPU library by itself", status == 3, status, err)
    for name, flags in (("libcua_cpu.so", ["--device", "cpu"]), ("libcua.so", []), ("libcua.so.4", [])):
        if name != "libcua_cpu.so":
            shutil.copy(fake, os.path.join(folder, name))
        process = subprocess.Popen([alone, "--model", "x", "--port", "0", *flags], stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, env=clean_environment())
        check(f"finds {name}", process.stdout.readline().startswith(b"listening on"))
        process.terminate()
        check(f"finds {name}: stops", process.wait(PATIENCE) == 0)
        if name != "libcua_cpu.so":
            os.remove(os.path.join(folder, name))


def find_libc():
    with open("/proc/self/maps", encoding="ascii") as maps:
        return next(line.split()[-1] for line in maps if "libc.so" in line or "libc-" in line)


def models(server, fake):
    def refused(name, status, needle, env):
        got, out, err = run(server, "--cuda-lib", fake, "--model", "the folder", "--port", "0", env=env)
        check(name, got == status and needle in err and out == "", got, out, err)

    for code in (1, 3, 4, 5, 8, 99):
        refused(f"create gives {code}", 4, "refuses to open", {"CUA_FAKE_CREATE": str(code)})
    refused("no tokenizer", 4, "tokenizer.json", {"CUA_FAKE_NO_TOKENIZER": "1"})
    refused("warm-up fails", 4, "fails", {"CUA_FAKE_FAIL": "10"})
    refused("device fails in the warm-up", 6, "fails", {"CUA_FAKE_FAIL": "7"})


def listening(server, fake):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        status, out, err = run(server, "--cuda-lib", fake, "--model", "x", "--port", port)
        check("port in use", status == 5 and port in err and out == "", status, out, err)
        status, out, err = run(server, "--cuda-lib", fake, "--model", "x", env={"CUA_S1_PORT": port})
        check("port in use, from the variable", status == 5, status, err)
        with Worker(server, fake, "x", env={"CUA_S1_PORT": port}) as worker:  # --port 0 wins
            check("a flag wins over its variable", worker.port != int(port))
    for host in ("999.1.1.1", "no.such.host.invalid", "192.0.2.1"):
        status, out, err = run(server, "--cuda-lib", fake, "--model", "x", "--port", "0", "--host", host)
        check(f"host {host}", status == 5 and host in err and out == "", status, out, err)
    with Worker(server, fake, "x", env={"CUA_S1_HOST": "127.0.0.2"}) as worker:
        check("CUA_S1_HOST", worker.line.startswith("listening on 127.0.0.2:"), worker.line)
        check("CUA_S1_HOST serves", worker.post(BODY).status == 200)
    with Worker(server, fake, "x", "--host", "localhost") as worker:
        check("--host localhost", worker.post(BODY).status == 200)
    if socket.has_ipv6:
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            return
        with Worker(server, fake, "x", "--host", "::1") as worker:
            check("IPv6", worker.line.startswith("listening on [::1]:"), worker.line)
            check("IPv6 serves", worker.post(BODY).status == 200)


def environment(server, fake):
    process = subprocess.Popen([server], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env={**clean_environment(), "CUA_S1_MODEL": "m", "CUA_S1_PORT": "0",
                                    "CUA_S1_CUDA_LIB": fake, "CUA_S1_GRAPH": "1", "CUA_FAKE_MODEL": "its own"})
    line = process.stdout.readline().decode()
    check("all from the environment", line.startswith("listening on 127.0.0.1:"), line)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    check("SIGINT", process.returncode == 0 and out == b"", process.returncode, out)
    check("the library's log", b"a line of\\x0athe library" in err, err)
    with Worker(server, fake, "x", env={"CUA_FAKE_MODEL": "its own"}) as worker:
        check("the folder's model id", worker.exchange(get("/health")).json()["model"] == "its own")
        check("the folder's model id in answers", worker.post(BODY).json()["model"] == "its own")
    with Worker(server, fake, "x") as worker:
        check("the pinned model id", worker.exchange(get("/health")).json()["model"] == MODEL_ID)


def demonstration(server, fake):
    """--demo looks beside the program, then where it is installed; whoever asks is told what it is."""
    with tempfile.TemporaryDirectory() as folder:
        program = shutil.copy(server, os.path.join(folder, "cua-server"))
        command = [program, "--demo", "--cuda-lib", fake, "--port", "0"]
        ended = subprocess.run(command, env=clean_environment(), capture_output=True, timeout=PATIENCE, check=False)
        check("no demonstration model", ended.returncode == 4 and b"demonstration model was not found in" in ended.stderr
              and b"--model" in ended.stderr and not ended.stdout, ended)
        os.mkdir(os.path.join(folder, "demo"))
        with open(os.path.join(folder, "demo", "config.json"), "w", encoding="utf-8"):
            pass
        process = subprocess.Popen(command, env={**clean_environment(), "CUA_S1_MODEL": "elsewhere"},
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        line = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE)
        check("found beside the program", line.startswith(b"listening on ") and process.returncode == 0
              and os.path.join(folder, "demo").encode() in err and b"elsewhere" not in err, line, err)
    with Worker(server, fake, "x", env={"CUA_FAKE_MODEL": "cua-demo-9"}) as worker:
        health = worker.exchange(get("/health")).json()
        check("health tells of the demonstration", list(health) == ["status", "model", "note"]
              and health["model"] == "cua-demo-9" and "not Cua-S1" in health["note"], health)
        check("it answers to the contract's name", worker.post(BODY).json()["model"] == "cua-demo-9")
        check("the log tells of it", "not Cua-S1" in worker.log_text(), worker.log_text())


def stopping(server, fake):
    for number in (signal.SIGTERM, signal.SIGINT):
        with Worker(server, fake, "x", env={"CUA_FAKE_CALL_US": "700000"}) as worker:
            answers = []

            def client(answers=answers, worker=worker):
                answers.append(worker.post(BODY))

            threads = [threading.Thread(target=client) for _ in range(3)]  # one runs, two wait
            idle = worker.connect()
            for thread in threads:
                thread.start()
            time.sleep(0.3)
            status, rest = worker.stop(number)
            for thread in threads:
                thread.join()
            check(f"{number.name} finishes what was accepted", [a.status for a in answers] == [200] * 3, answers)
            check(f"{number.name} exit status", status == 0 and rest == b"", status, rest)
            check(f"{number.name} closes idle connections", idle.closed())
    with Worker(server, fake, "x", env={"CUA_FAKE_CALL_US": "3000000"}) as worker:
        with worker.connect() as connection, worker.connect() as other:
            other.send(get("/health"))
            check("health before", other.response().status == 200)
            connection.send(post(json.dumps(BODY).encode()))
            time.sleep(0.3)
            before = time.monotonic()
            check("health beside a running pass", worker.exchange(get("/health")).status == 200)
            check("health does not wait for it", time.monotonic() - before < 2)
            worker.process.send_signal(signal.SIGTERM)
            wait_for(lambda: refuses(worker), "the listener to close")
            worker.process.send_signal(signal.SIGTERM)
            status = worker.process.wait(PATIENCE)
            check("a second signal stops at once", status == 128 + signal.SIGTERM, status)
    with Worker(server, fake, "x") as worker:
        check("stops while idle", worker.stop()[0] == 0)


def draining(server, fake):
    with Worker(server, fake, "x", "--drain-delay", "3600", env={"CUA_FAKE_CALL_US": "300000"}) as worker:
        with worker.connect() as busy, worker.connect() as idle:
            busy.send(post(json.dumps(BODY).encode()))
            wait_for(lambda: b"cua_ready 1" in worker.exchange(get("/metrics")).body, "the metrics")
            worker.process.send_signal(signal.SIGTERM)
            wait_for(lambda: worker.exchange(get("/readyz")).status == 503, "/readyz to say so")
            for path, status in (("/health", 503), ("/readyz", 503), ("/livez", 200)):
                response = worker.exchange(get(path))
                check(f"{path} while draining", response.status == status, response)
            check("the metrics while draining", b"cua_ready 0" in worker.exchange(get("/metrics")).body)
            for name, connection in (("an old", idle), ("a new", worker.connect())):
                connection.send(post(json.dumps(BODY).encode()))
                response = connection.response()
                check(f"{name} connection is answered while draining", response.status == 200, response)
                check(f"{name} connection is then closed",
                      response.headers.get("connection") == "close" and connection.closed(), response)
            check("what was accepted before is answered", busy.response().status == 200)
        worker.process.send_signal(signal.SIGTERM)
        status = worker.process.wait(PATIENCE)
        check("a second signal ends the delay at once", status == 128 + signal.SIGTERM, status)
    with Worker(server, fake, "x", env={"CUA_S1_DRAIN_DELAY": "0.5"}) as worker:
        with worker.connect() as idle:
            began = time.monotonic()
            status, rest = worker.stop()
            check("the delay is kept", time.monotonic() - began >= 0.5)
            check("then it ends as ever", status == 0 and rest == b"" and idle.closed(), status, rest)
    with Worker(server, fake, "x", "--drain-delay", "3600", "--exit-on-device-failure",
                env={"CUA_FAKE_FAIL": "7", "CUA_FAKE_FAIL_AFTER": "1"}) as worker:
        worker.process.send_signal(signal.SIGTERM)
        wait_for(lambda: worker.exchange(get("/readyz")).status == 503, "/readyz to say so")
        check("the device fails while draining", worker.post(BODY).status == 500)
        check("which ends the delay", worker.process.wait(PATIENCE) == 6)


def refuses(worker):
    try:
        worker.connect().socket.close()
        return False
    except OSError:
        return True


def failing(server, fake):
    with Worker(server, fake, "x", env={"CUA_FAKE_FAIL": "10", "CUA_FAKE_FAIL_AFTER": "1"}) as worker:
        for _ in range(3):
            response = worker.post(BODY)
            check("a failed pass is 500", response.status == 500
                  and response.json() == {"detail": "inference failed"}, response)
        check("the worker lives on", worker.exchange(get("/health")).status == 200)
        check("the cause is in the log", "a secret cause" in worker.log_text())
    mark = "Z" * 16  # four equal ids, wherever it stands
    with Worker(server, fake, "x", env={"CUA_FAKE_FAIL": "5", "CUA_FAKE_FAIL_TEXT": mark,
                                        "CUA_FAKE_FAIL_AFTER": "1"}) as worker:
        bad = {**BODY, "state": " " * 64 + mark * 8}
        results = [worker.post(bad if i % 2 else BODY).status for i in range(6)]
        check("one request's failure is its own", results == [200, 500] * 3, results)
    with Worker(server, fake, "x", env={"CUA_FAKE_FAIL": "7", "CUA_FAKE_FAIL_AFTER": "1"}) as worker:
        check("ready before", worker.exchange(get("/health")).status == 200)
        check("the device fails", worker.post(BODY).status == 500)
        health = worker.exchange(get("/health"))
        check("health after a lost device", health.status == 503 and "a secret cause" in health.json()["reason"], health)
        check("exit status of a lost device", worker.stop()[0] == 6)
    for flags, extra in ((["--exit-on-device-failure"], {}), ([], {"CUA_S1_EXIT_ON_DEVICE_FAILURE": "1"})):
        with Worker(server, fake, "x", *flags,
                    env={"CUA_FAKE_FAIL": "7", "CUA_FAKE_FAIL_AFTER": "1", **extra}) as worker:
            check("the lost device is told first", worker.post(BODY).status == 500)
            check("then the worker stops by itself", worker.process.wait(PATIENCE) == 6)
            check("and says why", "--exit-on-device-failure" in worker.log_text())
    with Worker(server, fake, "x", "--exit-on-device-failure", "--shutdown-timeout", "0.2",
                env={"CUA_FAKE_FAIL": "7", "CUA_FAKE_FAIL_AFTER": "1"}) as worker:
        with worker.connect() as idler:  # asks for more than the sockets hold, and takes nothing of it
            idler.socket.settimeout(1)  # room may come back once the worker has read
            try:
                while True:
                    idler.socket.send(get("/openapi.json") * 100)
            except TimeoutError:
                pass
            check("the device is lost beside a slow reader", worker.post(BODY).status == 500)
            check("the status of --shutdown-timeout", worker.process.wait(PATIENCE) == 6)
            check("it was that", "--shutdown-timeout is over" in worker.log_text())
    with Worker(server, fake, "x", "--exit-on-device-failure",
                env={"CUA_FAKE_FAIL": "10", "CUA_FAKE_FAIL_AFTER": "1"}) as worker:
        check("another failure", worker.post(BODY).status == 500)
        check("does not stop it", worker.exchange(get("/health")).status == 200 and worker.stop()[0] == 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--fake", required=True)
    parser.add_argument("--partial", required=True)
    parser.add_argument("--needy", required=True)
    options = parser.parse_args()
    server, fake = os.path.abspath(options.server), os.path.abspath(options.fake)
    usage(server, fake)
    with tempfile.TemporaryDirectory() as folder:
        libraries(server, fake, os.path.abspath(options.partial), os.path.abspath(options.needy), folder)
    models(server, fake)
    listening(server, fake)
    environment(server, fake)
    demonstration(server, fake)
    stopping(server, fake)
    draining(server, fake)
    failing(server, fake)
    print(f"{checks - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
