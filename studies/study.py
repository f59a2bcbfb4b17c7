"""What a study is: its description, the results there are, and what is still to be tried."""
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
INF = float("inf")


def lowest(tried):
    return min(tried, key=tried.get, default=None)


def describe(path):
    """A description, whose keys come before those of the one that it is like."""
    about = tomllib.loads(path.read_text())
    return {**describe(path.with_name(about["like"] + ".toml")), **about} if "like" in about else about


class Row:
    """A method: how its model is made and trained, and at which rates. With targets there is a row for each."""

    def __init__(self, fields, target=None):
        known = dict(what="", train="", craft=None, start=None, choose=None, rates="", like=None, data="train", valid=None, seeds=None, times=1, main=False)
        if set(fields) - set(known) - {"name"}:
            sys.exit(f"row {fields.get('name')}: unknown keys {sorted(set(fields) - set(known))}")
        self.method, self.target = fields["name"], target
        self.name = f"{target}/{self.method}" if target else self.method
        self.__dict__.update(known | {k: v for k, v in fields.items() if k != "name"})
        self.rates = self.rates.split()
        if self.like and target:
            self.like = f"{target}/{self.like}"


class Study:
    """A description with the results there are: what is known, and what is still to be tried."""

    def __init__(self, name, results=None, seeds=None):
        path = Path(name) if name.endswith(".toml") else HERE / f"{name}.toml"
        if not path.exists():
            sys.exit(f"studies: there is no {path}; there are {', '.join(sorted(p.stem for p in HERE.glob('*.toml')))}")
        self.name, self.about, self.results = path.stem, describe(path), results or {}
        self.targets = self.about.get("targets", [])
        self.models, start = self.about.get("models", {}), self.about.get("start")
        self.rows = {r.name: r for r in (Row({"start": start, **f}, t) for t in self.targets or [None] for f in self.about["rows"])}
        self.seeds = seeds or self.about["seeds"]
        self.search = {"part": 1, "extend": "", "ladder": "", "whole": 1, **self.about.get("search", {})}

    def model_key(self, name, target):
        """Of a model that rows start from: one for all targets, or one for each."""
        return f"{name}/{target if '{target}' in self.models[name]['data'] else 'all'}"

    # ---- results: {"search/ROW/SEED/RATE" or "full/ROW/SEED/RATE": {...}, "base": {...}, "settings": {...}, and a key for each analysis}

    def runs(self, kind, name):
        """The results of a row, {(seed, rate): result}; one that diverged has an infinite validation loss, other failures are left out."""
        found = {}
        for key, r in list(self.results.items()):
            if key.startswith(f"{kind}/{name}/"):
                _, seed, rate = key.rsplit("/", 2)
                if "failed" not in r or "finite" in r["failed"]:
                    found[int(seed), rate] = {"valid": INF, **r}
        return found

    def tried(self, row, kind=None):
        """{rate: validation loss} of the first seed."""
        kind = kind or ("search" if self.search["part"] < 1 else "full")
        return {rate: r["valid"] for (seed, rate), r in self.runs(kind, row.name).items() if seed == self.seeds[0]}

    def open_rates(self, row):
        """What the search of a row still has to try: its own rates, then beyond the best of them as `extend` says."""
        tried, extend, ladder = self.tried(row), self.search["extend"], self.search["ladder"].split()
        missing = [r for r in row.rates if r not in tried]
        if missing or not extend or min(tried.values(), default=INF) == INF or (extend == "once" and len(tried) > len(row.rates)):
            return missing
        at = ladder.index(lowest(tried))
        return [r for r in ladder[at if extend == "up" else max(at - 1, 0):at + 2] if r not in tried]

    def open_wholes(self, row):
        """The rates that need a whole run of the first seed before one is chosen: the best of an ended search, and `whole` - 1 below it."""
        tried = self.tried(row)
        if not row.rates or self.search["part"] == 1 or self.open_rates(row) or min(tried.values(), default=INF) == INF:
            return []
        order = self.search["ladder"].split() or sorted(tried, key=float)
        at = order.index(lowest(tried))
        return [r for r in order[max(at + 1 - self.search["whole"], 0):at + 1] if r not in self.tried(row, "full")]

    def best_rate(self, row):
        """The rate of the lowest validation loss of whole runs of the first seed; None while it is not known."""
        row = self.rows[row.like] if row.like else row
        return None if self.open_rates(row) or self.open_wholes(row) else lowest(self.tried(row, "full"))

    def seeds_of(self, row):
        return self.seeds[:row.seeds] if row.seeds else self.seeds

    def finished(self, name):
        """Whole runs of a row at its best rate, {seed: result}."""
        best = self.best_rate(self.rows[name])
        return {seed: r for (seed, rate), r in sorted(self.runs("full", name).items()) if rate == best and "loss" in r}
