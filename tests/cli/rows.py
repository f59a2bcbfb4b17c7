"""The rows of options for one command, read from the text of include/pesc/options.h and src/cli/opt/opt_rows.h: a line "key kind default" for each, where
the default is "-" if there is none. Macros that stand for several rows or for a list of commands are expanded."""
import pathlib
import re
import sys

headers = pathlib.Path(__file__).resolve().parents[2] / "include/pesc"
text = "".join((headers / name).read_text() for name in ("options.h", "craft_options.h", "analysis_options.h", "serve_options.h",
                                                          "comm_options.h", "preference_options.h", "../../src/cli/opt/opt_rows.h"))
text = re.sub(r"/\*.*?\*/", "", text, flags=re.S).replace("\\\n", " ")
macros = {}
for line in text.split("\n"):
    m = re.match(r"#define (\w+)(?:\(([^)]*)\))? +(.+)", line)
    if m:
        macros[m[1]] = (m[2], m[3])


def arguments(call):
    """The arguments of NAME(...) at the start of `call`, and what follows."""
    depth, part, parts, quoted = 0, "", [], False
    for i, c in enumerate(call):
        if c == '"':
            quoted = not quoted
        if not quoted and c in "()":
            depth += 1 if c == "(" else -1
            if (c == "(" and depth == 1) or depth == 0:
                if depth == 0:
                    return parts + [part.strip()], call[i + 1:]
                continue
        if not quoted and c == "," and depth == 1:
            parts.append(part.strip())
            part = ""
        elif depth >= 1:
            part += c
    raise SystemExit("a row does not end")


def literal(expression):
    """Adjacent string literals and the macros that stand for them, as one string."""
    out = ""
    for m in re.finditer(r'"([^"]*)"|(\w+)', expression):
        out += m[1] if m[1] is not None else literal(macros[m[2]][1])
    return out


def rows(body):
    while m := re.search(r"\b(X|ALSO|PESC_\w+_ROWS?)\(", body):
        found, body = arguments(body[m.end() - 1:])
        if m[1] in ("X", "ALSO"):
            kind, key, default, _, _, _, commands, _ = found
            yield key, kind, None if default == "NONE" else literal(default), literal(commands).split()
        else:
            names, inner = macros[m[1]]
            for name, value in zip(names.split(", "), found):
                inner = re.sub(rf"\b{name}\b(?!\()", lambda _: value, inner) if name != "X" else inner
            yield from rows(inner)


command = sys.argv[1]
for name, (_, body) in macros.items():
    if name.endswith("_OPTIONS") or name in ("COMMAND_ROWS", "COMMON_ROWS"):
        for key, kind, default, commands in rows(body):
            if command in commands or commands == ["*"]:
                print(key, kind, "-" if default is None else default)
