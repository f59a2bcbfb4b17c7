/* Completes a prompt, with the text appearing as it is generated.
 *
 *     complete MODEL "Once upon a time" [cpu|cuda]
 *
 *     cc complete.c -o complete $(pkg-config --cflags --libs pesc) */
#include <pesc/pesc.h>

#include <stdio.h>

static void notice(void *ud, const char *sentence)
{
    (void)ud;
    fprintf(stderr, "note: %s\n", sentence);
}

/* Receives whole characters; returning false would end the generation. */
static bool emit(void *ud, const char *text, size_t n)
{
    return fwrite(text, 1, n, ud) == n && fflush(ud) == 0;
}

static pesc_status complete(pesc_session *s, const char *prompt)
{
    pesc_sample_options opt = pesc_sample_defaults();
    opt.max_tokens = 64;
    opt.temperature = 0.8;
    opt.top_p = 0.95;
    opt.seed = 1;
    return pesc_session_generate(s, prompt, &opt, emit, stdout);
}

int main(int argc, char **argv)
{
    pesc_device *dev = NULL;
    pesc_model *m = NULL;
    pesc_session *s = NULL;
    pesc_events ev = PESC_INIT(pesc_events);
    ev.notice = notice;
    if (argc < 3) {
        fprintf(stderr, "usage: complete MODEL PROMPT [DEVICE]\n");
        return 2;
    }
    pesc_status st = pesc_device_open(&dev, argc > 3 ? argv[3] : "cpu");
    if (!st)
        st = pesc_device_events(dev, &ev);
    if (!st)
        st = pesc_model_open(&m, dev, argv[1], NULL);
    if (!st)
        st = pesc_session_open(&s, m, 0);
    if (!st)
        st = complete(s, argv[2]);
    if (st)
        fprintf(stderr, "complete: %s\n", pesc_last_error());
    else
        putchar('\n');
    pesc_session_close(s);
    pesc_model_close(m);
    pesc_device_close(dev);
    return pesc_status_exit_code(st);
}
