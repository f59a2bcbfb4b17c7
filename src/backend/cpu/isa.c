#include "backend/cpu/isa.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

const char *cpu_isa_name(cpu_isa isa)
{
    return cpu_levels[isa].name;
}

static cpu_isa best;

static void detect(void)
{
    const char *most = getenv("PESC_ISA"); /* no level above the one that it names */
    while (best + 1 < cpu_level_count && cpu_levels[best + 1].present() &&
           !(most && strcmp(cpu_isa_name(best), most) == 0))
        best++;
}

cpu_isa cpu_isa_best(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, detect);
    return best;
}
