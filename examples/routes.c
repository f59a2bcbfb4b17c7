/* Which experts the tokens of each domain choose, layer by layer, as a table and a picture.
 *
 *     routes MODEL data.jsonl [routes.svg]
 *
 * The domain of a record is its field "domain", or the name of its file. */
#include <pesc/pesc.h>

#include <stdio.h>

/* The expert with the largest share of a row. */
static size_t favourite(const double *share, size_t experts)
{
    size_t best = 0;
    for (size_t e = 1; e < experts; e++)
        if (share[e] > share[best])
            best = e;
    return best;
}

static void print(const pesc_routes_report *r)
{
    printf("%-8s", "layer");
    for (size_t d = 0; d < r->n_domains; d++)
        printf("%20s", r->domains[d].name);
    printf("%12s\n", "difference");
    for (size_t l = 0; l < r->n_layers; l++) {
        printf("%-8lld", (long long)r->layers[l]);
        for (size_t d = 0; d < r->n_domains; d++) {
            const double *share = r->share + (d * r->n_layers + l) * r->experts;
            size_t e = favourite(share, r->experts);
            printf("      expert %zu %4.0f %%", e, 100 * share[e]);
        }
        printf("%12.3f\n", r->difference[l]);
    }
}

static pesc_status analyse(pesc_model *m, const char *data, const char *picture)
{
    pesc_routes_options opt = pesc_routes_defaults();
    pesc_routes_report r = PESC_INIT(pesc_routes_report);
    opt.data = &data;
    opt.n_data = 1;
    pesc_status st = pesc_routes(m, &opt, &r);
    if (!st)
        print(&r);
    if (!st && picture)
        st = pesc_plot_routes(picture, &r);
    pesc_routes_free(&r);
    return st;
}

int main(int argc, char **argv)
{
    pesc_device *dev = NULL;
    pesc_model *m = NULL;
    if (argc < 3) {
        fprintf(stderr, "usage: routes MODEL DATA [PICTURE]\n");
        return 2;
    }
    pesc_status st = pesc_device_open(&dev, "cpu");
    if (!st)
        st = pesc_model_open(&m, dev, argv[1], NULL);
    if (!st)
        st = analyse(m, argv[2], argc > 3 ? argv[3] : NULL);
    if (st)
        fprintf(stderr, "routes: %s\n", pesc_last_error());
    pesc_model_close(m);
    pesc_device_close(dev);
    return pesc_status_exit_code(st);
}
