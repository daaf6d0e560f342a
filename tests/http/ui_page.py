#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page at / in headless Chromium: clicks and keys, what it shows, what it sends, how it looks.

usage: ui_page.py --server FILE --fake FILE --lib FILE --model DIR [--screenshots DIR]

Without Chromium: exit status 77. --screenshots keeps pictures of it, to be looked at.
"""
import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile

import devtools
from worker import Worker, clean_environment, free_port, get, post

failures = []
checks = 0

# Contrast of every piece of text with what is behind it, by the formula of WCAG 2; the worst ones.
CONTRAST = """(() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const channel = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !element.checkVisibility() || ["SCRIPT", "STYLE"].includes(element.tagName)) continue;
    let behind = element;
    while (behind && (parse(getComputedStyle(behind).backgroundColor)[3] ?? 1) === 0) behind = behind.parentElement;
    const [a, b] = [getComputedStyle(element).color, getComputedStyle(behind ?? document.documentElement).backgroundColor]
      .map(parse).map(luminance);
    found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), walk.currentNode.data.trim().slice(0, 40)]);
  }
  return found.sort(([a], [b]) => a - b).slice(0, 3);
})()"""


def check(name, condition, *detail):
    global checks
    checks += 1
    if not condition:
        failures.append(name)
        print("FAILED", name, *detail, file=sys.stderr)


def url(worker):
    return f"http://127.0.0.1:{worker.port}/"


def text(browser, identity):
    return browser.evaluate(f"document.getElementById('{identity}').textContent")


def decided(browser):
    browser.until("!document.getElementById('details').hidden || document.getElementById('error').textContent !== ''")


def ready(browser):
    browser.until("document.getElementById('health').dataset.status === 'ready'")


def request_of(browser):
    """The request of the page's curl command, as JSON text."""
    return text(browser, "curl").split("<<'JSON'\n", 1)[1].rsplit("\nJSON\n", 1)[0]


def gallery(browser, worker):
    browser.open(url(worker))
    ready(browser)
    examples = browser.evaluate("document.querySelectorAll('#examples button').length")
    check("examples", examples >= 6, examples)
    for i in range(examples):
        name = f"example {i}"
        browser.click(f"#examples li:nth-child({i + 1}) button")
        check(f"{name} is marked", browser.evaluate(
            f"[...document.querySelectorAll('#examples button')].map(b => b.ariaPressed === 'true').indexOf(true)") == i)
        if i % 2:
            browser.click("#send")
        else:
            browser.key("Enter", "Control")
        decided(browser)
        request = request_of(browser)
        answer = worker.exchange(post(request.encode())).json()
        raw = json.loads(text(browser, "raw"))
        check(f"{name}: the answer is the worker's", raw == answer, raw, answer, text(browser, "error"))
        result = answer["answers"]["next"]
        options = json.loads(request)["questions"]["next"]["criteria"]
        check(f"{name}: the chosen one", text(browser, "answer").startswith(result["choice"] + ", "), text(browser, "answer"))
        bars = browser.evaluate("""[...document.querySelectorAll('#bars tr')].map((row) => [row.querySelector('th bdi').textContent,
          row.querySelector('small').textContent, row.className, row.querySelector('td').textContent,
          row.querySelector('i').getBoundingClientRect().width / row.querySelector('.track').getBoundingClientRect().width])""")
        shares = {key.removesuffix(" ✓"): share for key, _, _, _, share in bars}
        check(f"{name}: a bar each", shares.keys() == options.keys(), bars)
        # At least 2 px of some 200 to 600, so that every bar can be seen.
        check(f"{name}: as long as probable", all(abs(shares[key] - p) < 0.02 for key, p in result["probabilities"].items()), bars)
        order = [result["probabilities"][bar[0].removesuffix(" ✓")] for bar in bars]
        check(f"{name}: most probable first", order == sorted(order, reverse=True) and bars[0][2] == "best"
              and [bar[0].endswith("✓") for bar in bars] == [True] + [False] * (len(bars) - 1), bars)
        check(f"{name}: labels", all(label == (options[key.removesuffix(" ✓")] or "") for key, label, *_ in bars), bars)
        facts = text(browser, "facts")
        check(f"{name}: facts", str(answer["usage"]["input_tokens"]) in facts and f"{result['confidence']:.4f}" in facts
              and all(word in facts for word in ("Tokenised in", "Waited", "Forward pass", "Round trip")), facts)
        for program, source in ((["sh"], "curl"), ([sys.executable, "-"], "python")):
            ran = subprocess.run(program, input=text(browser, source).encode(), capture_output=True, timeout=60, check=False,
                                 env={**os.environ, "no_proxy": "127.0.0.1"})
            got = json.loads(ran.stdout or "null")
            check(f"{name}: {source} gives the same", ran.returncode == 0 and got in (answer, result), ran)
    browser.click("#given")
    keys = browser.evaluate("[...document.querySelectorAll('#bars th > bdi')].map(b => b.textContent.replace(' ✓', ''))")
    check("in the order given", keys == list(options), keys)
    origins = {event["params"]["request"]["url"] for event in browser.events if event["method"] == "Network.requestWillBeSent"}
    check("nothing is asked of anyone else", all(o.startswith((url(worker), "data:", "about:")) for o in origins), origins)
    unwanted = [event for event in browser.events if event["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")]
    check("no word on the console", not unwanted, unwanted)


def by_keyboard(browser, worker):
    """A request of one's own without a mouse, from the first Tab on."""
    browser.open(url(worker))
    ready(browser)
    seen = []
    focused = "(() => { const e = document.activeElement; return [e.id, e.tagName, e.getAttribute('aria-label') ?? e.textContent.trim()]; })()"

    def tab_to(identity):
        for _ in range(80):
            browser.key("Tab")
            seen.append(browser.evaluate(focused))
            if seen[-1][0] == identity or (seen[-1][2] or "").startswith(identity):
                return
        check(f"Tab reaches {identity}", False, seen)

    tab_to("state")
    browser.key("a", "Control")
    browser.type('Menu: "Größe", <img src=x onerror="document.title=1"> \U0001f4be')
    tab_to("instructions")
    browser.key("a", "Control")
    browser.type("Wähle größer.")
    tab_to("Key of option A")
    browser.key("a", "Control")
    browser.type("größer")
    tab_to("Label of option A")
    browser.key("a", "Control")
    browser.type("<b>Click</b> größer & more")
    browser.key("ArrowDown", "Alt")
    check("Alt and an arrow move the option, and the focus goes along",
          browser.evaluate(focused)[2] == "Label of option B", browser.evaluate(focused))
    tab_to("add")
    browser.key("Enter")
    check("a new option has the focus", browser.evaluate(focused)[2].startswith("Key of option "), browser.evaluate(focused))
    browser.type("10")
    tab_to("send")
    browser.key("Enter")
    decided(browser)
    request = json.loads(request_of(browser))
    check("what was typed is sent", request["state"].startswith('Menu: "Größe", <img') and request["instructions"
          if "instructions" in request else "questions"] and list(request["questions"]["next"]["criteria"].items())[1]
          == ("größer", "<b>Click</b> größer & more") and request["questions"]["next"]["criteria"]["10"] is None, request)
    check("a key of digits keeps its place", list(request["questions"]["next"]["criteria"])[-1] == "10", request)
    check("the answer is there", not browser.evaluate("document.getElementById('details').hidden"), text(browser, "error"))
    check("markup stays text", browser.evaluate("document.title === 'cua-server: try a decision' && !document.querySelector('#bars img, #bars b')"))
    # A twin key is refused by the worker, in its own words.
    tab_to("add")
    browser.key(" ")
    browser.type("größer")
    browser.key("Enter", "Control")
    decided(browser)
    response = worker.exchange(post(request_of(browser).encode()))
    check("refused", response.status in (400, 422) and text(browser, "error") == f"{response.status}: {response.json()['detail']}",
          text(browser, "error"), response)
    tab_to("Remove: option D")
    browser.key("Enter")
    browser.key("Enter", "Control")
    decided(browser)
    check("and mended", text(browser, "error") == "", text(browser, "error"))
    # State as JSON that is none.
    browser.click("#is-json")
    browser.click("#send")
    decided(browser)
    check("no JSON", text(browser, "error").startswith("The state is not JSON"), text(browser, "error"))
    browser.click("#is-json")
    # A list of 30 is more than a question may have.
    browser.click("#options ~ details summary")
    browser.click("#list")
    browser.type("\n".join(f"- Click item {i}" for i in range(30)))
    browser.click("#list-replace")
    check("30 options", browser.evaluate("document.querySelectorAll('#options li').length") == 30)
    browser.click("#send")
    decided(browser)
    check("30 are refused", text(browser, "error").startswith(("400: ", "422: ")), text(browser, "error"))
    check("no more can be added", browser.evaluate("document.getElementById('add').disabled"))


def readable(browser, worker, screenshots):
    """Names for a screen reader, no sideways scrolling, contrast, in both colour schemes."""
    browser.open(url(worker))
    ready(browser)
    browser.click("#send")
    decided(browser)
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    roles = [node["role"]["value"] for node in nodes if not node["ignored"]]
    nameless = [node["role"]["value"] for node in nodes if not node["ignored"]
                and any(p["name"] == "focusable" and p["value"]["value"] for p in node.get("properties", []))
                and node["role"]["value"] != "RootWebArea" and not node.get("name", {}).get("value")]
    check("everything that takes the focus has a name", not nameless, nameless)
    check("landmarks, headings and messages", all(role in roles for role in ("main", "banner", "contentinfo", "form", "region",
          "heading", "alert", "status", "table")), sorted(set(roles)))
    check("language and title", browser.evaluate("document.documentElement.lang === 'en' && document.title.length > 5"))
    for width, height in ((400, 800), (820, 1180), (1280, 800), (1920, 1080)):
        browser.size(width, height)
        wide = browser.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        check(f"no sideways scrolling at {width}", wide[0] <= wide[1], wide)
        small = browser.evaluate("""[...document.querySelectorAll('button, input, select, textarea, summary')].filter((e) => e.checkVisibility())
          .map((e) => [e.id || e.textContent, e.getBoundingClientRect()]).filter(([, b]) => Math.min(b.width, b.height) < 18).map(([n]) => n)""")
        check(f"nothing too small to hit at {width}", not small, small)
        for scheme in ("light", "dark"):
            browser.colours(scheme)
            worst = browser.evaluate(CONTRAST)
            check(f"contrast at {width}, {scheme}", worst[0][0] >= 4.5, worst)
            if screenshots:
                browser.screenshot(os.path.join(screenshots, f"page-{width}-{scheme}.png"))
    browser.colours("light")
    browser.size(1280, 800)


def keys_and_ends(browser, server, fake):
    """A worker that wants a key, one that refuses for a while, one that is gone."""
    with Worker(server, fake, "x", env={"CUA_S1_API_KEY": "a-key-of-mine"}) as worker:
        browser.open(url(worker))
        ready(browser)
        browser.until("document.getElementById('connection').open")  # /v1/models said 401
        browser.click("#send")
        decided(browser)
        check("401 in words", text(browser, "error").startswith("401: "), text(browser, "error"))
        browser.click("#key")
        browser.type("a-key-of-mine")
        browser.key("Tab")
        browser.click("#send")
        decided(browser)
        check("with the key", text(browser, "error") == "" and text(browser, "answer") != "", text(browser, "error"))
        check("the key is not written out", all("a-key-of-mine" not in text(browser, i) and "CUA_S1_API_KEY" in text(browser, i)
                                                for i in ("curl", "python")))
        worker.stop(signal.SIGTERM)
        browser.click("#send")
        decided(browser)
        check("a worker that is gone", text(browser, "error").startswith("The worker cannot be reached"), text(browser, "error"))
        browser.until("document.getElementById('health').dataset.status === 'unreachable'")
    while_loading(browser, server, fake)


def while_loading(browser, server, fake):
    """Loading until a first decision is made, which the tests' library holds."""
    port = free_port()
    with tempfile.NamedTemporaryFile() as hold:
        process = subprocess.Popen([server, "--cuda-lib", fake, "--model", "x", "--port", str(port)],
                                   env={**clean_environment(), "CUA_FAKE_HOLD": hold.name},
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    assert process.poll() is None, "the worker ended"
            browser.open(f"http://127.0.0.1:{port}/")
            browser.until("document.getElementById('health').dataset.status === 'loading'")
            browser.click("#send")
            decided(browser)
            check("503 in words", text(browser, "error").startswith("503: "), text(browser, "error"))
            hold.close()
            ready(browser)  # by itself
            browser.click("#send")
            decided(browser)
            check("and then an answer", text(browser, "error") == "", text(browser, "error"))
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def main():
    parser = argparse.ArgumentParser()
    for name in ("server", "fake", "lib", "model"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--screenshots")
    options = parser.parse_args()
    program = devtools.chromium()
    if program is None:
        print("skipped: there is no Chromium")
        return 77
    if options.screenshots:
        os.makedirs(options.screenshots, exist_ok=True)
    server, fake, lib = (os.path.abspath(path) for path in (options.server, options.fake, options.lib))
    with devtools.Browser(program) as browser:
        with Worker(server, lib, options.model, "--device", "cpu") as worker:
            while worker.exchange(get("/readyz")).status != 200:
                pass
            gallery(browser, worker)
            by_keyboard(browser, worker)
            readable(browser, worker, options.screenshots)
        keys_and_ends(browser, server, fake)
    print(f"{checks - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
