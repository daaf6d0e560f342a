# SPDX-License-Identifier: Apache-2.0
"""A page in headless Chromium, driven through its DevTools pipe with real mouse and key events."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

PATIENCE = 60  # seconds before a test gives the browser up


def chromium():
    """The program, or None where there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """One tab. `events` collects what the browser tells, each {"method", "params"}."""

    def __init__(self, program):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()

        def pipes():  # Chromium reads 3 and writes 4
            ends = os.dup(to_browser), os.dup(from_browser)
            for number, end in zip((3, 4), ends):
                os.dup2(end, number)

        flags = ["--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}", "--no-first-run",
                 "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
                 "--disable-sync", "--no-default-browser-check", "--hide-scrollbars", "about:blank"]
        if os.geteuid() == 0:
            flags.insert(0, "--no-sandbox")  # which refuses root
        # A high number, so that pipes() cannot close an end before it is copied.
        self.process = subprocess.Popen([program, *flags], preexec_fn=pipes, close_fds=False, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.number, self.events, self.session = b"", 0, [], None
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log", "Accessibility"):
            self.call(domain + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.write_end)
        os.close(self.read_end)
        self.profile.cleanup()

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write_end, data):]
        while True:
            answer = self._next(PATIENCE)
            if answer is None:
                raise AssertionError(f"Chromium does not answer {method}")
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]

    def _next(self, seconds):
        """The next message, kept as an event where it is one; None after so long without any."""
        while b"\0" not in self.buffer:
            if not select.select([self.read_end], [], [], seconds)[0]:
                return None
            data = os.read(self.read_end, 1 << 16)
            if not data:
                raise AssertionError("Chromium ended")
            self.buffer += data
        text, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message

    def open(self, url):
        # First away: asking for the page that is there would keep its state.
        for address in ("about:blank", url):
            self.call("Page.navigate", url=address)
            self.until(f"document.readyState === 'complete' && location.href === {json.dumps(address)}")

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def until(self, expression):
        """Waits until the page says so."""
        deadline = time.monotonic() + PATIENCE
        while not self.evaluate(expression):
            assert time.monotonic() < deadline, f"never: {expression}"
            time.sleep(0.02)

    def click(self, selector):
        """In the middle of the element, which is what a person would hit there."""
        place = self.evaluate(f"""(() => {{
          const element = document.querySelector({json.dumps(selector)});
          element.scrollIntoView({{block: "center", behavior: "instant"}});
          const box = element.getBoundingClientRect();
          const x = box.x + box.width / 2, y = box.y + box.height / 2;
          return element.contains(document.elementFromPoint(x, y)) ? [x, y] : null;
        }})()""")
        assert place, f"{selector} is covered or outside"
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def key(self, name, *modifiers):
        """A key as KeyboardEvent.key names it: "Enter", "Tab", "ArrowDown", "a"."""
        bits = sum({"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}[m] for m in modifiers)
        codes = {"Enter": 13, "Tab": 9, "Backspace": 8, "Escape": 27, " ": 32, "ArrowUp": 38, "ArrowDown": 40}
        event = {"key": name, "code": {" ": "Space"}.get(name, name if len(name) > 1 else "Key" + name.upper()), "modifiers": bits,
                 "windowsVirtualKeyCode": codes.get(name, ord(name[0].upper()))}
        if not bits and name in ("Enter", " "):
            event["text"] = "\r" if name == "Enter" else " "
        if name == "a" and bits == 2:
            event["commands"] = ["selectAll"]
        self.call("Input.dispatchKeyEvent", type="keyDown", **event)
        event.pop("text", None)
        event.pop("commands", None)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def colours(self, scheme):
        """scheme: "light" or "dark"."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True, fromSurface=True)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
