#!/usr/bin/env python3
"""soak.py MODEL MINUTES [STREAMS]: 64 clients at once for a long time; 5 % of their requests are left before the answer, 1 % are malformed.

Prints memory and descriptors of the server once a minute. Answers must be those of a quiet server, /health must stay quick, and from the
first minute to the end memory may grow by 1 % (at least 1 MiB), descriptors not at all; afterwards no slot and no page is in use."""
import multiprocessing
import sys
import time

from running import Server
from storm import Client, request, state, texts

ABORTS, MALFORMED = 0.05, 0.01


class Caller(Client):
    counts = None  # by kind, of all callers

    def run(self):
        try:
            while time.monotonic() < self.end:
                r = self.random.random()
                kind = self.leave if r < ABORTS else self.garbage if r < ABORTS + MALFORMED else self.good
                kind()
                self.counts[kind.__name__] += 1
        except Exception as e:  # noqa: BLE001 - reported by the main thread
            self.error = repr(e)


def watch_health(server, end, times):
    """Sends how long /health took, ten times a second until `end`, ascending. A process of its own: the 64 clients share one lock."""
    took = []
    while time.monotonic() < end:
        began = time.monotonic()
        assert server.ask("GET", "/health")[0] == 200
        took.append(time.monotonic() - began)
        time.sleep(0.1)
    times.send(sorted(took))


def time_to_free(s):
    """Seconds from the moment that a client leaves to the moment that its pages are free, on an otherwise idle server."""
    took = []
    for _ in range(10):
        v = Caller(s, 0, 0, None)
        c = v.connect()
        c.sendall(request(7, True))
        c.recv(500)
        began = time.monotonic()
        c.close()
        s.wait_for("pesc_kv_pages_used", 0)
        took.append(time.monotonic() - began)
    return sorted(took)


def main():
    model, minutes = sys.argv[1], float(sys.argv[2])
    n = int(sys.argv[3]) if len(sys.argv) > 3 else 64
    Caller.counts = dict.fromkeys(("good", "leave", "garbage"), 0)
    with Server(model, "--max-streams", str(n)) as s:
        expected = [texts(s.raw(request(i, False))) for i in range(8)]
        begin = time.monotonic()
        end = begin + 60 * minutes
        health, times = multiprocessing.Pipe(duplex=False)
        multiprocessing.Process(target=watch_health, args=(s, end, times), daemon=True).start()
        callers = [Caller(s, i, end, expected) for i in range(n)]
        for v in callers:
            v.start()
        first = None
        while time.monotonic() < end:
            time.sleep(max(0.0, min(60, end - time.monotonic())))
            memory, descriptors = state(s)
            first = first or (memory, descriptors)
            print(f"{(time.monotonic() - begin) / 60:5.1f} min: {sum(Caller.counts.values())} requests, {memory} KiB, {descriptors} descriptors", flush=True)
            failed = [v.error for v in callers if v.error]
            assert not failed, failed
        for t in callers:
            t.join(60)
        for name in ("pesc_requests_running", "pesc_requests_waiting", "pesc_kv_pages_used"):
            s.wait_for(name, 0)
        free = time_to_free(s)
        time.sleep(16)  # connections that were left idle are closed
        memory, descriptors = state(s)
        took = health.recv()
        print(f"{Caller.counts['good']} answers, {Caller.counts['leave']} left, {Caller.counts['garbage']} malformed, {sum(v.refused for v in callers)} refused")
        print(f"memory {first[0]} to {memory} KiB, descriptors {first[1]} under load, {descriptors} at the end")
        print(f"/health: p50 {1000 * took[len(took) // 2]:.1f} ms, p99 {1000 * took[len(took) * 99 // 100]:.1f} ms; "
              f"pages free after {1000 * free[len(free) // 2]:.1f} ms, at most {1000 * free[-1]:.1f} ms")
        assert memory <= first[0] + max(first[0] // 100, 1024) and descriptors <= 16, "memory or descriptors grow"


if __name__ == "__main__":
    main()
