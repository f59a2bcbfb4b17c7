"""A headless Chromium that tests drive over the DevTools protocol (a pipe, so no package is needed)."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

PROGRAM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars", "--mute-audio",
         "--disable-background-networking", "--remote-debugging-pipe"]


class Browser:
    def __init__(self, url, width=1280, height=860):
        self.folder = tempfile.TemporaryDirectory()
        to_child, self.writer = os.pipe()
        self.reader, from_child = os.pipe()
        command = f'exec "$0" "$@" 3<&{to_child} 4>&{from_child}'
        self.process = subprocess.Popen(["bash", "-c", command, PROGRAM, *FLAGS, f"--user-data-dir={self.folder.name}", "about:blank"],
                                        pass_fds=(to_child, from_child), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_child)
        os.close(from_child)
        self.number, self.buffer, self.session = 0, b"", None
        self.complaints = []  # exceptions, errors and violations of the page's policy
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")
        self.resize(width, height)
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.writer, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]
            self.notice(answer)

    def read(self):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.reader], [], [], 60)
            part = os.read(self.reader, 1 << 20) if ready else b""
            assert part, "Chromium does not answer"
            self.buffer += part
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def notice(self, event):
        p = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(p["exceptionDetails"].get("exception", {}).get("description") or p["exceptionDetails"]["text"])
        elif event.get("method") == "Log.entryAdded" and p["entry"]["level"] == "error":
            self.complaints.append(f'{p["entry"]["text"]} {p["entry"].get("url", "")}')

    def run(self, script):
        """The value of an expression in the page, awaited."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, condition, seconds=60):
        end = time.monotonic() + seconds
        while not self.run(f"!!({condition})"):
            assert time.monotonic() < end, f"still not: {condition}; {self.complaints}"
            time.sleep(0.05)

    def click(self, selector):
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def key(self, name, text=None):
        """A key of the keyboard, pressed and released where the focus is."""
        common = {"key": name, "code": name, **({"text": text} if text else {})}
        codes = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowRight": 39, "ArrowLeft": 37, "ArrowDown": 40, "ArrowUp": 38}
        self.call("Input.dispatchKeyEvent", type="keyDown", windowsVirtualKeyCode=codes.get(name, 0), **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", windowsVirtualKeyCode=codes.get(name, 0), key=name, code=name)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def hover(self, selector):
        x, y = self.run(f"(() => {{ const r = document.querySelector({json.dumps(selector)}).getClientRects()[0];"
                        f" return [r.x + r.width / 2, r.y + r.height / 2]; }})()")
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def resize(self, width, height, mobile=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def theme(self, name):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def reload(self):
        self.call("Page.reload")
        time.sleep(0.3)
        self.wait("document.readyState === 'complete'")

    def screenshot(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(20)
        os.close(self.writer)
        os.close(self.reader)
        for _ in range(20):  # its helpers may still write into the folder
            try:
                self.folder.cleanup()
                return
            except OSError:
                time.sleep(0.1)
