/* inspect: what a path stands for, from configuration and file headers alone. */
#include "arch/bind.h"
#include "arch/info.h"
#include "base/args.h"
#include "base/log.h"
#include "run/runmodel.h"

static pesc_status describe(const hfdir *dir, const runstate_chain *chain, config *c,
                            pesc_model_info *out)
{
    pesc_tokenizer *tok = NULL;
    TRY(config_read(c,
                    &(config_source){ dir->config, dir->generation, dir->config_file, dir->ws }));
    bind_settle_head(c, dir->ws, dir->config_file);
    TRY(bind_check(c, dir->ws, dir->path));
    TRY(info_fill(c, dir, out));
    TRY(runmodel_chain_tokenizer(&tok, chain));
    chat_writer *w;
    pesc_status s = chat_open(&w, tok, NULL, info_chat(c, tok));
    if (s == PESC_OK)
        info_text(out, tok, w);
    chat_close(w);
    tokenizer_close(tok);
    return s;
}

pesc_status pesc_info(const char *path, const char *base, const pesc_events *ev,
                      pesc_model_info *out)
{
    status_clear();
    NEED(path);
    NEED_SIZED(out);
    LOG_EVENTS(ev);
    pesc_model_info info = { 0 };
    hfdir *dir = NULL;
    config c = { 0 };
    runstate_chain chain;
    TRY(runmodel_open(&dir, &chain, (runmodel_where){ path, base }, 0));
    pesc_status s = describe(dir, &chain, &c, &info);
    runstate_chain_free(&chain);
    ARGS_WRITE(out, &info);
    config_free(&c);
    hfdir_close(dir);
    return s;
}
