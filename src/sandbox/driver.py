"""What every process of the sandbox runs; driver.h describes the roles and the messages.

Nothing that this file does in the process of a solution protects us: the solution can change all of
it. The verdict is made in the judge's process, which takes nothing from the other one but lines of
text, and makes values of them with parse() alone, which calls nothing that the text names.

The start of a process counts: the modules ast and os are not used because they import others.
"""
import _ast
import builtins
import posix
import sys

JOB, RESULT, IN, OUT = 3, 4, 5, 6
ANSWER_BYTES = 1 << 20
if hasattr(sys, "set_int_max_str_digits"):
    sys.set_int_max_str_digits(100000)


def sections():
    with open(JOB, "rb") as f:
        while size := f.readline():
            yield f.read(int(size)).decode("utf-8", "replace")


def one_line(text):
    return " ".join(text.split())[:200]


def describe(error):
    name = type(error).__name__
    try:
        return one_line(f"{name}: {error}" if str(error) else name)
    except BaseException:
        return one_line(name)


def finish(verdict, converted=False, reason=""):
    posix.write(RESULT, f"{verdict} {int(bool(converted))} {reason}\n".encode("utf-8", "replace"))
    posix._exit(0)


def repeatable(source):
    if "random" in source:
        import random
        random.seed(0)


# ---- values as text

class NotLiteral(Exception):
    pass


class Variable:
    """A variable of the solution's process, as the argument of a call."""

    def __init__(self, name):
        self.name = name


KINDS = (type(None), bool, int, float, complex, str, bytes, tuple, list, dict, set, frozenset)


def literal(value, converted):
    """The value as a Python literal. A value of a derived class, such as Counter, is written as its
    built-in base class, and a frozenset as a set: they compare equal. `converted` notes it. A variable of
    the solution's process is written as its name."""
    if type(value) is Variable:
        return value.name
    kind = next((k for k in KINDS if isinstance(value, k)), None)
    if kind is None:
        raise NotLiteral(type(value).__name__)
    if type(value) is not kind or kind is frozenset:
        converted.append(type(value).__name__)
    if kind is float:
        return float.__repr__(value).replace("inf", "1e999")
    if kind is dict:
        items = [literal(k, converted) + ": " + literal(v, converted) for k, v in dict.items(value)]
        return "{" + ", ".join(items) + "}"
    if kind in (tuple, list, set, frozenset):
        items = [literal(v, converted) for v in kind.__iter__(value)]
        if kind is tuple:
            return "(" + "".join(i + ", " for i in items) + ")"
        if kind is list:
            return "[" + ", ".join(items) + "]"
        return "{" + ", ".join(items) + "}" if items else "set()"
    return kind.__repr__(value)


def parse(text):
    """The value of a literal; ValueError or SyntaxError for any other text. As ast.literal_eval()."""
    return value_of(compile(text, "answer", "eval", _ast.PyCF_ONLY_AST).body)


def value_of(node):
    kind = type(node)
    if kind is _ast.Constant:
        return node.value
    if kind in SEQUENCES:
        return SEQUENCES[kind](map(value_of, node.elts))
    if kind is _ast.Dict:
        return dict(zip(map(value_of, node.keys), map(value_of, node.values)))
    if kind is _ast.UnaryOp and type(node.op) is _ast.USub:
        return -number(node.operand)
    if kind is _ast.BinOp and type(node.op) in (_ast.Add, _ast.Sub):  # a complex number
        left, right = value_of(node.left), number(node.right)
        if type(left) in (int, float) and type(right) is complex:
            return left + right if type(node.op) is _ast.Add else left - right
    if kind is _ast.Call and type(node.func) is _ast.Name and node.func.id == "set":
        if not node.args and not node.keywords:
            return set()
    raise ValueError("not a literal")


def number(node):
    if type(node) is _ast.Constant and type(node.value) in (int, float, complex):
        return node.value
    raise ValueError("not a number")


SEQUENCES = {_ast.Tuple: tuple, _ast.List: list, _ast.Set: set}


# ---- roles

def plain(program):
    repeatable(program)
    try:
        exec(program, {})
    except BaseException as error:
        finish("fail", reason=describe(error))
    finish("pass")


def solution(program):
    calls, answers = open(IN, "rb"), open(OUT, "wb")
    names = {}
    repeatable(program)
    try:
        exec(program, names)
        reply = "ready " + " ".join(n for n, v in names.items() if callable(v))
    except BaseException as error:
        reply = "raised " + describe(error)
    while True:
        answers.write(reply.encode("utf-8", "backslashreplace") + b"\n")
        answers.flush()
        call = calls.readline()
        if not call:
            posix._exit(0)
        try:
            name, args, kwargs = eval(call, names, {"nan": float("nan"), "set": set})
            converted = []
            text = literal(eval(name, names)(*args, **kwargs), converted)
            reply = ("converted " if converted else "value ") + text
        except NotLiteral as error:
            reply = "refused " + str(error)
        except BaseException as error:
            reply = "raised " + describe(error)


class Refused(BaseException):
    """Ends the tests; args are the verdict and the reason."""


def names_in(code):
    """All names that the code looks up outside its functions, and those of attributes."""
    inner = [c for c in code.co_consts if type(c) is type(code)]
    return set(code.co_names).union(*map(names_in, inner))


def under_test(code):
    """The names that may stand for functions of the solution: all that the tests use but built-in
    ones. Where there is no other, it is a built-in name that the solution defines again; of several we
    cannot know which."""
    names = names_in(code)
    return {n for n in names if not hasattr(builtins, n)} or (names if len(names) == 1 else set())


def assigned_by(setup):
    """The variables that the statements of the set-up code assign."""
    body = compile(setup, "setup", "exec", _ast.PyCF_ONLY_AST).body
    return {t.id for s in body if type(s) is _ast.Assign for t in s.targets if type(t) is _ast.Name}


def judge(given, tests, names, setup):
    calls, answers = open(OUT, "wb"), open(IN, "rb")
    refused, converted = [], []

    def refuse(verdict, reason):
        refused.append((verdict, reason))  # counts even when the tests catch the exception
        raise Refused

    def raised(text):
        name, _, message = text.partition(": ")
        kind = getattr(builtins, name, None)
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            kind, message = RuntimeError, text
        raise kind(message)

    def answer():
        line = answers.readline(ANSWER_BYTES)
        if not line.endswith(b"\n"):
            if line:
                refuse("fail", "an answer has more than 1 MiB or ends early")
            refuse("gone", "the solution's process ended")
        kind, _, text = line[:-1].decode("utf-8", "replace").partition(" ")
        if kind == "raised":
            raised(text)
        if kind not in ("ready", "value", "converted"):
            converted.append(text)
            refuse("fail", "a value of type " + one_line(text) + " is not a literal")
        if kind == "converted":
            converted.append(text)
        if kind == "ready":
            return text.split()
        try:
            return parse(text)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            converted.append(text)
            refuse("fail", "an answer is not a literal")

    def proxy(name):
        def call(*args, **kwargs):
            try:
                text = literal((name, args, kwargs), converted)
            except NotLiteral as error:
                converted.append(name)
                refuse("fail", f"an argument of type {error} is not a literal")
            try:
                calls.write(text.encode("utf-8", "backslashreplace") + b"\n")
                calls.flush()
            except OSError:
                refuse("gone", "the solution's process ended")
            return answer()
        return call

    def failed_line(error):
        line, trace = 0, error.__traceback__
        while trace:
            if trace.tb_frame.f_code.co_filename == "tests":
                line = trace.tb_lineno
            trace = trace.tb_next
        return tests.splitlines()[line - 1].strip() if line else ""

    reason, space = "", {}
    repeatable(given + tests)
    try:
        code = compile(tests, "tests", "exec")
        exec(given, space)
        defined = answer()
        for name in names.split() or under_test(code).intersection(defined):
            space[name] = proxy(name)
        for name in assigned_by(setup):
            space[name] = Variable(name)
        exec(code, space)
    except Refused:
        pass
    except AssertionError as error:
        reason = one_line("this test failed: " + failed_line(error))
    except BaseException as error:
        reason = describe(error)
    verdict, reason = refused[0] if refused else ("fail" if reason else "pass", reason)
    finish(verdict, converted, reason)


{"plain": plain, "solution": solution, "judge": judge}[sys.argv[1]](*sections())
