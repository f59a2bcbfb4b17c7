#!/usr/bin/env python3
"""How much a long prompt delays the streams of a server that are running when it arrives.

    pesc serve MODEL --context 16384 --max-streams 64
    python3 bench/long_prompt.py http://127.0.0.1:8080 --streams 8 --prompt-tokens 8000

The median time between two tokens of a stream in the last second before the prompt arrives is a step: the answers grow, and with them the
time of a step. Printed is the time between two tokens while the prompt is read, from its request to its first token, in steps: 1 is no delay.
Any server with OpenAI's /v1/completions will do; prompts are token ids. It must have room for all tokens at once, else the prompt waits.
"""
import argparse
import json
import random
import selectors
import socket
import sys
import time
import urllib.parse
import urllib.request


def request(where, body):
    data = json.dumps({**body, "stream": True, "ignore_eos": True}).encode()
    return (f"POST {where.path.rstrip('/')}/v1/completions HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n").encode() + data


class Stream:
    """A completion that is being generated; `times` has the moment of each event."""

    def __init__(self, where, data):
        self.times, self.rest, self.done = [], b"", False
        self.socket = socket.create_connection((where.hostname, where.port or 80))
        self.socket.sendall(data)
        self.socket.setblocking(False)

    def take(self):
        """Reads what has come."""
        got = self.socket.recv(1 << 16)
        now = time.perf_counter()
        if not got or b" 400 " in got[:20]:
            sys.exit(f"a stream has ended: {got.decode(errors='replace')}")
        *whole, self.rest = (self.rest + got).split(b"\n\n")
        for event in whole:
            self.done |= b"data: [DONE]" in event
            if b'"text"' in event:
                self.times.append(now)


def wait(selector, until):
    while not until():
        for key, _ in selector.select(timeout=0.2):
            key.data.take()


def gaps(streams, begin, end):
    """Times between two tokens of a stream of which the later came in that time, in order of size."""
    return sorted(b - a for s in streams for a, b in zip(s.times, s.times[1:]) if begin < b <= end)


def quantile(values, q):
    return values[min(len(values) - 1, int(q * len(values)))]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("url")
    p.add_argument("--streams", type=int, default=8)
    p.add_argument("--prompt-tokens", type=int, default=8000)
    p.add_argument("--seconds", type=float, default=2, help="that pass before the prompt arrives")
    p.add_argument("--temperature", type=float, default=0, help="of the streams")
    p.add_argument("--most", type=float, help="exit with 1 if the p99 is above this many steps")
    a = p.parse_args()
    (model, *_) = json.load(urllib.request.urlopen(a.url + "/v1/models"))["data"]
    vocab = model.get("meta", {}).get("n_vocab", 1000)
    body = lambda n, most: {"model": model["id"], "prompt": [random.randrange(3, vocab) for _ in range(n)], "max_tokens": most, "temperature": a.temperature}
    selector = selectors.DefaultSelector()
    where = urllib.parse.urlsplit(a.url)
    prompt = request(where, body(a.prompt_tokens, 1))  # now: while it is made, no event is read
    streams = [Stream(where, request(where, body(16, a.prompt_tokens))) for _ in range(a.streams)]
    for s in streams:
        selector.register(s.socket, selectors.EVENT_READ, s)
    wait(selector, lambda: all(len(s.times) > 4 for s in streams))
    begin = time.perf_counter()
    wait(selector, lambda: time.perf_counter() > begin + a.seconds)
    asked = time.perf_counter()
    long = Stream(where, prompt)
    selector.register(long.socket, selectors.EVENT_READ, long)
    wait(selector, lambda: long.times)
    before, during = gaps(streams, max(begin, asked - 1), asked), gaps(streams, asked, long.times[0])
    step, p99 = quantile(before, 0.5), quantile(during, 0.99)
    print(json.dumps({"streams": a.streams, "prompt_tokens": a.prompt_tokens, "step_ms": round(1000 * step, 2),
                      "before": {f"p{q}": round(quantile(before, q / 100) / step, 2) for q in (90, 99)} | {"max": round(before[-1] / step, 2)},
                      "during": {f"p{q}": round(quantile(during, q / 100) / step, 2) for q in (50, 90, 99)} | {"max": round(during[-1] / step, 2)},
                      "gaps": len(during), "first_token_s": round(long.times[0] - asked, 2)}))
    return a.most is not None and p99 > a.most


if __name__ == "__main__":
    sys.exit(main())
