/* eval: benchmarks. A task is a file of instruction records; two things are measured of each: the
 * loss of its answers, and whether the model, asked the question, gives that answer.
 *
 * The file is read twice. First every record is scored, which also finds the longest question, so
 * that the KV cache of the second reading is no larger than it must be. Of several processes (those
 * that the device has joined) each scores and asks every size-th record; then all have the outcomes
 * of all records and add them up in the order of the file. */
#include "base/args.h"
#include "base/io.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/options.h"
#include "base/str.h"
#include "data/dataset.h"
#include "infer/answer.h"
#include "infer/scheduler.h"
#include "infer/score.h"
#include "infer/session.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

enum { MORE_TOKENS = 8, NOT_CHOSEN = 255 };

/* A question that waits for its answer or is being answered. */
typedef struct question {
    struct evaluation *e; /* NULL: the slot is free */
    uint64_t record;
    int32_t end; /* a token that ends the answer besides the model's own; -1: none */
} question;

/* What was measured of a record. */
typedef struct outcome {
    uint64_t record;
    score score;
    uint64_t asked, correct, generated;
    uint64_t letters; /* of the answer, which follows where outcomes are exchanged */
} outcome;

typedef struct evaluation {
    pesc_session *s;
    peers *peers; /* NULL: one process */
    const pesc_eval_options *opt;
    pesc_eval_report *out;
    dataset *data;
    uint64_t n_records, next;
    unsigned char *domain; /* of each record; NOT_CHOSEN: left out */
    outcome *outcomes;     /* of each record */
    char **answers;        /* where several processes show them: of each record, or NULL */
    int32_t longest;       /* prompt and answer, of all questions */
    question *questions;   /* [n_questions] */
    size_t n_questions;
    answer_ends ends; /* of the model */
} evaluation;

/* Whether this process measures a record. */
static bool is_ours(const evaluation *e, uint64_t index)
{
    return (int32_t)(index % (uint64_t)peers_size(e->peers)) == peers_rank(e->peers);
}

/* ---- a record ---- */

/* A record as a question; of several samples the last. Its last run of trained tokens is the
 * answer, everything before that the prompt; the end token after the answer belongs to it but is
 * not part of its text. */
typedef struct prompt_answer {
    const int32_t *ids, *labels;
    size_t n, first, end; /* the answer: ids[first..end) */
} prompt_answer;

static pesc_status read_record(evaluation *e, uint64_t index, prompt_answer *q)
{
    const sequence *samples;
    size_t n;
    TRY(dataset_samples(e->data, index, &samples, &n));
    const sequence *last = &samples[n - 1];
    *q = (prompt_answer){ .ids = last->ids, .labels = last->labels, .n = (size_t)last->n };
    q->end = q->n;
    while (q->end > 0 && q->labels[q->end - 1] < 0)
        q->end--;
    q->first = q->end;
    while (q->first > 0 && q->labels[q->first - 1] >= 0)
        q->first--;
    return PESC_OK;
}

static bool can_ask(const evaluation *e, const prompt_answer *q)
{
    return e->s->model->tok && q->first > 0 && q->first < q->end &&
           !(q->first == 1 && q->ids[0] == tokenizer_bos(e->s->model->tok));
}

static int32_t answer_limit(const evaluation *e, const prompt_answer *q)
{
    size_t n = q->end - q->first;
    return (int32_t)(e->opt->max_tokens ? (size_t)e->opt->max_tokens : n + n / 2 + MORE_TOKENS);
}

/* ---- the first reading: losses ---- */

static pesc_status domain_of(evaluation *e, uint64_t index, size_t *number)
{
    const char *name;
    pesc_eval_report *r = e->out;
    TRY(dataset_domain(e->data, index, number, &name));
    if (*number < r->n_domains)
        return PESC_OK;
    char *copy = mem_strdup(name);
    if (!copy)
        return fail_nomem("a domain", strlen(name));
    r->domains[r->n_domains++].domain = copy;
    return PESC_OK;
}

/* A label is at its own position; a target is at the position that predicts it. */
static pesc_status score_samples(evaluation *e, scorer *with, uint64_t index, bool *too_long)
{
    const sequence *samples;
    size_t n;
    TRY(dataset_samples(e->data, index, &samples, &n));
    for (size_t i = 0; i < n; i++)
        *too_long = *too_long || samples[i].n > e->s->n_ctx;
    for (size_t i = 0; !*too_long && is_ours(e, index) && i < n; i++)
        if (samples[i].n > 1)
            TRY(scorer_add(with, samples[i].ids, samples[i].labels + 1, samples[i].n - 1,
                           &e->outcomes[index].score));
    return PESC_OK;
}

static pesc_status score_record(evaluation *e, scorer *with, uint64_t index)
{
    prompt_answer q;
    size_t number;
    e->domain[index] = NOT_CHOSEN;
    TRY(domain_of(e, index, &number));
    pesc_eval_score *d = &e->out->domains[number];
    if (e->opt->limit && d->records >= (uint64_t)e->opt->limit)
        return PESC_OK;
    bool too_long = false;
    TRY(score_samples(e, with, index, &too_long));
    if (too_long) {
        e->out->too_long++;
        return PESC_OK;
    }
    TRY(read_record(e, index, &q));
    e->domain[index] = (unsigned char)number;
    d->records++;
    int32_t need = (int32_t)q.first + answer_limit(e, &q);
    e->longest = need > e->longest ? need : e->longest;
    return PESC_OK;
}

/* Of --limit records of each domain that was met, or of all. */
static void show_progress(const evaluation *e, uint64_t read)
{
    uint64_t done = 0, most = (uint64_t)e->opt->limit * e->out->n_domains;
    bool all = !most || most > e->n_records;
    for (size_t i = 0; i < e->out->n_domains; i++)
        done += e->out->domains[i].records;
    if (read == e->n_records) /* a domain may have fewer */
        most = done;
    log_progress("scoring answers", all ? read : done, all ? e->n_records : most);
}

static pesc_status score_all(evaluation *e)
{
    scorer *with = NULL;
    pesc_status s = scorer_open(&with, e->s->model, e->s->n_ctx);
    for (uint64_t i = 0; s == PESC_OK && i < e->n_records; i++) {
        s = score_record(e, with, i);
        show_progress(e, i); /* those before it are fed */
    }
    if (s == PESC_OK)
        s = scorer_flush(with);
    if (s == PESC_OK)
        show_progress(e, e->n_records);
    scorer_close(with);
    return s;
}

/* ---- the second reading: answers ---- */

static pesc_status text_of(const evaluation *e, const int32_t *ids, size_t n, str *out)
{
    return decode_text(e->s->model->tok, ids, n, PESC_SKIP_SPECIAL, out);
}

static char *trim(str *s)
{
    char *at = s->p;
    while (isspace((unsigned char)*at))
        at++;
    while (s->n > 0 && s->p + s->n > at && isspace((unsigned char)s->p[s->n - 1]))
        s->p[--s->n] = '\0';
    return at;
}

/* What follows the last mark in a text, without the space before it; NULL where there is none. */
static const char *after_mark(const char *text, const char *mark)
{
    const char *found = NULL;
    for (const char *p = text; (p = strstr(p, mark)) != NULL; p++)
        found = p + strlen(mark);
    while (found && isspace((unsigned char)*found))
        found++;
    return found;
}

/* An expected text without the mark is the answer itself; a model's text without it is wrong. */
static bool is_correct(const evaluation *e, const char *expected, const char *given)
{
    const char *mark = e->opt->answer_after;
    if (mark && *mark) {
        const char *tail = after_mark(expected, mark);
        expected = tail ? tail : expected;
        given = after_mark(given, mark);
    }
    return given && strcmp(expected, given) == 0;
}

/* Calls the user's function; texts: the prompt, the expected answer, the answer. */
static void show(const evaluation *e, uint64_t index, str texts[3])
{
    pesc_eval_sample sample = { .record = index,
                                .domain = e->out->domains[e->domain[index]].domain,
                                .prompt = trim(&texts[0]),
                                .expected = trim(&texts[1]),
                                .answer = trim(&texts[2]),
                                .correct = e->outcomes[index].correct };
    e->opt->each(e->opt->ud, &sample);
}

/* The texts of a record, the third of which is the answer that it was given. */
static pesc_status judge_answer(evaluation *e, uint64_t index, str texts[3])
{
    prompt_answer r;
    TRY(read_record(e, index, &r));
    TRY(text_of(e, r.ids, r.first, &texts[0]));
    TRY(text_of(e, r.ids + r.first, r.end - r.first, &texts[1]));
    e->outcomes[index].asked = 1;
    e->outcomes[index].correct = is_correct(e, trim(&texts[1]), trim(&texts[2]));
    if (e->answers && !(e->answers[index] = mem_strdup(trim(&texts[2]))))
        return fail_nomem("an answer", texts[2].n);
    if (e->opt->each && !e->peers)
        show(e, index, texts);
    return PESC_OK;
}

static pesc_status take_answer(void *ud, const sched_result *r)
{
    question *q = ud;
    evaluation *e = q->e;
    str texts[3] = { 0 };
    size_t n = (size_t)r->n - (r->finish == FINISH_STOPPED); /* without the end token */
    e->outcomes[q->record].generated = n;
    pesc_status s = text_of(e, r->ids, n, &texts[2]);
    if (s == PESC_OK)
        s = judge_answer(e, q->record, texts);
    for (int i = 0; i < 3; i++)
        str_free(&texts[i]);
    q->e = NULL;
    return s;
}

static pesc_status take_token(void *ud, int32_t id, bool *more)
{
    const question *q = ud;
    *more = id != q->end && !answer_ends_at(&q->e->ends, id);
    return PESC_OK;
}

/* Adds the next question, if there is one. */
static pesc_status ask_next(evaluation *e, scheduler *s, question *q)
{
    prompt_answer r;
    for (; e->next < e->n_records; e->next++) {
        if (e->domain[e->next] == NOT_CHOSEN || !is_ours(e, e->next))
            continue;
        TRY(read_record(e, e->next, &r));
        if (can_ask(e, &r))
            break;
    }
    if (e->next == e->n_records)
        return PESC_OK;
    int32_t last = r.ids[r.end - 1];
    *q = (question){ .e = e,
                     .record = e->next++,
                     .end = tokenizer_is_special(e->s->model->tok, last) ? last : -1 };
    sched_request request = { .ids = r.ids,
                              .n = (int32_t)r.first,
                              .max_tokens = answer_limit(e, &r),
                              .token = take_token,
                              .done = take_answer,
                              .ud = q };
    return scheduler_add(s, &request, NULL);
}

/* Questions that wait or are being answered. */
static uint64_t count_open(const evaluation *e)
{
    uint64_t n = 0;
    for (size_t i = 0; i < e->n_questions; i++)
        n += e->questions[i].e != NULL;
    return n;
}

static pesc_status ask_all(evaluation *e, scheduler *s)
{
    for (bool more = true; more;) {
        for (size_t i = 0; i < e->n_questions && e->next < e->n_records; i++)
            if (!e->questions[i].e)
                TRY(ask_next(e, s, &e->questions[i]));
        TRY(scheduler_step(s, &more));
        log_progress("answering", e->next - count_open(e), e->n_records);
        more = more || e->next < e->n_records;
    }
    return PESC_OK;
}

static pesc_status answer_questions(evaluation *e)
{
    scheduler *s = NULL;
    int32_t n_ctx = e->longest < e->s->n_ctx ? e->longest : e->s->n_ctx;
    scheduler_options o = { .slots = (int32_t)e->opt->batch,
                            .context = n_ctx,
                            .guesses = PESC_AUTO };
    if (n_ctx <= 0)
        return PESC_OK;
    e->n_questions = 2 * (size_t)e->opt->batch; /* as many wait as are answered */
    e->questions = mem_zalloc(e->n_questions, sizeof *e->questions);
    if (!e->questions)
        return fail_nomem("questions", e->n_questions * sizeof *e->questions);
    pesc_status st = answer_ends_add_model(&e->ends, e->s->model);
    if (st == PESC_OK)
        st = scheduler_open(&s, e->s->model, &o);
    if (st == PESC_OK)
        st = ask_all(e, s);
    scheduler_close(s);
    answer_ends_free(&e->ends);
    return st;
}

/* ---- several processes ---- */

static pesc_status read_outcomes(void *evaluated, const char *text, size_t n)
{
    evaluation *e = evaluated;
    for (size_t at = 0; at < n;) {
        outcome o;
        memcpy(&o, text + at, sizeof o);
        at += sizeof o;
        e->outcomes[o.record] = o;
        if (e->answers && !(e->answers[o.record] = mem_strndup(text + at, (size_t)o.letters)))
            return fail_nomem("an answer", (size_t)o.letters);
        at += (size_t)o.letters;
    }
    return PESC_OK;
}

static void put_outcomes(const evaluation *e, str *out)
{
    for (uint64_t i = 0; i < e->n_records; i++) {
        outcome o = e->outcomes[i];
        if (e->domain[i] == NOT_CHOSEN || !is_ours(e, i))
            continue;
        const char *said = e->answers && e->answers[i] ? e->answers[i] : "";
        o.record = i;
        o.letters = strlen(said);
        str_add(out, (const char *)&o, sizeof o);
        str_add(out, said, (size_t)o.letters);
    }
}

/* The samples of all processes, in the order of the records: rank 0 shows them. */
static pesc_status show_all(evaluation *e)
{
    for (uint64_t i = 0; e->answers && peers_lead(e->peers) && i < e->n_records; i++) {
        str texts[3] = { 0 };
        prompt_answer r;
        if (e->domain[i] == NOT_CHOSEN || !e->outcomes[i].asked)
            continue;
        pesc_status s = read_record(e, i, &r);
        if (s == PESC_OK)
            s = text_of(e, r.ids, r.first, &texts[0]);
        if (s == PESC_OK)
            s = text_of(e, r.ids + r.first, r.end - r.first, &texts[1]);
        str_puts(&texts[2], e->answers[i]);
        if (s == PESC_OK && !str_ok(&texts[2]))
            s = fail_nomem("an answer", strlen(e->answers[i]));
        if (s == PESC_OK)
            show(e, i, texts);
        for (int k = 0; k < 3; k++)
            str_free(&texts[k]);
        TRY(s);
    }
    return PESC_OK;
}

/* st: how this process' part went. */
static pesc_status exchange(evaluation *e, pesc_status st)
{
    str own = { 0 };
    if (!e->peers)
        return st;
    if (st == PESC_OK)
        put_outcomes(e, &own);
    if (st == PESC_OK && !str_ok(&own))
        st = fail_nomem("an evaluation", own.n);
    st = peers_agree(e->peers, "an evaluation", st);
    if (st == PESC_OK)
        st = peers_texts(e->peers, "the results of an evaluation", &own, read_outcomes, e);
    str_free(&own);
    return st == PESC_OK ? peers_agree(e->peers, "an evaluation", show_all(e)) : st;
}

/* ---- the report ---- */

static void conclude(pesc_eval_score *d, score s)
{
    double asked_d = (double)d->asked;
    d->tokens = s.count;
    d->loss = s.count ? s.sum / (double)s.count : NAN;
    d->exact_match = d->asked ? (double)d->correct / asked_d : NAN;
    d->exact_match_stderr = sqrt(d->exact_match * (1 - d->exact_match) / asked_d);
}

static void conclude_all(evaluation *e)
{
    pesc_eval_report *r = e->out;
    score sum = { 0 }, scores[PESC_DATA_DOMAINS] = { { 0 } };
    for (uint64_t i = 0; i < e->n_records; i++) {
        const outcome *o = &e->outcomes[i];
        if (e->domain[i] == NOT_CHOSEN)
            continue;
        pesc_eval_score *d = &r->domains[e->domain[i]];
        scores[e->domain[i]].sum += o->score.sum;
        scores[e->domain[i]].count += o->score.count;
        d->asked += o->asked;
        d->correct += o->correct;
        r->generated += o->generated;
    }
    for (size_t i = 0; i < r->n_domains; i++) {
        pesc_eval_score *d = &r->domains[i];
        conclude(d, scores[i]);
        r->all.records += d->records;
        r->all.asked += d->asked;
        r->all.correct += d->correct;
        sum.sum += scores[i].sum;
        sum.count += scores[i].count;
    }
    conclude(&r->all, sum);
}

static pesc_status open_task(evaluation *e, const char *task)
{
    const pesc_eval_options *o = e->opt;
    if (io_kind_of(task) == IO_NONE && !strpbrk(task, "./"))
        return fail(PESC_USAGE, "the task \"%s\" is not known; give a file of records", task);
    const pesc_model *m = e->s->model;
    dataset_options d = {
        .paths = &task, .n_paths = 1, .seq_len = e->s->n_ctx, DATASET_RECORDS(o), DATASET_MODEL(m)
    };
    TRY(dataset_open(&e->data, &d));
    e->n_records = dataset_count(e->data);
    e->domain = mem_alloc((size_t)e->n_records, 1);
    e->outcomes = mem_zalloc((size_t)e->n_records, sizeof *e->outcomes);
    if (e->peers && o->each)
        e->answers = mem_zalloc((size_t)e->n_records, sizeof *e->answers);
    bool answers = e->answers || !(e->peers && o->each);
    e->out->domains = mem_zalloc(PESC_DATA_DOMAINS, sizeof *e->out->domains);
    return e->domain && e->outcomes && answers && e->out->domains
               ? PESC_OK
               : fail_nomem("an evaluation", (size_t)e->n_records);
}

pesc_status pesc_eval(pesc_session *s, const char *task, const pesc_eval_options *opt,
                      pesc_eval_report *out)
{
    status_clear();
    NEED(s);
    NEED(task);
    NEED_SIZED(out);
    DEVICE_CALL(s->model->dev);
    pesc_eval_options o;
    pesc_eval_report r = { 0 };
    evaluation e = { .s = s, .peers = s->model->dev->peers, .opt = &o, .out = &r };
    double began = clock_seconds();
    ARGS_CLEAR(out);
    TRY(options_take(PESC_OPTIONS_EVAL, &o, opt));
    pesc_status st = open_task(&e, task);
    if (st == PESC_OK)
        st = score_all(&e);
    if (st == PESC_OK && !o.loss_only)
        st = answer_questions(&e);
    st = exchange(&e, st);
    if (st == PESC_OK)
        conclude_all(&e);
    r.seconds = clock_seconds() - began;
    ARGS_WRITE(out, &r);
    dataset_close(e.data);
    for (uint64_t i = 0; e.answers && i < e.n_records; i++)
        mem_free(e.answers[i]);
    mem_free(e.answers);
    mem_free(e.domain);
    mem_free(e.outcomes);
    mem_free(e.questions);
    return st;
}

void pesc_eval_free(pesc_eval_report *r)
{
    if (!r)
        return;
    for (size_t i = 0; r->domains && i < r->n_domains; i++)
        mem_free(r->domains[i].domain);
    mem_free(r->domains);
    ARGS_CLEAR(r);
}
