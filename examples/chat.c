/* A conversation: one line of standard input is one message of the user.
 *
 *     chat MODEL [cpu|cuda]
 *
 * The whole conversation is encoded for each answer. The session keeps the keys and values of what
 * it has seen, so only the new tokens are computed. */
#include <pesc/pesc.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TURNS = 64, TOKENS = 4096, LINE = 4096 };

static bool emit(void *ud, const char *text, size_t n)
{
    return fwrite(text, 1, n, ud) == n && fflush(ud) == 0;
}

/* Generates the answer to the last message and adds it to the conversation. */
static pesc_status answer(pesc_session *s, const pesc_model *m, pesc_message *turns, size_t *n)
{
    static int32_t ids[TOKENS];
    size_t count = 0;
    pesc_generation g = PESC_INIT(pesc_generation);
    pesc_sample_options opt = pesc_sample_defaults();
    opt.temperature = 0.7; /* unless the model recommends another */
    opt.stop = pesc_chat_stops(pesc_model_chat_format(m), &opt.n_stop);
    pesc_status st = pesc_model_sampling(m, &opt);
    if (!st)
        st = pesc_chat_tokenize(m, NULL, turns, *n, ids, TOKENS, &count);
    if (!st)
        st = pesc_session_complete(s, ids, count < TOKENS ? count : TOKENS, &opt, emit, stdout, &g);
    if (!st) {
        turns[(*n)++] = (pesc_message){ "assistant", strdup(g.text) };
        putchar('\n');
    }
    pesc_generation_free(&g);
    return st;
}

static pesc_status converse(pesc_session *s, const pesc_model *m)
{
    pesc_message turns[TURNS];
    char line[LINE];
    size_t n = 0;
    pesc_status st = PESC_OK;
    while (!st && n + 2 <= TURNS && fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        turns[n++] = (pesc_message){ "user", strdup(line) };
        st = answer(s, m, turns, &n);
    }
    while (n > 0)
        free((char *)turns[--n].content);
    return st;
}

int main(int argc, char **argv)
{
    pesc_device *dev = NULL;
    pesc_model *m = NULL;
    pesc_session *s = NULL;
    if (argc < 2) {
        fprintf(stderr, "usage: chat MODEL [DEVICE]\n");
        return 2;
    }
    pesc_status st = pesc_device_open(&dev, argc > 2 ? argv[2] : "cpu");
    if (!st)
        st = pesc_model_open(&m, dev, argv[1], NULL);
    if (!st)
        st = pesc_session_open(&s, m, TOKENS);
    if (!st)
        st = converse(s, m);
    if (st)
        fprintf(stderr, "chat: %s\n", pesc_last_error());
    pesc_session_close(s);
    pesc_model_close(m);
    pesc_device_close(dev);
    return pesc_status_exit_code(st);
}
