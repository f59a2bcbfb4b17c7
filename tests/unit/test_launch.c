/* launch: rank and size as the starting program left them in the environment. */
#include "dist/launch.h"

#include "support/check.h"

#include <stdlib.h>

static const char *const names[] = { "RANK",
                                     "WORLD_SIZE",
                                     "LOCAL_RANK",
                                     "MASTER_ADDR",
                                     "MASTER_PORT",
                                     "OMPI_COMM_WORLD_RANK",
                                     "OMPI_COMM_WORLD_SIZE",
                                     "OMPI_COMM_WORLD_LOCAL_RANK",
                                     "SLURM_PROCID",
                                     "SLURM_STEP_NUM_TASKS",
                                     "SLURM_LOCALID",
                                     "SLURM_STEP_NODELIST",
                                     "SLURM_JOB_ID",
                                     "SLURM_NTASKS",
                                     "TORCHELASTIC_USE_AGENT_STORE" };

/* Pairs of a name and a value; NULL ends them. */
static void set(const char *const *pairs)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    for (; *pairs; pairs += 2)
        setenv(pairs[0], pairs[1], 1);
}
#define SET(...) set((const char *const[]){ __VA_ARGS__, NULL })

static void alone(void **state)
{
    (void)state;
    launch l;
    SET("RANK", "0"); /* without WORLD_SIZE it says nothing */
    must(launch_find(&l));
    assert_int_equal(l.size, 1);
    SET("RANK", "0", "WORLD_SIZE", "1"); /* needs no address */
    must(launch_find(&l));
    assert_int_equal(l.kind, LAUNCH_ALONE);
    SET("SLURM_PROCID", "0", "SLURM_NTASKS", "8"); /* a batch script, not a step of srun */
    must(launch_find(&l));
    assert_int_equal(l.size, 1);
}

static void environment(void **state)
{
    (void)state;
    launch l;
    SET("RANK", "3", "WORLD_SIZE", "4", "LOCAL_RANK", "1", "MASTER_ADDR", "n1", "MASTER_PORT",
        "29500");
    must(launch_find(&l));
    assert_int_equal(l.rank, 3);
    assert_int_equal(l.size, 4);
    assert_int_equal(l.local_rank, 1);
    assert_int_equal(l.port, 29500);
    assert_string_equal(l.master, "n1");
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    must(launch_find(&l));
    assert_int_equal(l.port, 29501);
    unsetenv("MASTER_PORT");
    must_fail(launch_find(&l), PESC_USAGE, "MASTER_PORT: is missing");
    SET("RANK", "x", "WORLD_SIZE", "4");
    must_fail(launch_find(&l), PESC_USAGE, "RANK: found \"x\", expected a number from 0 to 3");
}

static void mpirun(void **state)
{
    (void)state;
    launch l;
    SET("OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_SIZE", "2", "OMPI_COMM_WORLD_LOCAL_RANK",
        "1");
    must(launch_find(&l));
    assert_int_equal(l.kind, LAUNCH_MPI);
    assert_int_equal(l.local_rank, 1);
}

static void srun(void **state)
{
    (void)state;
    launch l;
    SET("SLURM_PROCID", "9", "SLURM_STEP_NUM_TASKS", "16", "SLURM_LOCALID", "1",
        "SLURM_STEP_NODELIST", "gpu[07-08]", "SLURM_JOB_ID", "1234567");
    must(launch_find(&l));
    assert_int_equal(l.kind, LAUNCH_SLURM);
    assert_string_equal(l.master, "gpu07");
    assert_int_equal(l.port, 20000 + 1234567 % 20000);
    setenv("MASTER_PORT", "4000", 1);
    must(launch_find(&l));
    assert_int_equal(l.port, 4000);
}

static void first_host(void **state)
{
    (void)state;
    static const struct {
        const char *list, *first;
    } rows[] = {
        { "a", "a" },           { "a,b", "a" },          { "n[1-4]", "n1" },
        { "n[007,9]", "n007" }, { "n[3],m[1-2]", "n3" }, { "rack-1-n[10-12]", "rack-1-n10" },
    };
    char out[16];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_true(launch_first_host(rows[i].list, out, sizeof out));
        assert_string_equal(out, rows[i].first);
    }
    assert_false(launch_first_host("", out, sizeof out));
    assert_false(launch_first_host("n[]", out, sizeof out));
    assert_false(launch_first_host("a-name-that-is-too-long", out, sizeof out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone), cmocka_unit_test(environment), cmocka_unit_test(mpirun),
        cmocka_unit_test(srun),  cmocka_unit_test(first_host),
    };
    return cmocka_run_group_tests_name("launch", tests, NULL, NULL);
}
