#include "tokenizer/tokopen.h"

#include "base/mem.h"
#include "tokenizer/control.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/spbpe.h"

#include <string.h>

static pesc_status read_pieces(tokenizer *t)
{
    const spmodel *m = t->sp;
    for (size_t i = 0; i < m->n; i++) {
        const sp_piece *p = &m->pieces[i];
        vocab_result r = vocab_add(&t->vocab, p->text, p->n, (int32_t)i);
        if (r == VOCAB_NOMEM)
            return fail_nomem(t->file, p->n);
        if (r != VOCAB_OK)
            return fail(PESC_FORMAT, "%s: token %zu, '%s', appears twice", t->file, i, p->text);
        bool control = p->type == SP_CONTROL || p->type == SP_UNKNOWN ||
                       (p->type == SP_USER_DEFINED && control_form(p->text, p->n));
        /* A Unigram model weighs its user-defined pieces itself. */
        if (!control && !(p->type == SP_USER_DEFINED && m->kind == SP_BPE))
            continue;
        added_token a = {
            .text = (char *)p->text,
            .n = p->n,
            .id = (int32_t)i,
            .special = control,
            .normalized = !control,
        };
        TRY(pipeline_add(t, &a, t->file));
    }
    return PESC_OK;
}

static pesc_status build_bpe(tokenizer *t)
{
    const spmodel *m = t->sp;
    bpe_merge *merges;
    size_t n;
    TRY(spbpe_merges(m, t->file, &t->symbols, &merges, &n));
    bpe_spec spec = {
        .vocab = &t->symbols,
        .n_tokens = (int64_t)m->n,
        .byte_fallback = m->byte_fallback,
        .unk = m->unk,
        .fuse_unk = true,
    };
    memcpy(spec.byte_ids, m->bytes, sizeof spec.byte_ids);
    pesc_status s = bpe_open(&t->bpe, &spec, merges, n);
    mem_free(merges);
    return s;
}

static pesc_status build(tokenizer *t)
{
    const spmodel *m = t->sp;
    t->unk = m->unk;
    t->unk_text = " \xE2\x81\x87 "; /* sentencepiece's own: a double question mark */
    t->bos = m->bos;
    t->eos = m->eos;
    t->sp_each = true;
    TRY(read_pieces(t));
    TRY(m->kind == SP_BPE ? build_bpe(t) : unigram_open_sp(&t->unigram, m));
    TRY(decoder_open_sp(&t->dec, m->add_dummy_prefix, m->remove_extra_whitespaces));
    TRY(pipeline_frame(t, true, t->bos < 0));
    return pipeline_seal(t);
}

pesc_status sptok_build(tokenizer **out, spmodel *m, const char *file)
{
    tokenizer *t;
    *out = NULL;
    pesc_status s = pipeline_new(&t, file);
    if (s != PESC_OK) {
        spmodel_close(m);
        return s;
    }
    t->sp = m;
    s = build(t);
    if (s == PESC_OK)
        *out = t;
    else
        tokenizer_close(t);
    return s;
}
