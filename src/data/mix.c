/* mix: one data set made of several, as IDAE-500K was made of three.
 *
 * Records are drawn by two seeded permutations: that of a part's records gives the order in which
 * they are tried, that of the slots of the result decides which part fills the next slot. Both are
 * computed, not stored, so the result is written as a stream. In memory are 128-bit hashes of the
 * turns of every record written, by which duplicates are left out, also between parts.
 *
 * The file gets its name when it is complete; then OUT.mix.json is written, which describes how to
 * make the same bytes again. */
#include "base/args.h"
#include "base/io.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "data/record.h"
#include "data/shuffle.h"
#include "data/source.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

typedef struct hash_set {
    XXH128_hash_t *slots; /* zero: free */
    size_t mask;
} hash_set;

typedef struct part {
    pesc_mix_part *say;
    source *src;
    const record_format **formats; /* of each file */
    uint64_t next;                 /* in the permuted order */
    uint64_t written;
    rng_key key;
} part;

typedef struct mixer {
    part *parts;
    size_t n;
    uint64_t seed, total;
    hash_set seen;
    io_writer *out;
    XXH3_state_t *hash; /* of what was written */
    str line;
} mixer;

/* ---- records seen ---- */

static pesc_status set_open(hash_set *h, uint64_t entries)
{
    size_t slots = 16;
    while (slots / 2 < entries)
        slots *= 2;
    h->slots = mem_zalloc(slots, sizeof *h->slots);
    h->mask = slots - 1;
    return h->slots ? PESC_OK : fail_nomem("the hashes of records", slots * sizeof *h->slots);
}

/* False when it is in the set already. */
static bool set_add(hash_set *h, XXH128_hash_t x)
{
    x.low64 |= x.low64 == 0 && x.high64 == 0;
    for (size_t i = x.low64 & h->mask;; i = (i + 1) & h->mask) {
        if (h->slots[i].low64 == 0 && h->slots[i].high64 == 0) {
            h->slots[i] = x;
            return true;
        }
        if (XXH128_isEqual(h->slots[i], x))
            return false;
    }
}

/* ---- parts ---- */

static pesc_status part_open(part *p, pesc_mix_part *say, uint64_t seed, size_t number)
{
    *p = (part){ .say = say, .key = { seed, rng_stream(SHUFFLE_PART, number, 0) } };
    say->available = say->duplicates = say->unusable = 0;
    if (say->n_files == 0)
        return fail(PESC_USAGE, "%s: no file was given", say->domain);
    TRY(source_open(&p->src, say->files, say->n_files, say->unpack_ratio));
    say->available = source_count(p->src);
    if (say->available < say->records)
        return fail(PESC_USAGE, "%s: %s%s: found %llu records, but %llu are wanted", say->domain,
                    say->files[0], say->n_files > 1 ? " and the others" : "",
                    (unsigned long long)say->available, (unsigned long long)say->records);
    return record_formats(p->src, NULL, RECORD_INSTRUCTION, &p->formats);
}

/* ---- records ---- */

/* A record is usable when it has a user's message and its last answer is not empty. */
static bool usable(const record *r)
{
    bool asked = false, answered = false;
    for (size_t i = 0; i < r->n; i++) {
        const json_t *m = json_array_get(r->messages, i), *said = json_object_get(m, "content");
        const char *role = json_string_value(json_object_get(m, "role"));
        const char *text = json_is_string(said) ? json_string_value(said) : "";
        bool parts = json_array_size(said) > 0;
        if (strcmp(role, "user") == 0)
            asked |= *text || parts;
        if (strcmp(role, "assistant") == 0)
            answered = parts || json_has(m, "tool_calls") || text[strspn(text, " \t\r\n")];
    }
    return asked && answered;
}

/* The record as a line of the result, in m->line. Its hash is that of this text. */
static pesc_status write_turns(mixer *m, const record *r)
{
    bool fine = true;
    for (size_t i = 0; i < r->n && fine; i++)
        fine = !r->masked[i] ||
               json_object_set_new(json_array_get(r->messages, i), "mask", json_integer(1)) == 0;
    str_clear(&m->line);
    str_puts(&m->line, "{\"messages\":");
    json_put(&m->line, r->messages, JSON_COMPACT);
    if (r->tools) {
        str_puts(&m->line, ",\"tools\":");
        json_put(&m->line, r->tools, JSON_COMPACT);
    }
    return fine && str_ok(&m->line) ? PESC_OK : fail_nomem("a data record", m->line.n);
}

/* Reads one record. *taken: it is new and usable, and m->line has it up to the end of its turns. */
static pesc_status try_record(mixer *m, part *p, uint64_t index, bool *taken)
{
    json_t *v;
    record r = { 0 };
    *taken = false;
    TRY(source_record(p->src, index, &v));
    pesc_status s = record_read(&r, p->formats[source_file_of(p->src, index)], v);
    if (s == PESC_OK && r.kind != RECORD_CHAT && r.kind != RECORD_COMPLETION)
        s = fail(PESC_UNSUPPORTED,
                 "found plain text or token ids, expected a prompt and its answer");
    if (s != PESC_OK && s != PESC_NOMEM) {
        char why[1024];
        snprintf(why, sizeof why, "%s", pesc_last_error());
        s = fail(s, "%s: %s", source_where(p->src, index), why);
    }
    bool fit = s == PESC_OK && usable(&r);
    if (fit)
        s = write_turns(m, &r);
    if (fit && s == PESC_OK) {
        *taken = set_add(&m->seen, XXH3_128bits(m->line.p, m->line.n));
        p->say->duplicates += !*taken;
    }
    p->say->unusable += s == PESC_OK && !fit;
    record_free(&r);
    json_decref(v);
    return s;
}

static pesc_status put_next(mixer *m, part *p)
{
    const pesc_mix_part *say = p->say;
    for (bool taken = false; !taken;) {
        if (p->next == say->available)
            return fail(PESC_USAGE,
                        "%s: %s%s: found %llu records that can be used, but %llu are wanted: of "
                        "%llu, %llu are duplicates and %llu have no prompt or no answer",
                        say->domain, say->files[0], say->n_files > 1 ? " and the others" : "",
                        (unsigned long long)p->written, (unsigned long long)say->records,
                        (unsigned long long)say->available, (unsigned long long)say->duplicates,
                        (unsigned long long)say->unusable);
        TRY(try_record(m, p, shuffle_at(p->key, say->available, p->next++), &taken));
    }
    p->written++;
    json_t *domain = json_string(say->domain);
    str_puts(&m->line, ",\"domain\":");
    json_put(&m->line, domain, 0);
    str_puts(&m->line, "}\n");
    json_decref(domain);
    if (!str_ok(&m->line))
        return fail_nomem("a data record", m->line.n);
    XXH3_64bits_update(m->hash, m->line.p, m->line.n);
    return io_write(m->out, m->line.p, m->line.n);
}

/* Which part fills a slot: the slots are numbered part after part, then permuted. */
static pesc_status put_all(mixer *m)
{
    rng_key key = { m->seed, rng_stream(SHUFFLE_SLOTS, 0, 0) };
    for (uint64_t i = 0; i < m->total; i++) {
        uint64_t slot = shuffle_at(key, m->total, i);
        size_t k = 0;
        while (slot >= m->parts[k].say->records)
            slot -= m->parts[k++].say->records;
        TRY(put_next(m, &m->parts[k]));
        if (i % 1024 == 0)
            log_progress("mixing", i, m->total);
    }
    return PESC_OK;
}

/* ---- OUT.mix.json ---- */

static json_t *hex(uint64_t hash)
{
    char text[17];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
    return json_string(text);
}

/* *list is NULL once an item could not be made, and json_pack() refuses that. */
static void append(json_t **list, json_t *item)
{
    if (json_array_append_new(*list, item) != 0) {
        json_decref(*list);
        *list = NULL;
    }
}

static json_t *describe_part(const part *p)
{
    const pesc_mix_part *say = p->say;
    json_t *files = json_array();
    for (size_t i = 0; i < say->n_files; i++) {
        char path[4096]; /* a file's name need not be UTF-8, JSON is */
        utf8_visible(path, sizeof path, say->files[i], strlen(say->files[i]));
        append(&files,
               json_pack("{s:s, s:s}", "path", path, "format", record_format_name(p->formats[i])));
    }
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:o, s:o}", "domain", say->domain, "records",
                     (json_int_t)say->records, "available", (json_int_t)say->available,
                     "duplicates", (json_int_t)say->duplicates, "unusable",
                     (json_int_t)say->unusable, "xxh3", hex(source_hash(p->src)), "files", files);
}

static pesc_status write_account(const mixer *m, const char *out_path)
{
    json_t *parts = json_array();
    for (size_t i = 0; i < m->n; i++)
        append(&parts, describe_part(&m->parts[i]));
    json_t *v = json_pack(
        "{s:s, s:s, s:I, s:I, s:o, s:[s,s,s], s:o}", "pesc", PESC_VERSION, "format", "messages",
        "seed", (json_int_t)m->seed, "records", (json_int_t)m->total, "xxh3",
        hex(XXH3_64bits_digest(m->hash)), "rules",
        "records are drawn without replacement, in the order of a permutation of the seed",
        "a record whose turns equal those of one drawn before is left out",
        "a record without a prompt or with an empty last answer is left out", "parts", parts);
    str text = { 0 }, path = { 0 };
    json_put(&text, v, JSON_INDENT(2));
    str_putc(&text, '\n');
    str_printf(&path, "%s.mix.json", out_path);
    pesc_status s = v && str_ok(&text) && str_ok(&path)
                        ? io_write_file(path.p, text.p, text.n)
                        : fail_nomem("the account of a mixture", text.n);
    json_decref(v);
    str_free(&text);
    str_free(&path);
    return s;
}

static pesc_status mixer_open(mixer *m, pesc_mix_part *parts, size_t n, const char *out_path)
{
    m->parts = mem_zalloc(n ? n : 1, sizeof *m->parts);
    m->hash = XXH3_createState();
    if (!m->parts || !m->hash || XXH3_64bits_reset(m->hash) != XXH_OK)
        return fail_nomem("a mixture", n * sizeof *m->parts);
    while (m->n < n) {
        part *p = &m->parts[m->n++];
        TRY(part_open(p, &parts[m->n - 1], m->seed, m->n));
        m->total += p->say->records; /* each is at most what its files hold */
    }
    if (m->total == 0)
        return fail(PESC_USAGE, "%s: no record is wanted", out_path);
    TRY(set_open(&m->seen, m->total));
    return io_writer_open(&m->out, out_path);
}

static void mixer_close(mixer *m)
{
    for (size_t i = 0; i < m->n; i++) {
        source_close(m->parts[i].src);
        mem_free(m->parts[i].formats);
    }
    mem_free(m->parts);
    mem_free(m->seen.slots);
    io_writer_abort(m->out);
    XXH3_freeState(m->hash);
    str_free(&m->line);
}

pesc_status pesc_data_mix(pesc_mix_part *parts, size_t n, uint64_t seed, const char *out_path,
                          const pesc_events *ev)
{
    status_clear();
    NEED(out_path);
    NEED_ARRAY(parts, n);
    for (size_t i = 0; i < n; i++) {
        NEED(parts[i].domain);
        if (!utf8_valid(parts[i].domain, strlen(parts[i].domain)))
            return fail(PESC_USAGE, "the name of domain %zu is not UTF-8: \"%s\"", i + 1,
                        parts[i].domain);
        NEED_ARRAY(parts[i].files, parts[i].n_files);
        for (size_t k = 0; k < parts[i].n_files; k++)
            NEED(parts[i].files[k]);
    }
    LOG_EVENTS(ev);
    mixer m = { .seed = seed };
    pesc_status s = mixer_open(&m, parts, n, out_path);
    if (s == PESC_OK)
        s = put_all(&m);
    if (s == PESC_OK) {
        s = io_publish(m.out);
        m.out = NULL;
    }
    if (s == PESC_OK)
        s = write_account(&m, out_path);
    mixer_close(&m);
    return s;
}
