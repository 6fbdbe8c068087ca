/* Become an interpreter whose file is on a read-only mount: program.py, without the start of an interpreter.
 *
 * The host starts this program in place of the launcher, with the launcher's words as arguments. Until its exec each
 * command is a copy of the launcher, so the program of that is in its reach by /proc/self/exe (compare CVE-2019-5736). */
#define _GNU_SOURCE
#include "init.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define OPEN_TREE 428
#define OPENAT2 437
#define MOUNT_SETATTR 442
#define READ_ONLY 7 /* MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV */
#define RECURSIVE 0x8000
#define IN_ROOT 0x12 /* RESOLVE_IN_ROOT, RESOLVE_NO_MAGICLINKS */

extern char **environ;

/* Return a read-only copy of all mounts, which is attached nowhere, or -1. */
static int copy_mounts(void)
{
    uint64_t attributes[4] = {READ_ONLY, 0, 0, 0};
    int tree = (int)syscall(OPEN_TREE, AT_FDCWD, "/", 1 | O_CLOEXEC | RECURSIVE);
    if (tree >= 0 && syscall(MOUNT_SETATTR, tree, "", AT_EMPTY_PATH | RECURSIVE, attributes, sizeof attributes) < 0) {
        close(tree);
        return -1;
    }
    return tree;
}

/* In a child with the memory and the descriptors of this process. */
static int copy_in_namespaces(void *tree)
{
    *(volatile int *)tree = copy_mounts();
    _exit(0);
}

/* The same for an ordinary user, who may do so in namespaces of his own. They end with the child; the copy does not. */
static int copy_mounts_of_user(void)
{
    static _Alignas(16) char stack[1 << 14];
    volatile int tree = -1;
    int flags = CLONE_VM | CLONE_VFORK | CLONE_FILES | CLONE_NEWUSER | CLONE_NEWNS | SIGCHLD;
    pid_t child = clone(copy_in_namespaces, stack + sizeof stack, flags, (void *)&tree);
    if (child > 0)
        waitpid(child, NULL, 0);
    return child > 0 ? tree : -1;
}

/* Find the path of a program below the copy: below the link of /proc to the copy, and without a link of its own, which
   would lead out of it. The path of its directory stays as it is, for the dynamic linker ($ORIGIN of ld.so(8)). */
static bool find_program(int tree, const char *program, char *path, size_t room)
{
    uint64_t how[3] = {O_PATH | O_CLOEXEC, 0, IN_ROOT};
    char link[64];
    int file = (int)syscall(OPENAT2, tree, program, how, sizeof how);
    if (file < 0)
        return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    int used = snprintf(path, room, "/proc/self/fd/%d", tree);
    ssize_t size = readlink(link, path + used, room - (size_t)used - 1);
    close(file);
    if (size <= 0 || path[used] != '/')
        return false;
    path[(size_t)used + (size_t)size] = '\0';
    return true;
}

/* Become the program that the first word names. The launcher looks whether its file is on a read-only mount, and starts
   no sandbox with mounts if it is not: program.py. */
int become_program(char **words)
{
    char path[PATH_MAX + 64];
    int tree = copy_mounts();
    if (tree < 0)
        tree = copy_mounts_of_user();
    if (tree >= 0 && find_program(tree, words[0], path, sizeof path)) {
        fcntl(tree, F_SETFD, 0); /* as long as it is open, the parts of the path hang together */
        execve(path, words, environ);
        fcntl(tree, F_SETFD, FD_CLOEXEC);
    }
    execve(words[0], words, environ);
    return FAILED;
}
