"""What programs try in order to leave the sandbox, to harm the machine, or to forge a verdict.

An attempt is Python that defines attempt(), which returns "blocked" when it was refused. ESCAPES are
refused by the kernel with an error; LIMITS end the program, for the reason given. A word such as
@SECRET@ stands for something that run_sandbox.py made on the host.

A forgery is a wrong solution of a function @NAME@ that tries to be judged as right.
"""

# Every attempt may use these. Only the errors of a refused system call count as blocked: a mistake in
# an attempt is another exception, and fails the test.
PRELUDE = '''
import errno, os
REFUSED = {errno.EPERM, errno.EACCES, errno.ENOENT, errno.ENOSYS, errno.EROFS, errno.EBADF, errno.ENOSPC,
           errno.EFBIG, errno.EMFILE, errno.ENOTDIR}

def refused(f, *args):
    try:
        return "done: %r" % (f(*args),)
    except OSError as error:
        return "blocked" if error.errno in REFUSED else "other error: %r" % error

def raw(number, *args):
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if type(a) is int else a for a in args]) >= 0:
        return "done"
    error = ctypes.get_errno()
    return "blocked" if error in REFUSED else "other error: %d" % error

def machine_code(code):
    import ctypes, mmap
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    return ctypes.CFUNCTYPE(ctypes.c_long)(address)()
'''


def expression(text):
    return f"def attempt():\n    return {text}\n"


def reads(path):
    return expression(f"refused(open, {path!r}, 'rb')")


def lists(path):
    return expression(f"refused(os.listdir, {path!r})")


def calls(number, *args):
    return expression(f"raw({', '.join(map(repr, (number,) + args))})")


# (name, code[, tags]). Tags: A, for mode A only; landlock, for kernels that have it; alone, because it
# changes what later attempts in the same process could do.
ESCAPES = [
    # reading
    ("read the list of users", reads("/etc/passwd")),
    ("read a secret that everyone may read", reads("@SECRET@")),
    ("read a secret by a relative path", reads("../../../../../../@SECRET@")),
    ("list the directory of the secret", lists("@DIR@")),
    ("list root's home", lists("/root")),
    ("list the homes", lists("/home")),
    ("list /etc", lists("/etc")),
    ("list /proc", lists("/proc")),
    ("list /sys", lists("/sys")),
    ("list /var", lists("/var")),
    ("read our own environment from /proc", reads("/proc/self/environ")),
    ("read the memory of the host's process", reads("/proc/@PID@/mem")),
    ("read files by the root of another process", reads("/proc/1/root/etc/passwd")),
    ("open a disk", reads("/dev/vda")),
    ("open the kernel's memory", reads("/dev/mem")),
    ("open the kernel's log", reads("/dev/kmsg")),
    ("open the terminal", reads("/dev/tty")),
    ("open the virtual machine device", reads("/dev/kvm")),
    ("open the file system device", reads("/dev/fuse")),
    ("open a file by its handle", calls(304, -100, 0, 0)),
    ("find a file's handle", calls(303, -100, 0, 0, 0, 0)),
    # writing
    ("create a file in a directory of the host", expression("refused(open, '@DIR@/new', 'w')")),
    ("overwrite a file of the host", expression("refused(open, '@SECRET@', 'w')")),
    ("remove a file of the host", expression("refused(os.unlink, '@SECRET@')")),
    ("rename a file of the host", expression("refused(os.rename, '@SECRET@', '@SECRET@.moved')")),
    ("truncate a file of the host", expression("refused(os.truncate, '@SECRET@', 0)")),
    ("change the mode of a file of the host", expression("refused(os.chmod, '@SECRET@', 0o777)")),
    ("change the owner of a file of the host", expression("refused(os.chown, '@SECRET@', 0, 0)")),
    ("change the times of a file of the host", expression("refused(os.utime, '@SECRET@', (0, 0))")),
    ("set an attribute of a file of the host", expression("refused(os.setxattr, '@SECRET@', 'user.a', b'1')")),
    ("create a file in /", expression("refused(open, '/new', 'w')")),
    ("create a file in /usr", expression("refused(open, '/usr/lib/new', 'w')")),
    ("change Python's library", expression("refused(open, os.__file__, 'a')")),
    ("create a file in /dev", expression("refused(open, '/dev/new', 'w')")),
    ("create a file in shared memory", expression("refused(open, '/dev/shm/new', 'w')")),
    ("create a file in /var/tmp", expression("refused(open, '/var/tmp/new', 'w')")),
    ("create a directory", expression("refused(os.mkdir, 'new')")),
    ("create a symbolic link to the secret", expression("refused(os.symlink, '@SECRET@', 'link')")),
    ("create a hard link to Python", expression("refused(os.link, '/usr/bin/python3', 'link')")),
    ("create a device", expression("refused(os.mknod, 'device', 0o060666, os.makedev(254, 0))")),
    ("create a named pipe", expression("refused(os.mkfifo, 'pipe')")),
    ("make a file executable and run it", '''
def attempt():
    with open("script", "w") as f:
        f.write("#!/bin/sh\\necho > @DIR@/new\\n")
    return refused(os.execv, "script", ["script"])
'''),
    ("write a file of 1 GiB", '''
def attempt():
    def fill():
        with open("big", "wb", buffering=0) as f:
            for _ in range(1024):
                f.write(bytes(1 << 20))
    return refused(fill)
''', "alone"),
    ("fill the disk with many files", '''
def attempt():
    def fill():
        for i in range(8):
            with open(f"big{i}", "wb", buffering=0) as f:
                for _ in range(15):
                    if f.write(bytes(1 << 20)) < 1 << 20:
                        f.write(bytes(1 << 20))
    return refused(fill)
''', "A", "alone"),
    ("use up the inodes", '''
def attempt():
    def fill():
        for i in range(5000):
            open(f"file{i}", "w").close()
    return refused(fill)
''', "A", "alone"),
    # network
    ("connect to a TCP port of the host", '''
def attempt():
    import socket
    return refused(lambda: socket.create_connection(("127.0.0.1", @PORT@), 1))
'''),
    ("send a datagram to the host", '''
def attempt():
    import socket
    return refused(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", @PORT@)))
'''),
    ("connect by IPv6", "import socket\n" + expression("refused(socket.socket, socket.AF_INET6)")),
    ("connect to an abstract socket", '''
def attempt():
    import socket
    return refused(lambda: socket.socket(socket.AF_UNIX).connect("\\0@ABSTRACT@"))
'''),
    ("open a raw packet socket", "import socket\n" + expression("refused(socket.socket, socket.AF_PACKET, socket.SOCK_RAW)")),
    ("open a netlink socket", "import socket\n" + expression("refused(socket.socket, socket.AF_NETLINK, socket.SOCK_RAW)")),
    ("open a socket to the hypervisor", "import socket\n" + expression("refused(socket.socket, socket.AF_VSOCK)")),
    ("make a pair of sockets", "import socket\n" + expression("refused(socket.socketpair)")),
    ("listen on a port", '''
def attempt():
    import socket
    return refused(lambda: socket.create_server(("127.0.0.1", 0)))
'''),
    ("look up a name", '''
def attempt():
    import socket
    try:
        return "done: %r" % socket.getaddrinfo("example.com", 80)
    except OSError:
        return "blocked"
'''),
    # processes
    ("fork", expression("refused(os.fork)")),
    ("vfork", calls(58)),
    ("clone a process", calls(56, 17, 0, 0, 0, 0)),
    ("clone a process that shares memory", calls(56, 0x100 | 17, 0, 0, 0, 0)),
    ("clone by clone3", calls(435, 0, 88)),
    ("run a shell command", "import subprocess\n" + expression("refused(subprocess.run, 'echo', )")),
    ("spawn a program", expression("refused(os.posix_spawn, '/bin/sh', ['sh'], {})")),
    ("become a shell", expression("refused(os.execv, '/bin/sh', ['sh', '-c', 'exit'])"), "landlock"),
    ("become a program by a descriptor", '''
def attempt():
    return raw(322, os.open("/usr/bin/python3", os.O_PATH), b"", 0, 0, 0x1000)
'''),
    ("send a signal to the host's process", expression("refused(os.kill, @PID@, 9)")),
    ("send a signal to another process", expression("refused(os.kill, @VICTIM@, 9)")),
    ("send a signal to all processes", expression("refused(os.kill, -1, 9)")),
    ("send a signal to a thread", calls(234, 1, 1, 9)),
    ("queue a signal", calls(129, 1, 9, 0)),
    ("open a descriptor of a process", calls(434, 1, 0)),
    ("take a descriptor of another process", calls(438, 3, 0, 0)),
    ("trace a process", calls(101, 16, 1, 0, 0)),
    ("let the parent trace us", calls(101, 0, 0, 0, 0)),
    ("read another process's memory", calls(310, 1, 0, 0, 0, 0, 0)),
    ("write another process's memory", calls(311, 1, 0, 0, 0, 0, 0)),
    ("compare descriptors with a process", calls(312, 1, 1, 0, 0, 0)),
    ("change another process's limits", calls(302, "@VICTIM@", 0, 0, 0)),
    ("change another process's priority", calls(141, 0, "@VICTIM@", 19)),
    ("change another process's processors", calls(203, "@VICTIM@", 8, 0)),
    ("let the kernel signal another process", "import fcntl\n" + expression("refused(fcntl.fcntl, 3, fcntl.F_SETOWN, @VICTIM@)")),
    ("put characters into a terminal", "import fcntl, termios\n" + expression("refused(fcntl.ioctl, 0, termios.TIOCSTI, b'x')")),
    # privileges and namespaces
    ("become root", expression("refused(os.setuid, 0)")),
    ("become root's group", expression("refused(os.setgid, 0)")),
    ("take groups", expression("refused(os.setgroups, [0])")),
    ("set capabilities", calls(126, 0, 0)),
    ("mount a file system", calls(165, 0, 0, 0, 0, 0)),
    ("unmount a file system", calls(166, b"/usr", 2)),
    ("mount by the new interface", calls(430, b"tmpfs", 0)),
    ("copy a mount", calls(428, -100, b"/usr", 1)),
    ("change the flags of a mount", calls(442, -100, b"/usr", 0, 0, 0)),
    ("change the root directory", expression("refused(os.chroot, '/tmp')")),
    ("pivot the root directory", calls(155, b".", b".")),
    ("make a user namespace", calls(272, 0x10000000)),
    ("make a mount namespace", calls(272, 0x00020000)),
    ("join a namespace", calls(308, 3, 0)),
    ("change the host's name", calls(170, b"x", 1)),
    ("raise a limit", '''
def attempt():
    import resource
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (ValueError, OSError):
        return "blocked"
    return "done"
'''),
    # interfaces of the kernel
    ("load a BPF program", calls(321, 0, 0, 0)),
    ("set up io_uring", calls(425, 8, 0)),
    ("handle page faults", calls(323, 0)),
    ("count hardware events", calls(298, 0, 0, -1, -1, 0)),
    ("use the kernel's keys", calls(250, 0, -3, 0)),
    ("add a key", calls(248, b"user", b"a", b"b", 1, -3)),
    ("make a file in memory", calls(319, b"a", 0)),
    ("watch the file system", calls(300, 0, 0)),
    ("watch a directory", calls(294, 0)),
    ("load a module", calls(175, 0, 0, 0)),
    ("load a module from a file", calls(313, 3, 0, 0)),
    ("load a new kernel", calls(246, 0, 0, 0, 0)),
    ("restart the machine", calls(169, 0, 0, 0, 0)),
    ("set the time", calls(227, 0, 0)),
    ("swap to a file", calls(167, b"big", 0)),
    ("read the kernel's log by a call", calls(103, 3, 0, 0)),
    ("account processes", calls(163, 0)),
    ("use input and output ports", calls(172, 3)),
    ("change the descriptor table", calls(154, 1, 0, 0)),
    ("change the personality", calls(135, 0x0040000)),
    ("share memory with other processes", calls(29, 1, 4096, 0o1666)),
    ("make a message queue", calls(68, 1, 0o1666)),
    ("make a POSIX message queue", calls(240, b"a", 0x42, 0o666, 0)),
    ("make semaphores", calls(64, 1, 1, 0o1666)),
    ("add another filter", calls(317, 1, 0, 0)),
    ("change what the process may do", calls(157, 4, 1, 0, 0, 0)),
    ("make anonymous descriptors", calls(284, 0)),
    # limits that are errors
    ("allocate 10 GiB", '''
def attempt():
    try:
        return "done: %d" % len(bytearray(10 << 30))
    except MemoryError:
        return "blocked"
'''),
    ("start 5,000 threads", '''
def attempt():
    import threading
    stop = threading.Event()
    try:
        for i in range(5000):
            threading.Thread(target=stop.wait, daemon=True).start()
    except (RuntimeError, MemoryError):
        return "blocked"
    finally:
        stop.set()
    return "done"
''', "alone"),
    ("open many files", "def attempt():\n    return refused(lambda: [os.open('/dev/null', 0) for _ in range(1000)])\n", "alone"),
    ("change the job", expression("refused(os.write, 3, b'x')")),
    ("change the driver", expression("refused(os.pwrite, 7, b'x', 0)")),
    # what must not be there at all
    ("use a descriptor of the host", '''
def attempt():
    left = []
    for fd in range(8, 64):
        try:
            left.append(os.fstat(fd))
        except OSError:
            pass
    return "blocked" if not left else "found %d" % len(left)
'''),
    ("find the host's environment", expression("'blocked' if '@CANARY@' not in str(os.environ) else 'found'")),
    ("be root", expression("'blocked' if os.getuid() and os.geteuid() and os.getgid() else 'root'")),
    ("see directories of the host", '''
def attempt():
    names = ("boot", "etc", "home", "mnt", "opt", "proc", "root", "run", "srv", "sys", "var", "dev/shm", "tmp/pesc")
    return "blocked" if not any(os.path.lexists("/" + n) for n in names) else "seen"
''', "A"),
    ("see the host's processes", expression("'blocked' if os.getpid() == 1 and os.getppid() == 0 else 'seen'"), "A"),
]

# (name, code, the reason that the verdict must give)
LIMITS = [
    ("call the kernel by the 32-bit interface", '''
def attempt():  # mov eax, 20 (getpid); int 0x80; ret
    return machine_code(b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3")
''', r"signal 31|signal 11"),
    ("call the kernel by the x32 interface", '''
def attempt():  # mov eax, 0x40000027 (getpid); syscall; ret
    return machine_code(b"\\xb8\\x27\\x00\\x00\\x40\\x0f\\x05\\xc3")
''', r"signal 31"),
    ("loop, with all signals ignored", '''
def attempt():
    import signal
    for s in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(s, signal.SIG_IGN)
    while True:
        pass
''', r"CPU time"),
    ("overflow the stack", '''
def attempt():
    import sys
    sys.setrecursionlimit(10**9)
    f = lambda n: sorted([n], key=f)
    return f(1)
''', r"signal 11|CPU time"),
    ("close all descriptors", "def attempt():\n    os.closerange(0, 64)\n", r"ended|program"),
    ("end the process", "def attempt():\n    os._exit(0)\n", r"ended without a result"),
    ("answer with 4 MiB", "def attempt():\n    return 'x' * (1 << 22)\n", r"more than 1 MiB"),
    ("write 256 MiB to the standard output", '''
def attempt():
    for _ in range(256):
        os.write(1, bytes(1 << 20))
    return "written"
''', r"test failed"),
]

# The same, with a short limit of wall time.
SLEEPING = [
    ("sleep for ever", "import time\ndef attempt():\n    time.sleep(1e6)\n", r"ran longer than"),
    ("work a little and sleep, again and again", '''
import time
def attempt():
    while True:
        end = time.process_time() + 0.02
        while time.process_time() < end: pass
        time.sleep(0.2)
''', r"ran longer than"),
    ("ignore the signal of the limit of CPU time", '''
import signal
def attempt():
    for s in (signal.SIGXCPU, signal.SIGALRM, signal.SIGTERM, signal.SIGVTALRM):
        signal.signal(s, signal.SIG_IGN)
    while True: pass
''', r"ran longer than|CPU time"),
]

FORGERIES = [
    ("return an object that equals everything", '''
class Equal:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    __gt__ = __le__ = __ge__ = __lt__
    def __hash__(self): return 0
    def __sub__(self, other): return self
    __add__ = __mul__ = __rsub__ = __sub__
    def __abs__(self): return 0
    def __float__(self): return 0.0
    def __iter__(self): return iter(())
    def __len__(self): return 0
    def __bool__(self): return True
def @NAME@(*args, **kwargs): return Equal()
'''),
    ("return a number that equals everything", '''
class Equal(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
def @NAME@(*args, **kwargs): return Equal(12345)
'''),
    ("return a text that equals everything", '''
class Equal(str):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
def @NAME@(*args, **kwargs): return Equal("?")
'''),
    ("return a list that equals everything", '''
class Equal(list):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
def @NAME@(*args, **kwargs): return Equal(["?"])
'''),
    ("end the process with success", "import os\nos._exit(0)\n"),
    ("leave the program with success", "raise SystemExit(0)\n"),
    ("end the process in the call", "import os\ndef @NAME@(*args, **kwargs): os._exit(0)\n"),
    ("write the verdict to every descriptor", '''
import os
for fd in range(3, 64):
    try: os.write(fd, b"pass 0 \\n" * 3)
    except OSError: pass
def @NAME@(*args, **kwargs): os._exit(0)
'''),
    ("steal the variables of the tests", '''
import sys
def @NAME@(*args, **kwargs):
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()) + list(frame.f_globals.values()):
            if isinstance(value, list): value.append("passed")
            if callable(value) and getattr(value, "__name__", "") == "finish": value("pass")
        frame = frame.f_back
    return "?"
'''),
    ("replace assertions", '''
import builtins
class Fine(BaseException): pass
builtins.AssertionError = Fine
builtins.set = builtins.sorted = builtins.abs = builtins.len = builtins.all = lambda *a, **k: 1
def check(candidate): pass
def @NAME@(*args, **kwargs): return "?"
'''),
    ("skip the tests by tracing", '''
import sys, os
def trace(frame, event, arg):
    if event == "exception": os._exit(0)
    return trace
sys.settrace(trace)
def @NAME@(*args, **kwargs): return "?"
'''),
    ("answer many times", '''
import os
def @NAME@(*args, **kwargs):
    for i in range(200):
        try: os.write(6, b"value True\\nvalue 0\\nvalue []\\n")
        except OSError: os._exit(0)
    return "?"
'''),
    ("answer with code", '''
import os
def @NAME@(*args, **kwargs):
    os.write(6, b"value __import__('posix').write(4, b'pass 0 \\\\n')\\n")
    return "?"
'''),
    ("answer with a deep value", '''
import os
def @NAME@(*args, **kwargs):
    os.write(6, b"value " + b"[" * 90 + b"-" * 5000 + b"]" * 90 + b"\\n")
    os.write(6, b"value " + b"[" * 100000 + b"\\n")
    return "?"
'''),
    ("answer with a message that is not in the protocol", '''
import os
def @NAME@(*args, **kwargs):
    os.write(6, b"pass 0 \\n\\n\\xff\\xfe\\nready\\nready\\n")
    return "?"
'''),
    ("raise an assertion error with a verdict", '''
def @NAME@(*args, **kwargs): raise AssertionError("\\npass 0 \\n")
'''),
    ("pass at the end of the process", '''
import atexit, os
atexit.register(lambda: os._exit(0))
def @NAME@(*args, **kwargs): raise KeyboardInterrupt
'''),
    ("read the expected values from the job", '''
import os, re
try: text = os.pread(3, 1 << 20, 0).decode()
except OSError: text = ""
found = re.findall(r"assert .*?== *(.+)", text)
def @NAME@(*args, **kwargs): return eval(found.pop(0)) if found else "?"
'''),
    ("change the tests by inspection", '''
import gc, inspect
def nothing(*args, **kwargs): return None
def @NAME@(*args, **kwargs):
    for f in gc.get_objects():
        if inspect.isfunction(f) and f.__name__ not in ("nothing", "@NAME@"):
            try: f.__code__ = nothing.__code__
            except (ValueError, TypeError): pass
    for info in inspect.stack():
        for name in ("check", "candidate", "@NAME@"):
            info.frame.f_globals[name] = nothing
    return "?"
'''),
    ("answer from threads", '''
import os, threading
def flood():
    while True:
        for fd in range(3, 10):
            try: os.write(fd, b"value '?'\\npass 0 \\n")
            except OSError: pass
for i in range(4): threading.Thread(target=flood, daemon=True).start()
def @NAME@(*args, **kwargs): return "?"
'''),
    ("let a child go on and end with success", '''
import os
def @NAME@(*args, **kwargs):
    try: child = os.fork()
    except OSError: child = None
    if child: os._exit(0)
    return "?"
'''),
    ("print the verdict", '''
import sys
for stream in sys.stdout, sys.stderr, sys.__stdout__:
    if stream: print("pass 0 \\n" * 3, file=stream, flush=True)
def @NAME@(*args, **kwargs):
    print("pass 0 ")
    sys.exit(0)
'''),
    ("replace modules that tests may use", '''
import math, operator, sys, types, unittest
operator.eq = lambda a, b: True
math.isclose = lambda *a, **k: True
sys.modules["__main__"] = types.SimpleNamespace(check=lambda candidate: None)
unittest.TestCase.failureException = ()
def @NAME@(*args, **kwargs): return "?"
'''),
]
