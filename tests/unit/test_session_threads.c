/* Handles on several threads at once, as pesc.h allows: results are bit for bit those of one
 * thread, and events reach the callbacks of their own device, on the thread that made the call. */
#include "support/check.h"
#include "support/files.h"
#include "support/golden.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 4, PROMPT = 9, NEW = 24, ROUNDS = 3 };

typedef struct answer {
    int32_t ids[NEW];
    size_t n;
    float *logits; /* of the last token fed; for free() */
} answer;

typedef struct job {
    pesc_model *m;
    int number;
    answer out;
    pesc_status status;
    char why[256];
} job;

static const int32_t *prompt_of(int number)
{
    static int32_t ids[THREADS][PROMPT];
    for (int i = 0; i < PROMPT; i++)
        ids[number][i] = 3 + (number * 17 + i * 5) % 60;
    return ids[number];
}

static pesc_status complete(const job *j, answer *out)
{
    pesc_session *s = NULL;
    pesc_generation g = PESC_INIT(pesc_generation);
    pesc_sample_options opt = pesc_sample_defaults();
    pesc_model_info info = PESC_INIT(pesc_model_info);
    const float *logits;
    opt.max_tokens = NEW;
    opt.ignore_eos = true;
    pesc_status st = pesc_session_open(&s, j->m, 0);
    if (st == PESC_OK)
        st = pesc_session_complete(s, prompt_of(j->number), PROMPT, &opt, NULL, NULL, &g);
    if (st == PESC_OK)
        st = pesc_session_feed(s, g.ids, 1, &logits);
    if (st == PESC_OK)
        st = pesc_model_describe(j->m, &info);
    if (st == PESC_OK) {
        out->n = g.n_ids;
        memcpy(out->ids, g.ids, g.n_ids * sizeof *g.ids);
        out->logits = malloc((size_t)info.vocab * sizeof *logits);
        memcpy(out->logits, logits, (size_t)info.vocab * sizeof *logits);
    }
    pesc_generation_free(&g);
    pesc_session_close(s);
    return st;
}

static void *run_job(void *arg)
{
    job *j = arg;
    j->status = complete(j, &j->out);
    snprintf(j->why, sizeof j->why, "%s", pesc_last_error()); /* the message is per thread */
    return NULL;
}

static void join_all(pthread_t *threads, job *jobs, void *(*run)(void *))
{
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run, &jobs[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

/* Each thread has its own session; m[i] is the model of thread i. */
static void same_as_alone(pesc_model *const m[THREADS])
{
    pesc_model_info info = PESC_INIT(pesc_model_info);
    must(pesc_model_describe(m[0], &info));
    job alone[THREADS];
    for (int i = 0; i < THREADS; i++) {
        alone[i] = (job){ .m = m[i], .number = i };
        must(complete(&alone[i], &alone[i].out));
        assert_int_equal(alone[i].out.n, NEW);
    }
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[THREADS];
        job jobs[THREADS];
        for (int i = 0; i < THREADS; i++)
            jobs[i] = (job){ .m = m[i], .number = i };
        join_all(threads, jobs, run_job);
        for (int i = 0; i < THREADS; i++) {
            if (jobs[i].status != PESC_OK)
                fail_msg("thread %d: %s", i, jobs[i].why);
            assert_memory_equal(jobs[i].out.ids, alone[i].out.ids, sizeof alone[i].out.ids);
            assert_memory_equal(jobs[i].out.logits, alone[i].out.logits,
                                (size_t)info.vocab * sizeof(float));
            free(jobs[i].out.logits);
        }
    }
    for (int i = 0; i < THREADS; i++)
        free(alone[i].out.logits);
}

static void sessions_of_one_model_run_on_threads(void **state)
{
    (void)state;
    static const char *const models[] = { "llama", "camelidae", "deepseek_v2" };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        pesc_device *dev;
        pesc_model *m;
        must(pesc_device_open(&dev, golden_device()));
        must(pesc_model_open(&m, dev, golden_path(models[i]), NULL));
        same_as_alone((pesc_model *[]){ m, m, m, m });
        pesc_model_close(m);
        pesc_device_close(dev);
    }
}

static void models_of_two_devices_run_on_threads(void **state)
{
    (void)state;
    pesc_device *dev[2];
    pesc_model *m[2];
    for (int i = 0; i < 2; i++) {
        must(pesc_device_open(&dev[i], golden_device()));
        must(pesc_model_open(&m[i], dev[i], golden_path("camelidae"), NULL));
    }
    same_as_alone((pesc_model *[]){ m[0], m[1], m[0], m[1] });
    for (int i = 0; i < 2; i++) {
        pesc_model_close(m[i]);
        pesc_device_close(dev[i]);
    }
}

/* ---- tokenizers ---- */

enum { TEXTS = 40, IDS = 256 };

typedef struct reading {
    const pesc_tokenizer *t;
    int number, wrong;
} reading;

static size_t ids_of(const pesc_tokenizer *t, int text, int32_t ids[IDS])
{
    char line[160];
    size_t n = 0;
    snprintf(line, sizeof line, "Line %d: don't stop, it's %d o'clock; na\xc3\xafve caf\xc3\xa9s!",
             text, text * 7919);
    memset(ids, 0, IDS * sizeof *ids);
    return pesc_tokenize(t, line, strlen(line), PESC_ADD_SPECIAL, ids, IDS, &n) == PESC_OK ? n : 0;
}

static int32_t expected[TEXTS][IDS];
static size_t expected_n[TEXTS];

static void *read_texts(void *arg)
{
    reading *r = arg;
    for (int i = 0; i < TEXTS; i++) {
        int text = (i + r->number * TEXTS / THREADS) % TEXTS;
        int32_t ids[IDS];
        char back[512];
        size_t n = ids_of(r->t, text, ids), len;
        r->wrong += n != expected_n[text] || memcmp(ids, expected[text], sizeof ids) != 0;
        r->wrong += pesc_detokenize(r->t, ids, n, 0, back, sizeof back, &len) != PESC_OK;
    }
    return NULL;
}

static void one_tokenizer_serves_all_threads(void **state)
{
    (void)state;
    pesc_tokenizer *t;
    pthread_t threads[THREADS];
    reading jobs[THREADS];
    must(pesc_tokenizer_open(&t, "share/base", NULL));
    for (int i = 0; i < TEXTS; i++) {
        expected_n[i] = ids_of(t, i, expected[i]);
        assert_in_range(expected_n[i], 10, IDS);
    }
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (reading){ .t = t, .number = i };
        assert_int_equal(pthread_create(&threads[i], NULL, read_texts, &jobs[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(jobs[i].wrong, 0);
    }
    pesc_tokenizer_close(t);
}

/* ---- events ---- */

typedef struct listener {
    const char *own;  /* path of the one model this device opens */
    pthread_t thread; /* that makes all calls on the device */
    int notices, progress, foreign;
} listener;

static void on_notice(void *ud, const char *sentence)
{
    listener *l = ud;
    l->notices++;
    l->foreign += !strstr(sentence, l->own) || !pthread_equal(l->thread, pthread_self());
}

static void on_progress(void *ud, const char *what, uint64_t done, uint64_t total)
{
    listener *l = ud;
    l->progress++;
    l->foreign += !*what || done > total || !pthread_equal(l->thread, pthread_self());
}

static void *listen(void *arg)
{
    listener *l = arg;
    pesc_device *dev = NULL;
    pesc_events ev = PESC_INIT(pesc_events);
    ev.ud = l;
    ev.notice = on_notice;
    ev.progress = on_progress;
    l->thread = pthread_self();
    pesc_status st = pesc_device_open(&dev, "cpu:2");
    if (st == PESC_OK)
        st = pesc_device_events(dev, &ev);
    for (int i = 0; st == PESC_OK && i < 10; i++) {
        pesc_model *m = NULL;
        pesc_model_info info = PESC_INIT(pesc_model_info);
        pesc_perplexity_report r = PESC_INIT(pesc_perplexity_report);
        st = pesc_model_open(&m, dev, l->own, NULL);
        if (st == PESC_OK)
            st = pesc_perplexity(m, "One sentence is enough.", 23, 8, &r);
        if (st == PESC_OK)
            st = pesc_info(l->own, NULL, &ev, &info);
        pesc_model_close(m);
    }
    pesc_device_close(dev);
    l->foreign += st != PESC_OK;
    return NULL;
}

/* The base model with a configuration that causes a notice. */
static void put_model(const char *name)
{
    static const char *const copied[] = { "model.safetensors", "tokenizer.json" };
    char path[64], from[64];
    size_t n;
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++) {
        snprintf(from, sizeof from, "share/base/%s", copied[i]);
        snprintf(path, sizeof path, "%s/%s", name, copied[i]);
        char *bytes = files_get(from, &n);
        files_put(path, bytes, n);
        free(bytes);
    }
    char *config = files_get("share/base/config.json", &n), *brace = strrchr(config, '}');
    char text[4096];
    *brace = '\0';
    snprintf(text, sizeof text, "%s, \"auto_map\": {}}", config);
    snprintf(path, sizeof path, "%s/config.json", name);
    files_text(path, text);
    free(config);
}

static void each_device_has_its_own_events(void **state)
{
    (void)state;
    char own[2][512];
    listener l[2];
    pthread_t threads[2];
    put_model("first");
    put_model("second");
    snprintf(own[0], sizeof own[0], "%s", files_path("first"));
    snprintf(own[1], sizeof own[1], "%s", files_path("second"));
    for (int i = 0; i < 2; i++) {
        l[i] = (listener){ .own = own[i] };
        assert_int_equal(pthread_create(&threads[i], NULL, listen, &l[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(l[i].foreign, 0);
        assert_int_equal(l[i].notices, 20); /* ten models opened, ten described */
        assert_true(l[i].progress >= 10);
    }
}

static void a_callback_may_call_the_library(void *ud, const char *sentence)
{
    pesc_model_info info = PESC_INIT(pesc_model_info);
    (void)sentence;
    ++*(int *)ud;
    must(pesc_info(files_path("first"), NULL, NULL, &info));
}

static void a_call_inside_a_callback_has_no_events(void **state)
{
    (void)state;
    int calls = 0;
    pesc_model_info info = PESC_INIT(pesc_model_info);
    pesc_events ev = PESC_INIT(pesc_events);
    ev.ud = &calls;
    ev.notice = a_callback_may_call_the_library;
    put_model("first");
    must(pesc_info(files_path("first"), NULL, &ev, &info));
    assert_int_equal(calls, 1);
    must(pesc_info(files_path("first"), NULL, NULL, &info));
    assert_int_equal(calls, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sessions_of_one_model_run_on_threads),
        cmocka_unit_test(models_of_two_devices_run_on_threads),
        cmocka_unit_test(one_tokenizer_serves_all_threads),
        cmocka_unit_test(each_device_has_its_own_events),
        cmocka_unit_test(a_call_inside_a_callback_has_no_events),
    };
    return cmocka_run_group_tests_name("session threads", tests, NULL, NULL);
}
