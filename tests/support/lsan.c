/* What the leak checker need not tell: fontconfig keeps the patterns it matched until the process
 * ends, and cairo gives no way to ask for them back. */
const char *__lsan_default_suppressions(void);

const char *__lsan_default_suppressions(void)
{
    return "leak:libfontconfig\n";
}
