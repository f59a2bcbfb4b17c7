"""A server for the tests: started on a free port, asked over http.client or raw sockets, stopped by SIGTERM."""
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time


def until(holds, otherwise, seconds=5):
    """Waits until `holds()`; fails with `otherwise()` when it does not in time."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, otherwise()
        time.sleep(0.01)


class Server:
    def __init__(self, model, *options, log=subprocess.DEVNULL, command="serve"):
        self.process = subprocess.Popen(
            [os.environ["PESC"], command, model, "--port", "0", *options],
            stdout=log, stderr=subprocess.PIPE, text=True,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))  # which nohup ignores
        said, found = "", None
        while not found and (line := self.process.stderr.readline()):  # notices may come first
            said += line
            found = re.search(r"listening on http://\S+:(\d+)", line)
        if not found:
            raise SystemExit(f"the server did not start: {said}")
        self.port = int(found[1])

    def ask(self, method, path, body=None, headers=None):
        """(status, headers, body) of one request; a body that is not bytes is sent as JSON."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if body is not None else {}
        c.request(method, path, body, {**sent, **(headers or {})})
        r = c.getresponse()
        text = r.read()
        c.close()
        return r.status, dict((k.lower(), v) for k, v in r.getheaders()), text

    def json(self, path, body=None, status=200):
        got, _, text = self.ask("GET" if body is None else "POST", path, body)
        assert got == status, (path, body, got, text)
        return json.loads(text)

    def events(self, path, body):
        """The events of a stream, without the last one, which must be [DONE]."""
        status, headers, text = self.ask("POST", path, {**body, "stream": True})
        assert status == 200 and headers["content-type"].startswith("text/event-stream"), (status, text)
        blocks = [b for b in text.decode().split("\n\n") if b and not b.startswith(":")]
        assert all(b.startswith("data: ") for b in blocks), text
        assert blocks[-1] == "data: [DONE]", text
        return [json.loads(b[6:]) for b in blocks[:-1]]

    def raw(self, *requests, wait=5):
        """What comes back for the last of these bytes until the server closes, or the answer is complete; those before are answered first."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=wait) as s:
            for request in requests:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    s.sendall(request)
                got = b""
                with contextlib.suppress(ConnectionResetError, socket.timeout):
                    while not complete(got):
                        part = s.recv(65536)
                        if not part:
                            break
                        got += part
            return got

    def metrics(self, *names):
        """The figures of these names, of the same moment."""
        _, _, text = self.ask("GET", "/metrics")
        return [float(re.search(rf"^{re.escape(name)} (\S+)$", text.decode(), re.M)[1]) for name in names]

    def metric(self, name):
        return self.metrics(name)[0]

    def wait_for(self, name, value, seconds=5):
        until(lambda: self.metric(name) == value, lambda: f"{name} is {self.metric(name)}, expected {value}", seconds)

    def cpu_seconds(self):
        """What the process has used so far."""
        with open(f"/proc/{self.process.pid}/stat") as f:
            return sum(int(n) for n in f.read().rsplit(")")[1].split()[11:13]) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        """Exit status after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=60)
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            assert self.stop() == 0, self.process.returncode


def complete(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
    if b" 100 Continue" in head.split(b"\r\n")[0]:
        return complete(body) if body else False
    return bool(length) and len(body) >= int(length[1])
