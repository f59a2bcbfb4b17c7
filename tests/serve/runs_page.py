#!/usr/bin/env python3
"""runs_page.py DATA [FOLDER]: the page of `pesc runs` in a headless Chromium, while a run trains and afterwards. DATA: the folder share/. With
FOLDER the pictures are kept there."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from browser import Browser
from running import Server

PESC = os.environ["PESC"]


def pesc(*words, **options):
    return subprocess.run([PESC, *map(str, words)], check=True, capture_output=True, text=True, **options)


def training(share, work, name, *more):
    return [PESC, "train", str(work / "sparse"), "--data", str(share / "train.jsonl"), "--eval-data", str(share / "test.jsonl"), "--eval-every", "10", "--template", "camelidae", "--lora-r", "4",
            "--batch", "4", "--seq-len", "64", "--log-every", "1", "-o", str(work / name), "-q", *more]


def text(b, selector):
    return b.run(f"document.querySelector({json.dumps(selector)})?.textContent ?? ''")


def painted(b, selector):
    """Different colours on a canvas: more than one where something is drawn."""
    return b.run(f"""(() => {{ const c = document.querySelector({json.dumps(selector)}), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        const seen = new Set(); for (let i = 0; i < d.length; i += 4) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]); return seen.size; }})()""")


def keep(b, name):
    if len(sys.argv) > 2:
        pathlib.Path(sys.argv[2]).mkdir(parents=True, exist_ok=True)
        b.screenshot(f"{sys.argv[2]}/{name}.png")


def follows_a_run(b, share, work):
    """A run appears by itself, its steps come while it trains, and it ends."""
    run = subprocess.Popen(training(share, work, "live", "--steps", "100000"))
    try:
        b.wait("document.querySelector('#list .state.running')")
        b.wait("/step \\d+/.test(document.querySelector('#list .about')?.textContent)")
        first = b.run("Number(/step (\\d+)/.exec(document.querySelector('#list .about').textContent)[1])")
        b.wait(f"Number(/step (\\d+)/.exec(document.querySelector('#list .about').textContent)[1]) > {first} + 5")
        b.wait("!document.querySelector('#experts-of').hidden")
        assert painted(b, ".chart canvas") > 3 and painted(b, "#load") > 3 and painted(b, "#over") > 3
        keep(b, "live-light")
        b.theme("dark")
        b.run("new Promise((r) => setTimeout(r, 300))")
        keep(b, "live-dark")
        b.theme("light")
    finally:
        (work / "live/STOP").touch()
        run.wait(60)
    b.wait("!document.querySelector('#list .state.running')")


def compares_runs(b, share, work):
    """Two runs on one axis, with their settings, benchmark results and samples; hostile texts stay texts."""
    subprocess.run(training(share, work, "wild", "--steps", "20", "--lr", "2e-3"), check=True)
    copy = work / "copies/<b>copied"
    copy.mkdir(parents=True)
    for name in ("metrics.jsonl", "eval.jsonl", "routing.jsonl", "run.yaml"):
        shutil.copy(work / "wild" / name, copy / name)
    (copy / "eval").mkdir()
    (copy / "eval/results.json").write_text(json.dumps({"results": {"arc<script>": {"acc,none": 0.5, "acc_stderr,none": 0.1}}}))
    (copy / "eval/samples_arc.jsonl").write_text(json.dumps({"doc": "<img src=x onerror=alert(1)>"}) + "\n")
    b.wait("document.querySelectorAll('#list li').length === 3")
    for box in range(3):
        b.run(f"(() => {{ const e = document.querySelectorAll('#list input')[{box}]; if (!e.checked) e.click(); }})()")
    b.wait("document.querySelector('#results table')?.textContent.includes('arc<script> acc')")
    assert "0.5" in text(b, "#results") and "stderr" not in text(b, "#results")
    assert "samples_arc.jsonl" in text(b, "#samples") and "<img src=x" in text(b, "#samples pre")
    keys = "[...document.querySelectorAll('#settings-table tbody th')].map((e) => e.textContent)"
    b.wait(f"{keys}.includes('lr') && !{keys}.includes('batch')")
    b.click("#differ")
    b.wait(f"{keys}.includes('batch')")
    b.wait("document.querySelectorAll('.chart p')[0].textContent.split(' · ').length >= 3")
    b.run("(() => { const s = document.querySelector('#smooth'); s.value = 0.9; s.dispatchEvent(new Event('input')); })()")
    for axis in ("tokens", "epoch", "step"):
        b.run(f"(() => {{ const s = document.querySelector('#axis'); s.value = '{axis}'; s.dispatchEvent(new Event('input')); }})()")
        b.run("new Promise((r) => setTimeout(r, 100))")
        assert painted(b, ".chart canvas") > 3, axis
    b.run("document.querySelector('.chart canvas').focus()")
    b.key("ArrowRight")
    b.wait("document.querySelector('.chart p').textContent.includes(' at ')")
    b.run("document.querySelector('#load').focus()")
    b.key("ArrowDown")
    b.wait("document.querySelector('#load-text').textContent.startsWith('Sparse layer 1, expert 0')")
    # looks that overlap while a log is read for the first time add no line twice
    b.reload()
    b.wait("document.querySelectorAll('#list li').length === 3")
    b.run("for (let i = 0; i < 5; i++) document.querySelectorAll('#list input')[1].click()")
    b.run("(() => { const live = document.querySelectorAll('#list input')[2]; if (live.checked) live.click(); })()")
    b.run("new Promise((r) => setTimeout(r, 3000))")
    for run in b.run("[...document.querySelectorAll('#routed option')].map((o) => o.value)"):
        b.run(f"(() => {{ const s = document.querySelector('#routed'); s.value = '{run}'; s.dispatchEvent(new Event('input')); }})()")
        assert b.run("document.querySelector('#moment').max") == "19", b.run("document.querySelector('#moment').max")
    assert b.run("document.querySelectorAll('img, script:not([src])').length") == 0
    keep(b, "finished-light")


def shows_preferences(b, share, work):
    """A run on preferences has charts of its measures, which no other run has."""
    shown = "[...document.querySelectorAll('.chart:not([hidden]) figcaption')].map((e) => e.textContent)"
    assert not any("Reward" in title for title in b.run(shown)), b.run(shown)
    run = work / "preferred"
    run.mkdir()
    steps = [{"step": i, "loss": 0.7, "rewards/margins": i / 9, "rewards/accuracies": 0.5, "logps/chosen": -3 - i} for i in range(1, 9)]
    (run / "eval.jsonl").write_text('{"step":8,"eval_loss":0.6,"eval_rewards/margins":0.5}\n')
    (run / "metrics.jsonl").write_text("".join(json.dumps(s) + "\n" for s in steps))
    box = "[...document.querySelectorAll('#list li')].find((e) => e.textContent.includes('preferred'))?.querySelector('input')"
    b.wait(f"!!{box}")
    b.run(f"(() => {{ const e = {box}; if (!e.checked) e.click(); }})()")
    b.wait(f"{shown}.filter((t) => /^(Reward margin|Pairs whose|Log-prob)/.test(t)).length === 3")
    b.run(f"{box}.click()")


def fits_a_telephone(b, *_):
    b.resize(390, 840, mobile=True)
    b.run("new Promise((r) => setTimeout(r, 400))")
    assert b.run("document.documentElement.scrollWidth") <= 390
    keep(b, "narrow-light")
    b.theme("dark")
    b.run("new Promise((r) => setTimeout(r, 300))")
    keep(b, "narrow-dark")


def main():
    share = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder, "runs")
        pesc("craft", share / "base", "-o", work / "sparse", "--experts", 8, "--top-k", 2, "--adapter-dim", 8, "-q", "--check", "false")
        with Server(str(work), command="runs") as s, Browser(f"http://127.0.0.1:{s.port}/", 1400, 900) as b:
            b.wait("!document.querySelector('#none').hidden")
            for test in (follows_a_run, compares_runs, shows_preferences, fits_a_telephone):
                test(b, share, work)
            assert not b.complaints, b.complaints
    print("the page of runs works")


if __name__ == "__main__":
    main()
