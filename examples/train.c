/* Makes a sparse model of a dense one (PESC) and tunes it on instructions.
 *
 *     train DENSE data.jsonl OUT [STEPS] [cpu|cuda]
 *
 * OUT/model is the crafted model, OUT/run the run directory, which every function that opens a
 * model accepts. */
#include <pesc/pesc.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static pesc_status craft(pesc_device *dev, const char *dense, const char *to)
{
    pesc_craft_options opt = pesc_craft_defaults();
    pesc_logit_check check = PESC_INIT(pesc_logit_check);
    opt.experts = 4;
    opt.adapter_dim = 16;
    pesc_status st = pesc_craft(dev, dense, to, &opt, &check);
    if (!st)
        printf("crafted: %llu of %llu logits differ from the dense model's\n",
               (unsigned long long)check.differ, (unsigned long long)check.logits);
    return st;
}

static pesc_status run(pesc_trainer *t)
{
    pesc_status st = PESC_OK;
    while (!st && !pesc_trainer_done(t)) {
        pesc_step step = PESC_INIT(pesc_step);
        st = pesc_trainer_step(t, &step);
        if (!st)
            printf("step %lld/%lld  loss %.4f  lr %.2e  %.0f tokens/s\n", (long long)step.step,
                   (long long)step.steps, step.loss, step.lr, step.tok_s);
    }
    return st;
}

static pesc_status tune(pesc_device *dev, const char *model, const pesc_train_options *opt)
{
    pesc_load_options load = pesc_load_defaults();
    pesc_model *m = NULL;
    pesc_trainer *t = NULL;
    pesc_status st = pesc_train_load(opt, &load);
    if (!st)
        st = pesc_model_open(&m, dev, model, &load);
    if (!st)
        st = pesc_trainer_open(&t, m, opt);
    if (!st)
        st = run(t);
    pesc_trainer_close(t);
    pesc_model_close(m);
    return st;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: train DENSE DATA OUT [STEPS] [DEVICE]\n");
        return 2;
    }
    char model[4096], output[4096];
    const char *data[] = { argv[2] };
    pesc_train_options opt = pesc_train_defaults();
    pesc_device *dev = NULL;
    snprintf(model, sizeof model, "%s/model", argv[3]);
    snprintf(output, sizeof output, "%s/run", argv[3]);
    mkdir(argv[3], 0777);
    opt.output = output;
    opt.data = data;
    opt.n_data = 1;
    opt.steps = argc > 4 ? atoi(argv[4]) : 10;
    opt.batch = 8;
    opt.seq_len = 256;
    opt.lora_r = 8;
    pesc_status st = pesc_device_open(&dev, argc > 5 ? argv[5] : "cpu");
    if (!st)
        st = craft(dev, argv[1], model);
    if (!st)
        st = tune(dev, model, &opt);
    if (st)
        fprintf(stderr, "train: %s\n", pesc_last_error());
    pesc_device_close(dev);
    return pesc_status_exit_code(st);
}
