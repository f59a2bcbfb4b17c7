#!/usr/bin/env python3
"""storm.py MODEL SECONDS [CLIENTS]: many clients at once, of which some leave at any byte, some send garbage, some send or read slowly.
Answers that are read to their end must be those of a quiet server; afterwards no slot, page, connection or descriptor is left over and
memory has not grown."""
import json
import os
import random
import socket
import sys
import threading
import time

from hostile import BODIES, HEADS, LENGTHS, PATHS
from running import Server

PROMPTS = [f"Once upon a time number {i} " * (1 + i % 4) for i in range(8)]
SMALL = [row for row in HEADS + LENGTHS + PATHS + BODIES if len(row[1]) < 3000]


def request(i, stream):
    data = json.dumps({"prompt": PROMPTS[i], "max_tokens": 10 + i, "seed": i, "stream": stream, "n": 1 + i % 2}).encode()
    return b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data


def texts(answer):
    """Of a whole answer or of a stream: the choices' texts."""
    body = answer.partition(b"\r\n\r\n")[2]
    if b"text/event-stream" not in answer:
        return [c["text"] for c in json.loads(body)["choices"]]
    out = {}
    for line in body.replace(b"\r\n", b"\n").split(b"\n"):
        if line.startswith(b"data: {"):
            (c,) = json.loads(line[6:])["choices"]
            out[c["index"]] = out.get(c["index"], "") + c["text"]
    return [out[i] for i in sorted(out)]


class Client(threading.Thread):
    def __init__(self, server, number, end, expected):
        super().__init__(daemon=True)
        self.server, self.end, self.expected = server, end, expected
        self.random = random.Random(number)
        self.done = self.refused = 0
        self.error = None

    def run(self):
        try:
            while time.monotonic() < self.end:
                r = self.random.random()
                (self.good if r < 0.8 else self.leave if r < 0.93 else self.dribble if r < 0.95 else self.garbage)()
        except Exception as e:  # noqa: BLE001 - reported by the main thread
            self.error = repr(e)

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.server.port), timeout=60)

    def good(self):
        i, stream = self.random.randrange(8), self.random.random() < 0.5
        with self.connect() as s:
            s.sendall(request(i, stream))
            got = b""
            while not (got.endswith(b"\r\n0\r\n\r\n") or (b"Content-Length" in got and not stream and got.endswith(b"}}}"))):
                part = s.recv(65536)
                if not part:
                    break
                got += part
                if b" 429 " in got[:20] or b" 503 " in got[:20]:
                    self.refused += 1
                    return
        if texts(got) != self.expected[i]:
            raise AssertionError(f"another text: {got!r}")
        self.done += 1

    def leave(self):
        data = request(self.random.randrange(8), self.random.random() < 0.7)
        with self.connect() as s:
            if self.random.random() < 0.3:
                data = data[:self.random.randrange(len(data))]
            s.sendall(data)
            if self.random.random() < 0.6:
                s.recv(self.random.randrange(1, 400))

    def dribble(self):
        with self.connect() as s:
            for byte in request(0, True)[:self.random.randrange(60)]:
                s.sendall(bytes([byte]))
                time.sleep(0.002)

    def garbage(self):
        what, data, status, _ = self.random.choice(SMALL)
        answer = self.server.raw(data)
        if not answer.startswith(b"HTTP/1.1 ") or (status >= 400 and b" %d " % status not in answer[:14] and b" 503 " not in answer[:14] and b" 429 " not in answer[:14]):
            raise AssertionError(f"{what}: {answer[:100]!r}")


def state(server):
    pid = server.process.pid
    rss = next(int(line.split()[1]) for line in open(f"/proc/{pid}/status") if line.startswith("VmRSS"))
    return rss, len(os.listdir(f"/proc/{pid}/fd"))


def main():
    model, seconds = sys.argv[1], float(sys.argv[2])
    n = int(sys.argv[3]) if len(sys.argv) > 3 else 48
    with Server(model, "--max-streams", "16") as s:
        expected = [texts(s.raw(request(i, False))) for i in range(8)]
        memory = descriptors = None
        begin = time.monotonic()
        clients = [Client(s, i, begin + seconds, expected) for i in range(n)]
        for c in clients:
            c.start()
        time.sleep(seconds / 2)
        memory, _ = state(s)
        for c in clients:
            c.join(60)
            assert c.error is None, c.error
        s.wait_for("pesc_requests_running", 0)
        s.wait_for("pesc_requests_waiting", 0)
        s.wait_for("pesc_kv_pages_used", 0)
        assert [texts(s.raw(request(i, True))) for i in range(8)] == expected
        end = time.monotonic() + 15
        while state(s)[1] > 16 and time.monotonic() < end:
            time.sleep(0.1)
        after, descriptors = state(s)
        print(f"{sum(c.done for c in clients)} answers, {sum(c.refused for c in clients)} refused, {int(s.metric('pesc_disconnects_total'))} left; "
              f"memory {memory} to {after} KiB, {descriptors} descriptors")
        assert sum(c.done for c in clients) > n and descriptors <= 16 and after < 1.1 * memory + 4096


if __name__ == "__main__":
    main()
