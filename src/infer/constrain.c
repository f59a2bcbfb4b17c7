#include "infer/constrain.h"

#include "base/args.h"
#include "infer/session.h"

#include <pthread.h>

pesc_status constrain_pieces(pesc_model *m, const piece_trie **out)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (!m->tok)
        return fail(PESC_UNSUPPORTED, "the model has no tokenizer, which a grammar needs");
    pthread_mutex_lock(&lock);
    pesc_status st = m->pieces ? PESC_OK : pieces_open(&m->pieces, m->tok, m->shape.cfg.vocab);
    *out = m->pieces;
    pthread_mutex_unlock(&lock);
    return st;
}

pesc_status pesc_grammar_open(pesc_grammar **out, pesc_model *m, pesc_grammar_kind kind,
                              const char *text, size_t n)
{
    status_clear();
    NEED(out);
    *out = NULL;
    NEED(m);
    NEED(text);
    const piece_trie *p;
    grammar_source from = { .kind = kind, .text = text, .n = n };
    TRY(constrain_pieces(m, &p));
    return grammar_open(out, p, &from);
}

void pesc_grammar_close(pesc_grammar *g)
{
    grammar_close(g);
}

pesc_status pesc_session_constrain(pesc_session *s, pesc_grammar *g)
{
    status_clear();
    NEED(s);
    if (g && !grammar_is_of(g, s->model->pieces))
        return fail(PESC_USAGE, "the grammar was compiled for another model than the session's");
    if (g)
        grammar_keep(g);
    grammar_close(s->grammar);
    s->grammar = g;
    return PESC_OK;
}
