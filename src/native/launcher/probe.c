/* Whether overlays whose commands have ended can still be reached: "probe SECONDS SCRATCH UPPER..." prints a character for
   each upper directory, "0" not in use, "1" in use, "?" unknown. It is a program, because it enters namespaces of its own,
   which a process with several threads cannot (unshare(2)).

   The kernel marks each overlay's upper directory from its mount until its superblock is gone (I_OVL_INUSE, ovl_get_upper
   in fs/overlayfs/super.c). A superblock lives as long as there is any way into the mount: a mount namespace, an open file
   or directory, an O_PATH descriptor, a working directory, a mapping. With "index=on" a second mount of such a directory
   fails with EBUSY. If the second mount succeeds, no process can reach the files through the first. */
#define _GNU_SOURCE
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define FIRST_PAUSE 0.002 /* seconds between two tries; the kernel logs a line for each */
#define LONGEST_PAUSE 0.05

/* Left on the upper directory by a mount with an index (Documentation/filesystems/overlayfs.rst). */
static const char *const OWN[] = {"user.overlay.origin", "user.overlay.uuid"};

/* Set for each name in OWN whether the directory has it. */
static bool find_own(const char *path, bool *has)
{
    static char names[65536]; /* XATTR_LIST_MAX */
    ssize_t size = listxattr(path, names, sizeof names);
    memset(has, 0, COUNT(OWN) * sizeof *has);
    for (ssize_t at = 0; at < size; at += (ssize_t)strlen(names + at) + 1)
        for (size_t index = 0; index < COUNT(OWN); index++)
            has[index] |= strcmp(names + at, OWN[index]) == 0;
    return size >= 0;
}

static bool make_directory(const char *path)
{
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

/* Mount the directory as another overlay's upper, and unmount it. The working directory is the scratch. */
static char try_upper(int upper, int number)
{
    char lower[32], work[32], place[32], path[32], options[160];
    bool before[COUNT(OWN)], after[COUNT(OWN)];
    snprintf(lower, sizeof lower, "lower%d", number);
    snprintf(work, sizeof work, "work%d", number);
    snprintf(place, sizeof place, "mount%d", number);
    snprintf(path, sizeof path, "/proc/self/fd/%d", upper);
    snprintf(options, sizeof options, "lowerdir=%s,upperdir=%s,workdir=%s,index=on,userxattr", lower, path, work);
    if (!make_directory(lower) || !make_directory(work) || !make_directory(place) || !find_own(path, before))
        return '?';
    if (mount("overlay", place, "overlay", 0, options) < 0)
        return errno == EBUSY ? '1' : '?';
    if (umount2(place, 0) < 0 || !find_own(path, after))
        return '?';
    for (size_t index = 0; index < COUNT(OWN); index++)
        if (after[index] && !before[index] && removexattr(path, OWN[index]) < 0)
            return '?';
    return '0';
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Try each directory until none is in use, or the time is over. */
static void try_all(const int *uppers, char *answers, int count, double seconds)
{
    double deadline = now() + seconds, pause = FIRST_PAUSE;
    memset(answers, '1', (size_t)count);
    for (;;) {
        for (int number = 0; number < count; number++)
            if (answers[number] == '1')
                answers[number] = try_upper(uppers[number], number);
        if (memchr(answers, '1', (size_t)count) == NULL || now() >= deadline)
            return;
        struct timespec time = {0, (long)(pause * 1e9)};
        nanosleep(&time, NULL);
        pause = 2 * pause < LONGEST_PAUSE ? 2 * pause : LONGEST_PAUSE;
    }
}

int probe_overlays(double seconds, const char *scratch, char **paths, int count)
{
    int *uppers = calloc((size_t)count, sizeof *uppers);
    char *answers = malloc((size_t)count);
    if (uppers == NULL || answers == NULL)
        return FAILED;
    memset(answers, '?', (size_t)count);
    /* before the directories are opened: the kernel mounts only what is in our namespace */
    bool is_ready = enter_namespaces(CLONE_NEWNS) && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
    for (int number = 0; is_ready && number < count; number++) {
        uppers[number] = open(paths[number], O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        is_ready = uppers[number] >= 0;
    }
    if (is_ready && chdir(scratch) == 0)
        try_all(uppers, answers, count, seconds);
    return fwrite(answers, 1, (size_t)count, stdout) == (size_t)count && fflush(stdout) == 0 ? 0 : FAILED;
}
