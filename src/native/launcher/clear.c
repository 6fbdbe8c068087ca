/* Remove the work directories of unmounted overlays, while the host goes on with the command's changes. */
#define _GNU_SOURCE
#include "launcher.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIRECTORY (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* Remove the directory ``name`` and those that the kernel has made in it: nested, with mode 000 (ovl_make_workdir and
   ovl_create_volatile_dirty in fs/overlayfs/super.c). One that is not as the kernel leaves it stays: the host removes it
   before the first command of its next session. */
static void clear_one(const char *parent, const char *name)
{
    const char *chain[] = {name, "work", "incompat", "volatile"};
    int opened[COUNT(chain) + 1];
    size_t depth = 0;
    opened[0] = open(parent, DIRECTORY);
    while (opened[depth] >= 0 && depth < COUNT(chain)) {
        char link[40];
        opened[depth + 1] = openat(opened[depth], chain[depth], DIRECTORY);
        depth++;
        if (opened[depth] < 0)
            break;
        snprintf(link, sizeof link, "/proc/self/fd/%d", opened[depth]); /* fchmod(2) refuses O_PATH */
        if (depth > 1)
            chmod(link, 0700);
    }
    if (depth == COUNT(chain) && opened[depth] >= 0 && unlinkat(opened[depth], "dirty", 0) == 0)
        for (size_t at = COUNT(chain); at > 0 && unlinkat(opened[at - 1], chain[at - 1], AT_REMOVEDIR) == 0; at--)
            ;
    for (size_t at = 0; at <= depth; at++)
        if (opened[at] >= 0)
            close(opened[at]);
}

/* ``works``: pairs of parent and name. */
void clear(const struct value *works)
{
    for (size_t index = 0; works != NULL && index < works->size; index++) {
        const struct value *pair = &works->items[index];
        if (pair->kind == SEQUENCE && has_shape(pair->items, pair->size, "pp"))
            clear_one(pair->items[0].data, pair->items[1].data);
    }
}
