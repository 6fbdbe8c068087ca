/* The steps that put an engine of containers beside a command.
 *
 * Four user namespaces. The outer one is the sandbox's: the user's number and the subordinate ones that newuidmap(1) has
 * mapped, the network, and a root that nobody changes. In it are two that have no privilege over each other:
 * - the engine's ("engine"), with mounts, processes and System V objects of its own. Its root is the user, its other
 *   numbers are the subordinate ones. Its first process stays there; Podman and the containers are in a namespace below,
 *   with the same numbers and a copy of the mounts, and keep their capabilities in it.
 * - the command's ("nest"), with the user's number alone, where the rest of the plan is performed.
 *
 * So all mounts that a plan has made are locked for containers (mount_namespaces(7)): they take no cover away and make no
 * read-only mount writable. A lent mount is not locked by itself (attach_recursive_mnt in fs/namespace.c). The view is
 * mounted in the command's namespace and lent to the engine ("lend", "lent"): no file is made there with an owner that the
 * command's namespace does not map (fsuidgid_has_mapping in include/linux/fs.h), but chown(2) is not stopped by it. The
 * network namespace is the outer one's, so neither can change it.
 *
 * The engine's processes are below the command's init in the tree of pid namespaces, and end with it. */
#define _GNU_SOURCE
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define OF_AN_ENGINE (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS)
#define QUEUE 128
#define MOST_WORDS 64

struct answer { /* of an engine's first process */
    int error;
    char detail[200];
};

static bool copy_words(char **words, const struct value *given)
{
    if (given->size == 0 || given->size >= MOST_WORDS)
        return false;
    for (size_t index = 0; index < given->size; index++) {
        if (!is_string(&given->items[index]))
            return false;
        words[index] = (char *)given->items[index].data;
    }
    return true;
}

/* Execute the engine with its socket as descriptor 3 (sd_listen_fds(3)). */
static _Noreturn void execute(int listening, const struct value *arguments)
{
    char *words[MOST_WORDS + 1] = {0}, *variables[MOST_WORDS + 3] = {0}, itself[32];
    sigset_t none;
    int null = open("/dev/null", O_RDWR);
    if (null < 0 || !copy_words(words, &arguments[0]) || !copy_words(variables, &arguments[1]) || words[0] == NULL)
        _exit(FAILED);
    snprintf(itself, sizeof itself, "LISTEN_PID=%d", (int)getpid());
    variables[arguments[1].size] = itself;
    variables[arguments[1].size + 1] = "LISTEN_FDS=1";
    for (int number = 0; number < 3; number++)
        dup2(null, number);
    if (listening == 3 ? fcntl(3, F_SETFD, 0) < 0 : dup2(listening, 3) < 0)
        _exit(FAILED);
    keep_only((int[]){3}, 1);
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execve(words[0], words, variables);
    _exit(FAILED);
}

/* Write the id maps of a child, which waits for them. ``proc`` is relative to the root, or to the working directory. */
static bool map_child(const struct context *context, pid_t pid, const struct value *maps)
{
    static const char *const names[] = {"uid_map", "gid_map"};
    for (size_t index = 0; index < COUNT(names); index++) {
        char path[48];
        snprintf(path, sizeof path, "proc/%d/%s", (int)pid, names[index]);
        int opened = openat(context->root >= 0 ? context->root : AT_FDCWD, path, O_WRONLY | O_CLOEXEC);
        const struct value *map = &maps->items[index];
        bool is_written = opened >= 0 && write(opened, map->data, map->size) == (ssize_t)map->size;
        int error = errno;
        if (opened >= 0)
            close(opened);
        errno = error;
        if (!is_written)
            return false;
    }
    return true;
}

/* Clone a child in new namespaces, and return when its ids are mapped: a socket to it, or -1. In the child ``pid`` is 0. */
static int clone_mapped(const struct context *context, unsigned long flags, const struct value *maps, pid_t *pid)
{
    int pair[2];
    char word;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    *pid = (pid_t)syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (*pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        prctl(PR_SET_DUMPABLE, 1, 0, 0, 0); /* else its id maps are root's files */
        if (send(pair[1], "e", 1, MSG_NOSIGNAL) != 1 || recv(pair[1], &word, 1, 0) != 1)
            _exit(FAILED);
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
        return pair[1];
    }
    int error = errno;
    close(pair[1]);
    if (*pid > 0 && recv(pair[0], &word, 1, 0) == 1 && map_child(context, *pid, maps) &&
        send(pair[0], "g", 1, MSG_NOSIGNAL) == 1)
        return pair[0];
    error = *pid > 0 ? errno : error;
    close(pair[0]);
    errno = error;
    return -1;
}

/* Be the first process of an engine: perform its plan, start it, and reap its orphans. */
static _Noreturn void be_engine(int channel, int listening, const struct value *nested, const struct value *arguments)
{
    static struct context context;
    struct answer answer = {0};
    int kept[] = {channel, listening};
    size_t failed;
    pid_t engine = -1;
    setsid();
    keep_only(kept, COUNT(kept));
    begin_context(&context, OF_AN_ENGINE);
    context.engine = channel;
    if (setgroups(0, NULL) < 0)
        answer.error = errno;
    else if ((answer.error = perform_all(&context, &arguments[0], &failed)) != 0)
        snprintf(answer.detail, sizeof answer.detail, "its step %zu: %s", failed + 1,
                 context.detail != NULL ? context.detail : strerror(answer.error));
    else if (clone_mapped(&context, CLONE_NEWUSER | CLONE_NEWNS, nested, &engine) < 0)
        answer.error = errno;
    if (engine == 0)
        execute(listening, &arguments[1]);
    send(channel, &answer, sizeof answer, MSG_NOSIGNAL);
    close(channel);
    close(listening);
    for (pid_t ended = 0; engine > 0 && ended != engine;)
        if ((ended = waitpid(-1, NULL, 0)) < 0 && errno != EINTR)
            break;
    _exit(0);
}

/* Return a socket that listens at a path below the root, or -1. */
static int listen_at(const struct context *context, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    errno = ENAMETOOLONG;
    if (listening < 0 || strlen(path) >= sizeof address.sun_path)
        return -1;
    strcpy(address.sun_path, path); /* relative: nothing below the new root is anybody else's yet */
    if (fchdir(context->root) < 0 || bind(listening, (struct sockaddr *)&address, sizeof address) < 0 ||
        fchmodat(context->root, path, 0600, 0) < 0 || listen(listening, QUEUE) < 0)
        return -1;
    return listening;
}

/* Clone an engine: the path of its socket below the root, its id maps, those of its containers, its plan, words and
   variables. */
int step_engine(struct context *context, const struct value *arguments, size_t count)
{
    (void)count;
    for (size_t index = 1; index < 3; index++)
        if (!has_shape(arguments[index].items, arguments[index].size, "bb"))
            return EINVAL;
    int listening = listen_at(context, arguments[0].data);
    if (listening < 0) {
        context->detail = arguments[0].data;
        return errno;
    }
    context->engine = clone_mapped(context, OF_AN_ENGINE, &arguments[1], &context->engine_pid);
    if (context->engine >= 0 && context->engine_pid == 0)
        be_engine(context->engine, listening, &arguments[2], &arguments[3]);
    int error = errno;
    close(listening);
    return context->engine < 0 ? error : 0;
}

/* Enter a user and a mount namespace with one user: id maps, and where the root is mounted. */
int step_nest(struct context *context, const struct value *arguments, size_t count)
{
    (void)count;
    if (fchdir(context->root) < 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
        return errno;
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    int error = write_file("/proc/self/setgroups", "deny", 4) &&
                        write_file("/proc/self/uid_map", arguments[0].data, arguments[0].size) &&
                        write_file("/proc/self/gid_map", arguments[1].data, arguments[1].size)
                    ? 0
                    : errno;
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    return error != 0 ? error : copy_root(context, arguments[2].data);
}

/* In an engine: make a copy of the prepared root the root. */
int step_copy_root(struct context *context, const struct value *arguments, size_t count)
{
    (void)count;
    return copy_root(context, arguments[0].data);
}

/* Send the engine what is mounted at a path, and wait until it has started or failed. */
int step_lend(struct context *context, const struct value *arguments, size_t count)
{
    (void)count;
    static struct answer answer;
    int tree = clone_tree(context, arguments[0].data), error = 0;
    if (tree < 0)
        return errno;
    if (!send_with(context->engine, "t", 1, &tree, 1) || recv(context->engine, &answer, sizeof answer, 0) != sizeof answer) {
        error = ECHILD;
        context->detail = "it has ended";
    } else if ((error = answer.error) != 0 && *answer.detail != '\0') {
        context->detail = answer.detail;
    }
    close(context->engine);
    context->engine = -1;
    close(tree);
    return error;
}

/* In an engine: mount what was lent at a path below the root. */
int step_lent(struct context *context, const struct value *arguments, size_t count)
{
    (void)count;
    int tree;
    if (!receive_one(context->engine, 0, &tree))
        return ECHILD;
    return tree < 0 ? EBADF : attach_new(context, tree, arguments[0].data);
}
