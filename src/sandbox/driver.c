/* The text of driver.py, with a NUL after it, and the lines that compile and start it. The
 * bytecode is read with pread() because processes that share the descriptor share its offset. */
#include "sandbox/driver.h"

const char driver_compile[] =
    "import marshal, posix; "
    "b = marshal.dumps(compile(posix.read(3, 1 << 20), 'driver', 'exec')); "
    "posix.write(4, len(b).to_bytes(4, 'little') + b)";
const char driver_run[] =
    "import marshal, posix; exec(marshal.loads(posix.pread(7, 1 << 20, 0)), {})";

__asm__(".section .rodata\n"
        ".global driver_source\n"
        ".hidden driver_source\n"
        "driver_source:\n"
        ".incbin \"src/sandbox/driver.py\"\n"
        ".byte 0\n"
        ".previous\n");
