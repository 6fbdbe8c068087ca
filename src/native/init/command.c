/* The command of a native init: its start, its end, and the refused calls: init.py and refusal.py. */
#define _GNU_SOURCE
#include "init.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TICKS 20000000LL /* of init.py */
#define MOST_REFUSALS 100
#define CLOSE_RANGE 436
#define OPENAT2 437
#define DEEPEST 6 /* of link.py */
#define NOTIF_RECV 0xC0502100UL /* include/uapi/linux/seccomp.h */
#define NOTIF_SEND 0xC0182101UL

static const int FORWARDED[] = {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}, TO_GROUP[] = {SIGINT, SIGQUIT};
static const int RESET[] = {SIGINT, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE, SIGXFSZ};

static sigset_t awaited(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (size_t index = 0; index < COUNT(FORWARDED); index++)
        sigaddset(&set, FORWARDED[index]);
    for (size_t index = 0; index < COUNT(TO_GROUP); index++)
        sigaddset(&set, TO_GROUP[index]);
    return set;
}

/* Block the signals that an init reads from a descriptor: they are pending until then, also those that pid 1 would not
   receive and those that are ignored (sig_ignored in kernel/signal.c asks for the mask first). */
void block_signals(void)
{
    sigset_t set = awaited();
    signal(SIGCHLD, SIG_DFL); /* children of a process that ignores it cannot be waited for (wait(2)) */
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_SETMASK, &set, NULL);
}

/* Open /dev/null anew for the standard descriptors that lead to it: renew_null of init.py. */
static int renew_null(void)
{
    struct stat status;
    for (int number = 0; number < 3; number++) {
        if (fstat(number, &status) < 0)
            return errno;
        if (!S_ISCHR(status.st_mode) || status.st_rdev != makedev(1, 3))
            continue;
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (null < 0 || dup2(null, number) < 0)
            return errno;
        close(null);
    }
    return 0;
}

static int64_t await_tick(int64_t after)
{
    struct timespec now, pause = {0, 200000};
    if (after == 0)
        return 0;
    for (;;) {
        clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
        int64_t reached = now.tv_sec * 1000000000LL + now.tv_nsec;
        if (reached > after || after > reached + TICKS)
            return reached;
        nanosleep(&pause, NULL);
    }
}

/* ---- the start ---- */

struct start {
    const char *path;
    char *const *argv, *const *env;
    volatile int error;
};

/* In the command's process, in the memory of init: become the program. */
static int become(void *given)
{
    struct start *start = given;
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigset_t none;
    sigemptyset(&none);
    for (size_t index = 0; index < COUNT(RESET); index++)
        sigaction(RESET[index], &action, NULL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (setsid() >= 0 && syscall(CLOSE_RANGE, 3, ~0U, 4 /* CLOSE_RANGE_CLOEXEC */) == 0)
        execve(start->path, start->argv, start->env);
    start->error = errno;
    _exit(127);
}

/* Start a program. Return its pid, or -1. Its memory is this process's until the exec, which this process waits for, as
   with vfork(2). That function is fork(2) in musl on some machines: the error of the exec would stay in the copy. */
static pid_t start(const char *path, char *const *argv, char *const *env)
{
    static _Alignas(16) char stack[1 << 14];
    struct start given = {path, argv, env, 0};
    pid_t child = clone(become, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &given);
    if (child > 0 && given.error != 0) {
        waitpid(child, NULL, 0);
        errno = given.error;
        return -1;
    }
    return child;
}

static bool is_missing(const char *path)
{
    struct stat status;
    return stat(path, &status) < 0 && (errno == ENOENT || errno == ENOTDIR);
}

static int open_without_magic_link(const char *path, int flags)
{
    uint64_t how[3] = {(uint64_t)(flags | O_CLOEXEC), 0, 2 /* RESOLVE_NO_MAGICLINKS */};
    return (int)syscall(OPENAT2, AT_FDCWD, path, how, sizeof how);
}

/* Whether a file that cannot be read has another owner, for whom alone it can change. Sets EACCES. */
static bool is_of_another(const char *path)
{
    struct stat status;
    int opened = open_without_magic_link(path, O_PATH);
    bool is_known = opened >= 0 && fstat(opened, &status) == 0;
    if (opened < 0)
        return false;
    close(opened);
    errno = EACCES;
    return is_known && status.st_uid != geteuid();
}

/* Read the head of a program. Return its size, or -1 with the error of the exec. */
static ssize_t read_head(const char *path, char *head, size_t room)
{
    struct stat status;
    int opened = open_without_magic_link(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (opened < 0)
        return errno == EACCES && is_of_another(path) ? 0 : -1;
    ssize_t size = read(opened, head, room);
    int error = errno;
    if (size < 0 && fstat(opened, &status) == 0 && !S_ISREG(status.st_mode))
        error = EACCES; /* as execve(2) has it */
    close(opened);
    errno = error;
    return size;
}

/* Whether neither a program nor the interpreters of a script are reached by a magic link of /proc, nor cannot be looked
   at: require_no_magic_link of link.py. */
static bool is_of_the_sandbox(const char *path)
{
    char head[257], interpreter[sizeof head];
    for (int script = 0; script < DEEPEST; script++) {
        ssize_t size = read_head(path, head, sizeof head - 1);
        if (size < 0)
            return false;
        if (size < 2 || head[0] != '#' || head[1] != '!')
            return true;
        head[size] = '\0';
        const char *word = head + 2 + strspn(head + 2, " \t");
        size_t length = strcspn(word, " \t\n");
        if (length == 0)
            return true;
        memcpy(interpreter, word, length);
        interpreter[length] = '\0';
        path = interpreter;
    }
    errno = ELOOP;
    return false;
}

/* Start a program at a path; a file without a known format is run by the shell, as execvp(3) does. ``room`` has the
   words with one free place before them. */
static pid_t start_or_interpret(char *path, char **room, char *const *env)
{
    pid_t child = is_of_the_sandbox(path) ? start(path, room + 1, env) : -1;
    if (child >= 0 || errno != ENOEXEC)
        return child;
    char *program = room[1];
    room[0] = "sh";
    room[1] = path;
    child = is_of_the_sandbox("/bin/sh") ? start("/bin/sh", room, env) : -1;
    room[1] = program;
    return child;
}

/* Look a program up, and start it: start_program of init.py. Return its pid, or -1 with the error of execvp(3). */
static pid_t start_program(char **room, const struct value *search, char *const *env)
{
    char *program = room[1];
    int failure = ENOENT;
    if (*program == '\0') {
        errno = ENOENT;
        return -1;
    }
    if (strchr(program, '/') != NULL)
        return start_or_interpret(program, room, env);
    for (size_t index = 0; index < search->size; index++) {
        if (!is_string(&search->items[index]))
            continue;
        char *path = malloc(search->items[index].size + strlen(program) + 2);
        if (path == NULL)
            return -1;
        strcpy(path, search->items[index].data);
        strcat(path, "/");
        strcat(path, program);
        if (!is_missing(path)) {
            pid_t child = start_or_interpret(path, room, env);
            if (child >= 0)
                return child;
            if (errno != ENOENT && errno != ENOTDIR)
                failure = errno;
        }
        free(path);
    }
    errno = failure;
    return -1;
}

/* Return the words, with a free place before them, or NULL if one has a NUL. */
static char **words_of(const struct value *argv)
{
    if (argv == NULL || argv->kind != SEQUENCE || argv->size == 0)
        return NULL;
    char **words = calloc(argv->size + 2, sizeof *words);
    for (size_t index = 0; words != NULL && index < argv->size; index++) {
        if (!is_string(&argv->items[index]))
            return NULL;
        words[index + 1] = (char *)argv->items[index].data;
    }
    return words;
}

static char **environment_of(const struct value *env)
{
    if (env == NULL || env->kind != MAPPING)
        return NULL;
    char **variables = calloc(env->size + 1, sizeof *variables);
    for (size_t index = 0; variables != NULL && index < env->size; index++) {
        const struct value *name = &env->items[2 * index], *value = name + 1;
        if (!is_string(name) || !is_string(value) || strchr(name->data, '=') != NULL)
            return NULL;
        char *variable = malloc(name->size + value->size + 2);
        if (variable == NULL)
            return NULL;
        memcpy(variable, name->data, name->size);
        variable[name->size] = '=';
        memcpy(variable + name->size + 1, value->data, value->size + 1);
        variables[index] = variable;
    }
    return variables;
}

/* ---- refused calls ---- */

struct refusals {
    struct refusal counted[MOST_REFUSALS];
    size_t count;
};

static bool is_number(const struct value *value)
{
    return value->kind == NUMBER;
}

static bool matches(const struct value *conditions, const uint64_t *arguments)
{
    for (size_t index = 0; index < conditions->size; index++) {
        const struct value *condition = &conditions->items[index];
        if (condition->kind != SEQUENCE || condition->size != 4)
            return false;
        const struct value *parts = condition->items; /* argument, equal, value, mask */
        if (!is_number(&parts[0]) || !is_number(&parts[1]) || !is_number(&parts[2]) || !is_number(&parts[3]) ||
            parts[0].number < 0 || parts[0].number > 5)
            return false;
        bool is_equal = (int64_t)((uint32_t)arguments[parts[0].number] & (uint64_t)parts[3].number) == parts[2].number;
        if (is_equal != (parts[1].number != 0))
            return false;
    }
    return true;
}

/* Find the first rule that matches, as the filter found it, and its error. */
static int64_t decide(const struct value *rows, int number, const uint64_t *arguments, int *error)
{
    for (size_t index = 0; index < rows->size; index++) {
        const struct value *row = &rows->items[index];
        if (row->kind != SEQUENCE || row->size != 2 || !is_number(&row->items[0]) || row->items[0].number != number ||
            row->items[1].kind != SEQUENCE)
            continue;
        for (size_t rule = 0; rule < row->items[1].size; rule++) {
            const struct value *parts = row->items[1].items[rule].items; /* number, error, conditions */
            if (row->items[1].items[rule].kind != SEQUENCE || row->items[1].items[rule].size != 3 ||
                !is_number(&parts[0]) || !is_number(&parts[1]) || parts[2].kind != SEQUENCE)
                continue;
            if (matches(&parts[2], arguments)) {
                *error = (int)parts[1].number;
                return parts[0].number;
            }
        }
    }
    *error = EPERM;
    return -1;
}

static void count_refusal(struct refusals *refusals, int64_t rule)
{
    size_t index = 0;
    while (index < refusals->count && refusals->counted[index].rule != rule)
        index++;
    if (index == MOST_REFUSALS)
        return;
    if (index == refusals->count)
        refusals->counted[refusals->count++] = (struct refusal){rule, 0};
    refusals->counted[index].count++;
}

/* Answer one waiting call; without an answer if its caller was killed meanwhile. */
static void answer(const struct context *context, struct refusals *refusals)
{
    struct { /* struct seccomp_notif */
        uint64_t id;
        uint32_t pid, flags;
        int32_t number;
        uint32_t machine;
        uint64_t pointer, arguments[6];
    } request;
    struct { /* struct seccomp_notif_resp */
        uint64_t id;
        int64_t value;
        int32_t error;
        uint32_t flags;
    } reply = {0};
    int error;
    memset(&request, 0, sizeof request); /* the kernel refuses another content */
    if (syscall(SYS_ioctl, context->listener, NOTIF_RECV, &request) < 0)
        return;
    count_refusal(refusals, decide(context->rows, request.number, request.arguments, &error));
    reply.id = request.id;
    reply.error = -error;
    while (syscall(SYS_ioctl, context->listener, NOTIF_SEND, &reply) < 0 && errno == EINTR)
        ;
}

/* ---- the end ---- */

static void forward(int signals, pid_t command)
{
    struct signalfd_siginfo received[8]; /* all that can be pending; more come while these are read, from a flood */
    ssize_t size = read(signals, received, sizeof received);
    for (size_t index = 0; size > 0 && index < (size_t)size / sizeof *received; index++) {
        int number = (int)received[index].ssi_signo;
        if (number == SIGCHLD)
            continue;
        bool is_for_group = number == SIGINT || number == SIGQUIT;
        if (!is_for_group || kill(-command, number) < 0)
            kill(command, number); /* it may have ended, or lead no group yet */
    }
}

/* Wait for the command, and meanwhile reap every orphan, forward signals and answer refused calls. By select(2): poll(2)
   fails if RLIMIT_NOFILE is below the number of descriptors, and a command may set the limits of init by prlimit(2). The
   listener has no end while init is under the filter itself. */
static int reap(const struct context *context, struct refusals *refusals, pid_t command, int signals, struct rusage *usage)
{
    int listener = context->listener, highest = signals > listener ? signals : listener, status;
    unsigned its_signals = (unsigned)signals, its_listener = (unsigned)listener; /* the macros of each libc take these */
    fd_set ready;
    for (;;) {
        for (;;) {
            pid_t ended = wait4(-1, &status, WNOHANG, usage);
            if (ended == command)
                return status;
            if (ended <= 0)
                break;
        }
        FD_ZERO(&ready);
        FD_SET(its_signals, &ready);
        if (listener >= 0)
            FD_SET(its_listener, &ready);
        if (select(highest + 1, &ready, NULL, NULL, NULL) < 0)
            continue;
        if (FD_ISSET(its_signals, &ready))
            forward(signals, command);
        if (listener >= 0 && FD_ISSET(its_listener, &ready))
            answer(context, refusals);
    }
}

static double seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

/* Start the command of a request in this process's sandbox, and report its end. Init ends with the return. */
void run_command(struct context *context, const struct value *request, int report)
{
    static struct refusals refusals;
    struct exited exited = {0};
    struct rusage usage;
    const struct value *search = find(request, "search"), *after = find(request, "after");
    char **words = words_of(find(request, "argv")), **env = environment_of(find(request, "env"));
    sigset_t set = awaited();
    int error = renew_null(), signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (error != 0 || signals < 0 || signals >= FD_SETSIZE || context->listener >= FD_SETSIZE || words == NULL ||
        env == NULL || search == NULL || search->kind != SEQUENCE || after == NULL || !is_number(after)) {
        report_failure(report, (size_t)-1, "init", error != 0 ? error : EINVAL, "the request of a command");
        return;
    }
    exited.started = await_tick(after->number);
    pid_t command = start_program(words, search, env);
    if (command < 0) {
        report_failure(report, (size_t)-1, "exec", errno, "");
        return;
    }
    for (int number = 0; number < 3; number++)
        close(number); /* a pipe of the command must end when the command does */
    exited.status = reap(context, &refusals, command, signals, &usage);
    exited.user = seconds(usage.ru_utime);
    exited.system = seconds(usage.ru_stime);
    exited.max_rss = usage.ru_maxrss;
    pid_t other;
    while ((other = waitpid(-1, NULL, WNOHANG)) > 0)
        ;
    exited.is_empty = other < 0 && errno == ECHILD;
    report_exit(report, &exited, refusals.counted, refusals.count);
}
