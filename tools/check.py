#!/usr/bin/env python3
"""The rules of the tree that need more than grep. tools/check.sh runs this file and the other rules.

Each rule is a function that yields (place, sentence) for every violation it finds.
"""
import pathlib
import re
import sys
import tomllib

RANK = dict(base=0, tensor=1, jinja=1, tokenizer=1, format=2, backend=2, chat=2, grammar=2, arch=3, run=3, model=4, data=4, attach=5, craft=6, esft=6,
            train=6, infer=6, explain=7, plot=6, sandbox=6, dist=7, eval=7, serve=7, cli=8)
FILE_LINES = 600
FUNCTION_LINES = 60
KERNEL_LINES = 120  # src/backend: a kernel is read in one piece
PARAMETERS = 7


def files(*patterns):
    """The files of the tree that match one of the patterns, sorted."""
    return sorted({p for pattern in patterns for p in pathlib.Path().glob(pattern) if p.is_file()})


def sources(*folders):
    return files(*(f"{folder}/**/*.{suffix}" for folder in folders for suffix in ("c", "h", "cu", "cuh")))


def room(path):
    return path.parts[1]


# ---- rooms

def include_ranks():
    """An include points to a lower rank or stays in its room; cli sees the public header alone."""
    for path in sources("src"):
        own = room(path)
        for number, line in enumerate(path.read_text().splitlines(), 1):
            m = re.match(r'#include "([^"]+)"', line)
            target = m and m.group(1).split("/")[0]
            if target in (None, "pesc", own) or own != "cli" and RANK.get(target, 9) < RANK[own]:
                continue
            yield f"{path}:{number}", f"{own} may not include {m.group(1)}"


def call_ranks():
    """A call through the public header obeys the ranks too."""
    home = {}
    for path in sources("src"):
        for name in re.findall(r"^\w[^;={}()]*?\b(pesc_\w+)\([^;{}]*\)\s*\{", path.read_text(), re.M):
            home[name] = room(path)
    for path in sources("src"):
        own = room(path)
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for name in re.findall(r"^\s.*?\b(pesc_\w+)\(", code_only(line)):
                target = home.get(name, own)
                if target != own and RANK[target] >= RANK[own]:
                    yield f"{path}:{number}", f"{own} may not call {name}, which is a function of {target}"


def code_only(line):
    """The line without strings and without its comment."""
    line = re.sub(r'"(\\.|[^"\\])*"', '""', line)
    return re.sub(r"/\*.*?(\*/|$)|//.*|^\s*\*.*", "", line)


def unique_names():
    """A file of src is known by its name alone: in a message, a search, a talk."""
    first = {}
    for path in sources("src"):
        if first.setdefault(path.name, path) != path:
            yield path, f"has the name of {first[path.name]}"


# ---- sizes

def file_sizes():
    for path in sources("src", "include", "tests", "bench") + files("tests/**/*.bats", "tests/**/*.py", "tools/**/*.py", "studies/*.py", "share/page/*"):
        lines = len(path.read_text().splitlines())
        if lines > FILE_LINES:
            yield path, f"has {lines} lines; at most {FILE_LINES}"


def functions(path):
    """(line, name, parameters, lines) of every function defined in the file."""
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines):
        if line != "{":
            continue
        first = number
        while first > 0 and re.match(r"[\s\w*]|//", lines[first - 1]) and not lines[first - 1].endswith((";", "}")):
            first -= 1
        signature = re.sub(r"/\*.*?\*/|//.*", "", " ".join(lines[first:number]))
        signature = re.sub(r"\b[A-Z]+\((\w+)\)\(", r"\1(", signature)  # OP(name)(...)
        m = re.search(r"(\w+)\((?=[^()]*(?:\([^()]*\)[^()]*)*\)\s*$)", signature)
        if not m:
            continue
        end = next((i for i in range(number, len(lines)) if lines[i] == "}"), len(lines))
        yield first + 1, m.group(1), count_parameters(signature[m.end():]), end - number - 1


def count_parameters(text):
    """Commas outside inner parentheses and angle brackets, plus one, up to the closing parenthesis."""
    depth, count = 0, 1
    for c in text:
        if c in "(<":
            depth += 1
        elif c in ")>":
            if depth == 0:
                break
            depth -= 1
        count += c == "," and depth == 0
    return count


def function_sizes():
    for path in sources("src", "include", "tests", "bench"):
        limit = KERNEL_LINES if room(path) == "backend" else FUNCTION_LINES
        for line, name, parameters, lines in functions(path):
            if lines > limit:
                yield f"{path}:{line}", f"{name} has {lines} lines; at most {limit}"
            if parameters > PARAMETERS:
                yield f"{path}:{line}", f"{name} has {parameters} parameters; at most {PARAMETERS}: pass a struct"


# ---- the page

# What would take a text for markup or for a program.
SINKS = (r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|srcdoc|setHTML|\beval\b|new Function"
         r"|javascript:|\bstyle=|\bon\w+=\"|https?://(?!\$|www\.w3\.org/)")


def page_sinks():
    """The server's page shows what a model says as text, and asks no other server."""
    for path in files("share/page/*"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            m = re.search(SINKS, line)
            if m:
                yield f"{path}:{number}", f"has {m.group(0)}: make elements with element() of dom.js"


# ---- documents

def documents():
    return files("*.md", "docs/**/*.md", "tests/*.md", "studies/*.md", "share/*.md")


def named_functions():
    """A name that a document gives exists: of docs/architecture.md in the sources, of others anywhere (functions, keys, tasks, families)."""
    src = sources("src", "include")
    others = src + files("bench/*", "examples/*", "python/**/*.py", "share/**/*.json", "studies/*.py", "studies/*.toml", "tests/**/*.[chp]*", "tools/**/*.py")
    names, anywhere = (set(re.findall(r"[a-z][a-z0-9]*_[a-z0-9_]+", "\n".join(p.stem + " " + p.read_text(errors="replace") for p in of))) for of in (src, others))
    for path in documents():
        if path.name == "CHANGELOG.md":
            continue
        known = names if path.name == "architecture.md" else anywhere
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for name in re.findall(r"`([a-z][a-z0-9]*_[a-z0-9_]+)(?:\([^`]*\))?`", line):
                if name not in known:
                    yield f"{path}:{number}", f"names {name}, which does not exist"


def named_files():
    """Every file that a document names exists; a name with a capital word, such as tests/unit/test_NAME.c, stands for many."""
    for path in documents():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for name in re.findall(r"(?<![\w./-])((?:bench|docs|examples|include|packaging|python|share|src|studies|tests|tools)/[\w./-]+\.\w+)", line):
                if path.name != "CHANGELOG.md" and not re.search(r"[A-Z]{3}", name) and not pathlib.Path(name).exists():
                    yield f"{path}:{number}", f"names {name}, which does not exist"


def table_of_rooms():
    """docs/architecture.md lists every room with the rank that it has here."""
    page = pathlib.Path("docs/architecture.md")
    listed = {name: int(rank) for rank, name in re.findall(r"^\| (\d) \| `(\w+)` \|", page.read_text(), re.M)}
    for room_dir in sorted(p for p in pathlib.Path("src").iterdir() if p.is_dir()):
        name = room_dir.name
        if listed.pop(name, None) != RANK[name]:
            yield page, f"lists the room {name} with another rank than {RANK[name]}, or not at all"
    for name in listed:
        yield page, f"lists the room {name}, which does not exist"


def anchors(path):
    """The anchors of a page's headings, made as GitHub makes them."""
    headings = re.findall(r"^#+ +(.*)$", re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


def links():
    """A link inside the tree leads to a file, and its anchor to a heading."""
    for path in documents():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for link in re.findall(r"\]\(([^)\s]+)\)", line) + re.findall(r'(?:src|href)="([^"]+)"', line):
                if re.match(r"[a-z]+:", link):
                    continue
                target, _, anchor = link.partition("#")
                page = path.parent / target if target else path
                if not page.exists():
                    yield f"{path}:{number}", f"links to {link}, which does not exist"
                elif anchor and page.suffix == ".md" and anchor not in anchors(page):
                    yield f"{path}:{number}", f"links to {link}, but {page} has no such heading"


# The field's word for each private one; style.md of the project lists the reasons.
WORDS = {
    r"behind the last|known only behind": "after",
    r"\bnobody\b": "say what is off, unset or the default",
    r"so-many-th": "grid-stride loop",
    r"\bsoften": "online softmax",
    r"forth and back": "serpentine order",
    r"enough is enough": "stop after N errors",
    r"lies? apart": "has its own place",
    r"gives other bits": "silent data corruption",
    r"small and dear": "expensive to recompute",
    r"kept lightly|\blight slot": "partial activation checkpoint",
    r"what \w+ of LoRA gives": "A·x of the LoRA",
    r"signs? of life": "heartbeat",
    r"\bfarewell": "shutdown message",
    r"\bvisitor": "connection, client",
    r"\btaskbook": "registry of tasks",
}


def words():
    """Plain technical English: the words that a reader would not search for."""
    for path in sources("src", "include", "tests", "bench") + documents() + files(
            "tests/**/*.bats", "tests/**/*.bash", "tests/**/*.sh", "tests/**/*.py", "tools/**/*.sh", "tools/**/*.py", "studies/*.py", "studies/*.toml", "share/page/*", "Makefile"):
        if path.name in ("check.py", "make_share.py"):  # the words themselves; the stories of the embedded data
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for pattern, better in WORDS.items():
                m = re.search(pattern, line, re.I)
                if m:
                    yield f"{path}:{number}", f'"{m.group(0)}": write {better}'


# ---- tests that can fail

def shell_commands(text):
    """(line number, command) of a shell script: continued lines joined; strings, [[ ]], (( )), comments
    and here-documents emptied."""
    lines, number = text.splitlines(), 0
    while number < len(lines):
        first, command = number, lines[number]
        # an open quote or a trailing backslash or operator continues the command
        while number + 1 < len(lines) and (re.search(r"(\\|&&|\|\||\|)$", command) or open_quote(command)):
            number += 1
            command = re.sub(r"\\$", "", command) + "\n" + lines[number]
        here = re.search(r"<<-?\s*'?(\w+)'?", re.sub(r"<<<", "", command))
        number += 1
        while here and number < len(lines):
            number += 1
            if lines[number - 1].strip() == here.group(1):
                break
        yield first + 1, bare(command)


def open_quote(command):
    return re.search(r"""['"]""", re.sub(QUOTED, "", command)) is not None


QUOTED = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*"|(?:^|\s)#.*""", re.S)


def bare(command):
    command = re.sub(QUOTED, " x ", command)
    return re.sub(r"\[\[.*?\]\]|\(\(.*?\)\)", "x", command, flags=re.S)


def silent_conditions():
    """Under `set -e`, as in every bats test, a failing `a && b` or `! a` does not end the script."""
    scripts = [p for p in files("tests/**/*.sh", "tools/**/*.sh", "bench/**/*.sh")
               if re.search(r"^set -\w*e", p.read_text(), re.M)]
    for path in files("tests/**/*.bats", "tests/**/*.bash") + scripts:
        for number, command in shell_commands(path.read_text()):
            for part in re.split(r";|\n|\bdo\b|\bthen\b|\{ ", command):
                part = part.strip()
                if re.match(r"(if|elif|while|until)\b", part):
                    continue
                if "&&" in part and "||" not in part.split("&&", 1)[1] or re.match(r"!\s", part):
                    yield f"{path}:{number}", "this cannot fail the test; write one command a line, refute, or if ... fi"


def mutants():
    """A seeded fault whose text has left its file is skipped by `make mutants`, which takes too long to be run often."""
    for path in files("tests/mutants/*.toml"):
        for row in tomllib.loads(path.read_text())["mutant"]:
            source = pathlib.Path(row["file"])
            found = source.read_text().count(row["old"]) if source.is_file() else 0
            if found != 1:
                yield f"{path}: {row['id']}", f"{source} has the old text {found} times, expected once"


RULES = [include_ranks, call_ranks, unique_names, file_sizes, function_sizes, page_sinks, named_functions, named_files, table_of_rooms, links, words, silent_conditions,
         mutants]


def main():
    bad = 0
    for rule in RULES:
        for place, sentence in rule():
            print(f"{place}: {sentence}", file=sys.stderr)
            bad += 1
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
