#include "cli/opt/tool.h"

#include "cli/opt/line.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 1 << 20 }; /* bytes of a result */

/* ---- what there is ---- */

static pesc_status check(const char *value)
{
    const char *program = strchr(value, '=');
    if (!program || program == value || !program[1])
        return out_fail(PESC_USAGE, "chat: --tool: found %s, expected NAME=PROGRAM", value);
    program++;
    if (strchr(program, '/') && access(program, X_OK) != 0)
        return out_fail(PESC_USAGE, "chat: --tool: %s cannot be run: %s", program, strerror(errno));
    return PESC_OK;
}

/* What PROGRAM.json says of the tool; *about NULL: there is no such file. */
static pesc_status read_about(const char *program, json_t **about)
{
    char path[PATH_MAX];
    json_error_t e;
    *about = NULL;
    int n = snprintf(path, sizeof path, "%s.json", program);
    if (n >= (int)sizeof path || access(path, F_OK) != 0)
        return PESC_OK;
    json_t *v = json_load_file(path, JSON_REJECT_DUPLICATES, &e);
    if (!v)
        return out_fail(PESC_FORMAT, "%s: cannot read it as JSON: line %d: %s", path, e.line,
                        e.text);
    json_t *inner = json_object_get(v, "function");
    *about = json_incref(inner ? inner : v);
    json_decref(v);
    const json_t *text = json_object_get(*about, "description");
    const json_t *parameters = json_object_get(*about, "parameters");
    if (json_is_object(*about) && (!text || json_is_string(text)) &&
        (!parameters || json_is_object(parameters)))
        return PESC_OK;
    json_decref(*about);
    *about = NULL;
    return out_fail(PESC_FORMAT,
                    "%s: expected an object with description, a text, and parameters, a JSON "
                    "Schema",
                    path);
}

static pesc_status add_tool(json_t *tools, const char *value)
{
    json_t *about;
    TRY(check(value));
    const char *program = strchr(value, '=') + 1;
    TRY(read_about(program, &about));
    json_t *text = json_object_get(about, "description");
    json_t *parameters = json_object_get(about, "parameters");
    json_t *one =
        json_pack("{s:s, s:{s:s%, s:O*, s:o}}", "type", "function", "function", "name", value,
                  (size_t)(program - 1 - value), "description", text, "parameters",
                  parameters ? json_incref(parameters) : json_pack("{s:s}", "type", "object"));
    json_decref(about);
    if (!one)
        return out_fail(PESC_USAGE, "chat: --tool: the name in %s is not UTF-8", value);
    return json_array_append_new(tools, one) == 0 ? PESC_OK : out_nomem("the tools");
}

pesc_status tool_open(const char *const *given, size_t n, json_t **tools)
{
    *tools = NULL;
    if (n == 0)
        return PESC_OK;
    if (!(*tools = json_array()))
        return out_nomem("the tools");
    for (size_t i = 0; i < n; i++)
        TRY(add_tool(*tools, given[i]));
    return PESC_OK;
}

const char *tool_program(const char *const *given, size_t n, const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < n; i++)
        if (strncmp(given[i], name, len) == 0 && given[i][len] == '=')
            return given[i] + len + 1;
    return NULL;
}

/* ---- running one ---- */

/* The arguments as a file: a pipe would have to be written while the output is read. */
static int arguments_file(const char *arguments)
{
    FILE *f = tmpfile();
    if (!f)
        return -1;
    fputs(arguments, f);
    int fd = fflush(f) == 0 ? fcntl(fileno(f), F_DUPFD_CLOEXEC, 3) : -1;
    fclose(f);
    if (fd >= 0)
        lseek(fd, 0, SEEK_SET);
    return fd;
}

static pid_t start(const char *program, int in, int out)
{
    fflush(NULL);
    pid_t child = fork();
    if (child != 0)
        return child;
    char *words[] = { (char *)program, NULL };
    if (dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0)
        execvp(program, words);
    fprintf(stderr, "pesc: %s: cannot be run: %s\n", program, strerror(errno));
    _exit(127);
}

/* Reads to the end; what is beyond MOST bytes is read and dropped, *cut then. *stopped: Ctrl-C
 * ended it. */
static size_t read_result(int from, char *to, bool *cut, bool *stopped)
{
    char beyond[4096];
    size_t n = 0;
    for (;;) {
        bool full = n == MOST;
        ssize_t got = read(from, full ? beyond : to + n, full ? sizeof beyond : MOST - n);
        *stopped = *stopped || line_interrupted();
        if (got == 0 || *stopped || (got < 0 && errno != EINTR))
            return n;
        *cut = *cut || (full && got > 0);
        n += !full && got > 0 ? (size_t)got : 0;
    }
}

static bool is_text(const char *bytes, size_t n)
{
    json_t *text = memchr(bytes, 0, n) ? NULL : json_stringn(bytes, n);
    bool valid = text != NULL;
    json_decref(text);
    return valid;
}

/* Adds how the program ended to what it wrote. Text that is not UTF-8 is no result. */
static void add_end(char *result, size_t n, bool cut, int status)
{
    static const char no_text[] = "error: the output of the tool is not UTF-8 text";
    static const char rest[] = "\n(the output was cut here, after 1 MiB)";
    char end[80] = "";
    bool valid = is_text(result, n);
    for (int i = 0; cut && !valid && i < 3; i++) /* in the middle of a character */
        valid = is_text(result, --n);
    if (!valid) {
        memcpy(result, no_text, n = sizeof no_text - 1);
    } else if (cut) {
        memcpy(result + n, rest, sizeof rest - 1);
        n += sizeof rest - 1;
    }
    if (WIFSIGNALED(status))
        snprintf(end, sizeof end, "%serror: the tool was ended by signal %d", n ? "\n" : "",
                 WTERMSIG(status));
    else if (WEXITSTATUS(status) != 0)
        snprintf(end, sizeof end, "%serror: the tool ended with status %d", n ? "\n" : "",
                 WEXITSTATUS(status));
    while (n > 0 && !*end && (result[n - 1] == '\n' || result[n - 1] == '\r'))
        n--;
    memcpy(result + n, end, strlen(end) + 1);
}

pesc_status tool_run(const char *program, const char *arguments, char **result)
{
    int in = arguments_file(arguments), out[2] = { -1, -1 }, status = 0;
    bool stopped = false, cut = false;
    *result = malloc(MOST + 256);
    pid_t child = -1;
    if (*result && in >= 0 && pipe2(out, O_CLOEXEC) == 0)
        child = start(program, in, out[1]);
    pesc_status st =
        child > 0 ? PESC_OK
                  : out_fail(PESC_IO, "chat: %s cannot be run: %s", program, strerror(errno));
    if (in >= 0)
        close(in);
    if (out[1] >= 0)
        close(out[1]);
    if (child > 0) {
        size_t n = read_result(out[0], *result, &cut, &stopped);
        if (stopped)
            kill(child, SIGTERM);
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            if (line_interrupted()) { /* again: it does not end by itself */
                kill(child, stopped ? SIGKILL : SIGTERM);
                stopped = true;
            }
        add_end(*result, n, cut, status);
    }
    if (out[0] >= 0)
        close(out[0]);
    if (st == PESC_OK && stopped)
        st = out_fail(PESC_STOPPED, "chat: %s was stopped", program);
    if (st == PESC_OK)
        return st;
    free(*result);
    *result = NULL;
    return st;
}
