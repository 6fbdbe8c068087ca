/* A command: its start, its end, its terminal, and the calls that its filter refuses.
 *
 * A filter rule that would answer with an error notifies init instead (SECCOMP_RET_USER_NOTIF, seccomp_unotify(2)). This
 * is done for calls that are refused in any case, and for renames (rename.c); if init dies, or no process listens, the
 * kernel answers ENOSYS. Calls that are reported as missing (ENOSYS: clone3, io_uring_setup) cause
 * no notification: every program tries them and has a fallback. */
#define _GNU_SOURCE
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TICKS 20000000LL /* nanoseconds: two ticks on the slowest kernel (CONFIG_HZ) */
#define CLOSE_RANGE 436
#define OPENAT2 437
#define DEEPEST 6 /* nested script interpreters: the kernel refuses more (exec_binprm in fs/exec.c) */

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
   receive and those that are ignored (sig_ignored in kernel/signal.c asks for the mask first). Done before the clone: a
   signal that comes earlier would end the child or be lost. */
void block_signals(void)
{
    sigset_t set = awaited();
    sigprocmask(SIG_SETMASK, &set, NULL);
}

/* In a child that has just left its process group: discard pending terminal signals, which were meant for the old group.
   A signal that a process has sent is kept. */
void discard_terminal_signals(void)
{
    struct timespec none = {0, 0};
    for (size_t index = 0; index < COUNT(TO_GROUP); index++) {
        sigset_t set;
        siginfo_t info;
        sigemptyset(&set);
        sigaddset(&set, TO_GROUP[index]);
        if (sigtimedwait(&set, &info, &none) >= 0 && info.si_code == SI_USER)
            kill(getpid(), TO_GROUP[index]);
    }
}

/* Return a descriptor that is readable with every signal, or -1. Made before the command: from then on another process may
   set this one's limits (prlimit(2)). */
int watch_signals(bool has_terminal)
{
    sigset_t set = awaited();
    if (has_terminal) {
        sigset_t more;
        sigemptyset(&more);
        sigaddset(&more, SIGCONT);
        sigaddset(&set, SIGCONT);
        sigprocmask(SIG_BLOCK, &more, NULL);
    }
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Open /dev/null anew for the standard descriptors that lead to it. The device's mount is read-only here, so a command that
   is root cannot change its mode or owner, which are the host's, by fchmod(2). */
int renew_null(void)
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

/* Make the pseudo-terminal this process's controlling terminal, and the command's standard descriptors ``numbers``. Then
   wait until the host has copied the user's terminal settings. Return 0 or an error number.

   A command that led the session itself could not be stopped: its process group would be orphaned, and a terminal's stop
   signals do not affect an orphaned group (setpgid(2)). This process keeps its copy open, so the master reaches its end of
   file when the last process has gone, not when the command closes its descriptors. */
int take_terminal(struct context *context, const struct value *numbers)
{
    char word;
    if (syscall(SYS_ioctl, context->terminal, TIOCSCTTY, 0) < 0)
        return errno;
    for (size_t index = 0; index < numbers->size; index++) {
        int64_t number = numbers->items[index].number;
        if (numbers->items[index].kind != NUMBER || number < 0 || number > 2)
            return EINVAL;
        if (dup2(context->terminal, (int)number) < 0)
            return errno;
    }
    ssize_t got;
    do
        got = read(context->channel, &word, 1);
    while (got < 0 && errno == EINTR);
    return got == 1 && word == 'g' ? 0 : EIO; /* else the host has closed the terminal */
}

/* Wait until CLOCK_MONOTONIC_COARSE, which ticks with the clock that stamps files, is later than ``after``, but not if that
   is more than TICKS ahead. Return its time in nanoseconds; 0, without a wait, if ``after`` is 0: the host has waited. */
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
    int terminal;                  /* whose foreground the command takes, or -1 */
    const struct value *mediation; /* a filter of its own, whose listener is sent over ``listener_to``; or NULL */
    int listener_to;
    volatile int error;
};

static bool hand_listener_over(const struct start *start)
{
    const struct value *program = &start->mediation->items[0];
    int listener = install_filter(program->data, program->size, NEW_LISTENER);
    return listener >= 0 && send_with(start->listener_to, "l", 1, &listener, 1);
}

/* In the command's process, in the memory of init: become the program. */
static int become(void *given)
{
    struct start *start = given;
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigset_t none;
    sigemptyset(&none);
    /* SIGTTOU is ignored until the group is in the foreground: tcsetpgrp(3) would stop it */
    bool has_place = start->terminal < 0 ? setsid() >= 0
                                         : setpgid(0, 0) == 0 && tcsetpgrp(start->terminal, getpid()) == 0;
    for (size_t index = 0; index < COUNT(RESET); index++)
        sigaction(RESET[index], &action, NULL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (has_place && (start->mediation == NULL || hand_listener_over(start)) &&
        syscall(CLOSE_RANGE, 3, ~0U, 4 /* CLOSE_RANGE_CLOEXEC */) == 0)
        execve(start->path, start->argv, start->env);
    start->error = errno;
    _exit(127);
}

/* Start a program. Return its pid, or -1. Its memory is this process's until the exec, which this process waits for, as
   with vfork(2). That function is fork(2) in musl on some machines: the error of the exec would stay in the copy. */
static pid_t start(struct start *given, const char *path, char *const *argv)
{
    static _Alignas(16) char stack[1 << 14];
    given->path = path;
    given->argv = argv;
    given->error = 0;
    pid_t child = clone(become, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, given);
    if (child > 0 && given->error != 0) {
        waitpid(child, NULL, 0);
        errno = given->error;
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

/* Whether neither a program nor a script's interpreters are reached by a magic link in /proc: until the exec /proc/self/exe
   is the launcher's program, a copy in memory that no process can change. Sets the error of the exec: ELOOP for such a link,
   EACCES for the user's own file if it is executable but not readable, EAGAIN for a file under a lease (fcntl(2)). */
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
static pid_t start_or_interpret(struct start *given, char *path, char **room)
{
    pid_t child = is_of_the_sandbox(path) ? start(given, path, room + 1) : -1;
    if (child >= 0 || errno != ENOEXEC)
        return child;
    char *program = room[1];
    room[0] = "sh";
    room[1] = path;
    child = is_of_the_sandbox("/bin/sh") ? start(given, "/bin/sh", room) : -1;
    room[1] = program;
    return child;
}

/* Start the program ``room[1]``, looked up in the directories ``search`` as execvp(3) does. Return its pid, or -1 with the
   error of that. Missing files are found by stat(2): a process that fails to execute one costs a hundred times as much. */
static pid_t start_program(struct start *given, char **room, const struct value *search)
{
    char *program = room[1];
    int failure = ENOENT;
    if (*program == '\0') {
        errno = ENOENT;
        return -1;
    }
    if (strchr(program, '/') != NULL)
        return start_or_interpret(given, program, room);
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
            pid_t child = start_or_interpret(given, path, room);
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
static char **words_of(struct pool *pool, const struct value *argv)
{
    if (argv == NULL || argv->kind != SEQUENCE || argv->size == 0)
        return NULL;
    char **words = take_memory(pool, (argv->size + 2) * sizeof *words);
    for (size_t index = 0; words != NULL && index < argv->size; index++) {
        if (!is_string(&argv->items[index]))
            return NULL;
        words[index + 1] = (char *)argv->items[index].data;
    }
    return words;
}

static bool has_item(const struct value *names, const struct value *name)
{
    for (size_t index = 0; names != NULL && index < names->size; index++)
        if (is_string(&names->items[index]) && strcmp(names->items[index].data, name->data) == 0)
            return true;
    return false;
}

/* Return the variables but those in ``dropped``, or NULL if one cannot be a variable. */
static char **environment_of(struct pool *pool, const struct value *env, const struct value *dropped)
{
    size_t count = 0;
    if (env == NULL || env->kind != MAPPING)
        return NULL;
    char **variables = take_memory(pool, (env->size + 1) * sizeof *variables);
    for (size_t index = 0; variables != NULL && index < env->size; index++) {
        const struct value *name = &env->items[2 * index], *value = name + 1;
        if (!is_string(name) || !is_string(value) || strchr(name->data, '=') != NULL)
            return NULL;
        if (has_item(dropped, name))
            continue;
        char *variable = take_memory(pool, name->size + value->size + 2);
        if (variable == NULL)
            return NULL;
        memcpy(variable, name->data, name->size);
        variable[name->size] = '=';
        memcpy(variable + name->size + 1, value->data, value->size + 1);
        variables[count++] = variable;
    }
    if (variables != NULL)
        variables[count] = NULL;
    return variables;
}

/* ---- refused calls ---- */

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

void count_refusal(struct refusals *refusals, int64_t rule, unsigned long by)
{
    size_t index = 0;
    while (index < refusals->count && refusals->counted[index].rule != rule)
        index++;
    if (index == MOST_REFUSALS)
        return;
    if (index == refusals->count)
        refusals->counted[refusals->count++] = (struct refusal){rule, 0};
    refusals->counted[index].count += by;
}

/* Answer one waiting call; without an answer if its caller was killed meanwhile. */
void answer_refusal(struct context *context, struct refusals *refusals)
{
    struct notification request;
    struct reply reply = {0};
    int error;
    memset(&request, 0, sizeof request); /* the kernel refuses another content */
    if (syscall(SYS_ioctl, context->listener, NOTIF_RECV, &request) < 0)
        return;
    if (answer_rename(context, &request, refusals))
        return;
    count_refusal(refusals, decide(context->rows, request.number, request.arguments, &error), 1);
    reply.id = request.id;
    reply.error = -error;
    while (syscall(SYS_ioctl, context->listener, NOTIF_SEND, &reply) < 0 && errno == EINTR)
        ;
}

/* ---- the end ---- */

struct running {
    struct command *command;
    pid_t pid;
    int mediated; /* the listener of the command's own filter, or -1 */
    bool is_stopped;
};

/* Tell the host if the command has been stopped (waitid(2)). */
static void report_stop(struct running *running)
{
    siginfo_t info = {.si_pid = 0};
    if (running->command->channel < 0)
        return;
    if (waitid(P_PID, (id_t)running->pid, &info, WSTOPPED | WNOHANG) < 0 || info.si_pid == 0)
        return;
    running->is_stopped = true;
    send_with(running->command->channel, "s", 1, NULL, 0); /* the host may have closed its end */
}

static void forward(struct running *running)
{
    struct signalfd_siginfo received[8]; /* all that can be pending; more come while these are read, from a flood */
    ssize_t size = read(running->command->signals, received, sizeof received);
    for (size_t index = 0; size > 0 && index < (size_t)size / sizeof *received; index++) {
        int number = (int)received[index].ssi_signo;
        if (number == SIGCHLD) {
            report_stop(running);
        } else if (number == SIGCONT) { /* without a stop a pause has ended: it continues only what it has stopped */
            if (running->is_stopped)
                kill(-running->pid, SIGCONT);
            running->is_stopped = false;
        } else {
            bool is_for_group = number == SIGINT || number == SIGQUIT;
            if (!is_for_group || kill(-running->pid, number) < 0)
                kill(running->pid, number); /* it may have ended, or lead no group yet */
        }
    }
}

static void mediate_waiting(struct running *running)
{
    struct pollfd look = {.fd = running->mediated, .events = POLLIN};
    int ready = poll(&look, 1, 0);
    if (ready == 1 && look.revents & POLLIN) {
        mediate(running->mediated, find(running->command->request, "mediation"), &running->command->refusals);
    } else if (ready != 0) { /* no process with this filter is left; or this process may not poll (prlimit(2)) */
        close(running->mediated);
        running->mediated = -1;
    }
}

static int watch(fd_set *ready, int descriptor, int highest)
{
    if (descriptor < 0)
        return highest;
    FD_SET((unsigned)descriptor, ready); /* the macros of each libc take this */
    return descriptor > highest ? descriptor : highest;
}

/* Wait for the command, and meanwhile reap every orphan, forward signals and answer calls. By select(2): poll(2) fails if
   RLIMIT_NOFILE is below the number of descriptors, and a command may set the limits of init by prlimit(2). The listener
   of refusals has no end while init is under the filter itself. */
static int reap(struct running *running, struct rusage *usage)
{
    struct command *command = running->command;
    int listener = command->answers ? command->context->listener : -1, status;
    fd_set ready;
    report_stop(running);
    for (;;) {
        for (;;) {
            pid_t ended = wait4(-1, &status, WNOHANG, usage);
            if (ended == running->pid)
                return status;
            if (ended <= 0)
                break;
            finish_rename(command->context, ended, status, &command->refusals);
        }
        FD_ZERO(&ready);
        int highest = watch(&ready, running->mediated, watch(&ready, listener, watch(&ready, command->signals, -1)));
        if (select(highest + 1, &ready, NULL, NULL, NULL) < 0)
            continue;
        if (FD_ISSET((unsigned)command->signals, &ready))
            forward(running);
        if (listener >= 0 && FD_ISSET((unsigned)listener, &ready))
            answer_refusal(command->context, &command->refusals);
        if (running->mediated >= 0 && FD_ISSET((unsigned)running->mediated, &ready))
            mediate_waiting(running);
    }
}

static double seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

/* Receive the listener that the command has sent before its exec, after those of programs that could not be executed. */
static int take_listener(int channel)
{
    int listener = -1;
    for (int received; receive_one(channel, MSG_DONTWAIT, &received); listener = received)
        if (listener >= 0)
            close(listener);
    return listener;
}

/* Start a command in this process's sandbox and wait for its end. Return false if it was not started; that is reported. */
bool run_command(struct command *command, struct exited *exited)
{
    struct running running = {command, -1, -1, false};
    struct rusage usage;
    const struct value *request = command->request, *mediation = find(request, "mediation");
    const struct value *search = find_of(request, "search", SEQUENCE);
    static struct pool pool; /* until the end of this process */
    char **words = words_of(&pool, find(request, "argv")), **env = environment_of(
              &pool, find(request, "env"), command->context->is_redirected ? find_of(request, "proxies", SEQUENCE) : NULL);
    bool is_mediated = mediation != NULL && mediation->kind != NONE;
    int pair[2] = {-1, -1};
    if (words == NULL || env == NULL || search == NULL || command->signals < 0 || command->signals >= FD_SETSIZE ||
        command->context->listener >= FD_SETSIZE || (is_mediated && !is_mediation(mediation)) ||
        (is_mediated && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)) {
        report_failure(command->report, NOWHERE, "init", EINVAL, "the request of a command");
        return false;
    }
    struct start given = {.env = env, .listener_to = pair[1], .mediation = is_mediated ? mediation : NULL,
                          .terminal = command->channel >= 0 ? command->context->terminal : -1};
    exited->started = await_tick(number_of(request, "after"));
    running.pid = start_program(&given, words, search);
    if (running.pid < 0) {
        report_failure(command->report, NOWHERE, "exec", errno, "");
        return false;
    }
    for (int number = 0; number < 3; number++)
        close(number); /* a pipe of the command must end when the command does */
    if (is_mediated) {
        close(pair[1]);
        running.mediated = take_listener(pair[0]);
        close(pair[0]);
    }
    exited->status = reap(&running, &usage);
    exited->user = seconds(usage.ru_utime);
    exited->system = seconds(usage.ru_stime);
    exited->max_rss = usage.ru_maxrss;
    await_renames(command->context, &command->refusals);
    if (command->ends_children)
        end_children(NULL);
    pid_t other;
    while ((other = waitpid(-1, NULL, WNOHANG)) > 0)
        ;
    exited->is_empty = other < 0 && errno == ECHILD;
    return true;
}
