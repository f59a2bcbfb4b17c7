#include "cli/opt/processes.h"

#include "cli/command.h"
#include "cli/opt/input.h"
#include "cli/show/progress.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- starting ---- */

static pid_t *children;
static volatile int n_children;

static void pass_on(int sig)
{
    for (int i = 0; i < n_children; i++)
        if (children[i] > 0)
            kill(children[i], sig);
}

/* A socket that listens on a free port of this machine; below 0: there is none. Rank 0 inherits it,
 * so the port cannot be taken by another program. */
static int open_gate(int *port)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&at, n) == 0 && listen(fd, SOMAXCONN) == 0 &&
        getsockname(fd, (struct sockaddr *)&at, &n) == 0) {
        *port = ntohs(at.sin_port);
        return fd;
    }
    return -1;
}

/* The words of this command, which end with NULL; the text they are in is never freed. */
static char **own_words(void)
{
    enum { MOST = 1 << 20, WORDS = 4096 };
    int fd = open("/proc/self/cmdline", O_RDONLY);
    char *text = malloc(MOST + 1), **words = calloc(WORDS + 1, sizeof *words);
    ssize_t n = 0, got = 0;
    while (fd >= 0 && text && n < MOST && (got = read(fd, text + n, (size_t)(MOST - n))) > 0)
        n += got;
    if (fd >= 0)
        close(fd);
    if (!words || n <= 0 || n >= MOST)
        return NULL;
    text[n] = '\0';
    size_t count = 0;
    for (char *p = text; p < text + n && count < WORDS; p += strlen(p) + 1)
        words[count++] = p;
    return words;
}

static void set_number(const char *name, int64_t v)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)v);
    setenv(name, text, 1);
}

/* What a child is told. */
typedef struct place {
    int64_t rank, size;
    int gate, port;
} place;

/* In the child. It has its own process group, so that a key on the terminal reaches it once,
 * through the parent, and it ends with the parent. */
static void become(place p, char **words)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    set_number("RANK", p.rank);
    set_number("LOCAL_RANK", p.rank);
    set_number("WORLD_SIZE", p.size);
    set_number("LOCAL_WORLD_SIZE", p.size);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    set_number("MASTER_PORT", p.port);
    set_number("PESC_GATE", p.gate);
    if (p.rank > 0)
        close(p.gate);
    unsetenv("TORCHELASTIC_USE_AGENT_STORE");
    execv("/proc/self/exe", words);
    _exit(127);
}

/* The code of the run from those of its processes: theirs where they agree; else the first that
 * says more than that another process failed. */
static int common_code(const int *codes, int n)
{
    bool same = true;
    int first = 1;
    for (int i = n - 1; i >= 0; i--) {
        same = same && codes[i] == codes[0];
        if (codes[i] > 1 && codes[i] < 75)
            first = codes[i];
    }
    return same && codes[0] <= 75 ? codes[0] : first;
}

static int wait_all(int n)
{
    int *codes = calloc((size_t)n, sizeof *codes);
    for (int left = n; left > 0;) {
        int status;
        pid_t p = wait(&status);
        if (p < 0 && errno == EINTR)
            continue;
        if (p < 0)
            break;
        for (int i = 0; i < n; i++)
            if (children[i] == p && codes) {
                codes[i] = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
                children[i] = 0;
                left--;
            }
    }
    return codes ? common_code(codes, n) : 1;
}

/* Whether something has started this process as one of several. */
static bool is_rank(void)
{
    return getenv("RANK") || getenv("OMPI_COMM_WORLD_RANK");
}

/* Whether a GPU can be opened. Another process tries, so that this one keeps no memory of it. */
static bool has_gpu(void)
{
    pesc_device *dev;
    int status = 1;
    pid_t child = fork();
    if (child == 0)
        _exit(pesc_device_open(&dev, "cuda") != PESC_OK);
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

pesc_status processes_start(const options *o, processes_fit fits)
{
    static const int passed[] = { SIGTERM, SIGINT, SIGUSR1 };
    struct sigaction sa = { .sa_handler = pass_on, .sa_flags = SA_RESTART };
    int n = (int)o->gpus;
    if (n < 1 || is_rank())
        return PESC_OK;
    if (strcmp(o->device, "auto") == 0 && !has_gpu())
        return out_fail(PESC_USAGE,
                        "%s: --gpus %d: found no usable GPU (pesc doctor says what is missing); "
                        "--device cpu starts the processes on the CPU",
                        o->cmd->name, n);
    if (fits)
        TRY(fits(o));
    char **words = own_words();
    place p = { .size = n };
    p.gate = open_gate(&p.port);
    children = calloc((size_t)n, sizeof *children);
    if (!words || !children || p.gate < 0)
        return out_fail(PESC_NOMEM, "%s: --gpus: the processes cannot be started", o->cmd->name);
    fflush(NULL);
    sigemptyset(&sa.sa_mask);
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        sigaction(passed[i], &sa, NULL);
    for (int i = 0; i < n; i++) {
        p.rank = i;
        pid_t child = fork();
        if (child == 0)
            become(p, words);
        if (child < 0) {
            pass_on(SIGKILL);
            return out_fail(PESC_NOMEM, "%s: --gpus: process %d cannot be started: %s",
                            o->cmd->name, i, strerror(errno));
        }
        children[i] = child;
        n_children = i + 1;
    }
    close(p.gate);
    exit(wait_all(n));
}

/* ---- joining ---- */

static bool as_json;

/* From a thread of the library, while the command may be anywhere. */
static void on_lost(void *ud, const char *sentence)
{
    (void)ud;
    _exit(out_report(out_fail(PESC_LOST, "%s", sentence), as_json));
}

/* One of the GPUs that this process may see. */
static int64_t gpu_of(int32_t local)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int64_t n = 1;
    if (!visible || !*visible)
        return local;
    for (; *visible; visible++)
        n += *visible == ',';
    return local % n;
}

/* Processes that share a CPU divide its cores. */
static void divide_cores(options *o)
{
    const char *names[] = { "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE" };
    int64_t here = 1;
    for (size_t i = 0; i < sizeof names / sizeof *names && here == 1; i++) {
        const char *text = getenv(names[i]);
        if (text)
            input_int(text, strlen(text), 1, 1 << 20, &here);
    }
    int64_t cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (o->threads == 0 && here > 1 && cores > 0)
        o->threads = cores / here > 0 ? cores / here : 1;
}

pesc_status processes_join(pesc_comm **out, options *o)
{
    static char who[128], device[32];
    pesc_comm_options opt = { .size = sizeof opt, .lost = on_lost };
    as_json = o->json;
    if (strcmp(o->device, "auto") == 0 && is_rank() && (o->gpus > 0 || has_gpu()))
        o->device = "cuda";
    TRY(pesc_comm_open(out, &opt));
    if (!*out)
        return PESC_OK;
    int32_t rank = pesc_comm_rank(*out);
    divide_cores(o);
    if (strcmp(o->device, "cuda") == 0) {
        snprintf(device, sizeof device, "cuda:%lld", (long long)gpu_of(pesc_comm_local_rank(*out)));
        o->device = device;
    }
    snprintf(who, sizeof who, "rank %d (%.64s): ", rank, pesc_comm_host(*out));
    out_prefix(who);
    if (rank > 0) {
        as_json = o->json = false;
        o->quiet = true;
        progress_open(o->cmd->name, true);
    }
    return PESC_OK;
}

void processes_leave(pesc_comm *c, pesc_status st)
{
    bool failed = st != PESC_OK && st != PESC_STOPPED;
    pesc_comm_close(c, failed ? out_sentence(st) : NULL);
}
