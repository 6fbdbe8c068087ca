/* The processes of a sandbox: stopped, continued, ended; and what a process gives up first: descriptors, signals.
 *
 * The launcher or template that cloned an init is an ancestor of every process in its sandbox: init inherits orphans
 * (pid_namespaces(7), or as a subreaper). So the processes to stop are init and its descendants, all visible in this
 * process's /proc.
 *
 * A process is stopped before its children are listed, because a stopped process makes no more children. A shell that is
 * stopped first also does not see its jobs stop and does not take the terminal back. For the same reason children are
 * continued before their parents. */
#define _GNU_SOURCE
#include "launcher.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef PATIENCE
#define PATIENCE 20000 /* milliseconds in which a process must come to rest: longer than a scheduler lets one wait, and
                          than a flush takes on a busy disk. One that waits for a dead disk never rests. */
#define MOST 60000     /* milliseconds for all of them. A sandbox that forks faster than it can be stopped never rests. On a
                          slow machine (emulated, or with hundreds of busy processes) a pause takes many seconds. */
#endif
#define CLOSE_RANGE 436
#define PART 4096

static const char HIDDEN[] = "its processes are hidden in /proc", LATE[] = "its processes did not stop in time";

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000LL + time.tv_nsec / 1000000;
}

/* Return more memory. Without any this process ends, and with it its sandboxes: a process that is not on a list would be
   neither stopped nor ended. */
static void *grow(void *memory, size_t size)
{
    void *grown = realloc(memory, size);
    if (grown == NULL)
        _exit(FAILED);
    return grown;
}

void add_pid(struct pids *pids, pid_t pid)
{
    if (pids->count == pids->room) {
        pids->room = pids->room * 2 + 64;
        pids->items = grow(pids->items, pids->room * sizeof *pids->items);
    }
    pids->items[pids->count++] = pid;
}

static bool has_pid(const struct pids *pids, pid_t pid)
{
    for (size_t index = 0; index < pids->count; index++)
        if (pids->items[index] == pid)
            return true;
    return false;
}

/* Read a file of /proc, as a text. Return NULL if the process is gone. */
static char *read_text(const char *path)
{
    size_t size = 0;
    char *text = NULL;
    int opened = open(path, O_RDONLY | O_CLOEXEC);
    if (opened < 0)
        return NULL;
    for (ssize_t got = 1; got > 0; size += got > 0 ? (size_t)got : 0) {
        text = grow(text, size + PART + 1);
        got = read(opened, text + size, PART);
    }
    text[size] = '\0';
    close(opened);
    return text;
}

static void add_children(const char *path, struct pids *found)
{
    char *text = read_text(path), *at = text, *end;
    for (long pid; at != NULL && (pid = strtol(at, &end, 10), end != at); at = end)
        add_pid(found, (pid_t)pid);
    free(text);
}

/* The state in proc_pid_stat(5); '\0' for a thread that is gone. ``parent`` may be NULL. */
static char state_of(const char *path, pid_t *parent)
{
    char *text = read_text(path), state = '\0';
    const char *after = text == NULL ? NULL : strrchr(text, ')'); /* the name before may contain anything */
    long number = 0;
    if (after != NULL && sscanf(after + 1, " %c %ld", &state, &number) != 2)
        state = '\0';
    if (parent != NULL)
        *parent = (pid_t)number;
    free(text);
    return state;
}

/* Call ``each`` with the path of a file of every thread of a process; it returns false to stop. Return NULL, or why the
   threads cannot be listed: the process exists but its entry is hidden (hidepid, proc(5)). */
static const char *for_threads(pid_t pid, const char *file, bool (*each)(const char *path, void *given), void *given)
{
    char path[120];
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *threads = opendir(path);
    if (threads == NULL)
        return kill(pid, 0) < 0 && errno == ESRCH ? NULL : HIDDEN;
    for (const struct dirent *thread; (thread = readdir(threads)) != NULL;) {
        if (thread->d_name[0] == '.' || strlen(thread->d_name) > 20)
            continue;
        snprintf(path, sizeof path, "/proc/%d/task/%.20s/%s", (int)pid, thread->d_name, file);
        if (!each(path, given))
            break;
    }
    closedir(threads);
    return NULL;
}

static bool collect(const char *path, void *found)
{
    add_children(path, found);
    return true;
}

static bool look(const char *path, void *is_at_rest)
{
    char state = state_of(path, NULL);
    *(bool *)is_at_rest = state == '\0' || strchr("TtZXx", state) != NULL; /* no instruction is executed: stopped, ended */
    return *(bool *)is_at_rest;
}

/* Whether none of a process's threads can run. True for a process that has ended. */
static const char *find_rest(pid_t pid, bool *is_at_rest)
{
    *is_at_rest = true;
    return for_threads(pid, "stat", look, is_at_rest);
}

static const char *find_next(const struct pids *generation, struct pids *next)
{
    const char *why = NULL;
    next->count = 0;
    for (size_t index = 0; why == NULL && index < generation->count; index++)
        why = for_threads(generation->items[index], "children", collect, next);
    return why;
}

/* Stop processes and wait until they rest; a system call in progress completes first. A child made by vfork(2) has to exec
   before its parent can stop, so it must not be stopped before its parent. */
static const char *stop(const struct pids *processes, int64_t end)
{
    struct timespec moment = {0, 200000};
    for (size_t index = 0; index < processes->count; index++)
        kill(processes->items[index], SIGSTOP);
    for (size_t index = 0; index < processes->count; index++) {
        int64_t deadline = now() + PATIENCE;
        for (;;) {
            bool is_at_rest;
            const char *why = find_rest(processes->items[index], &is_at_rest);
            if (why != NULL || is_at_rest) {
                if (why != NULL)
                    return why;
                break;
            }
            if (now() > (deadline < end ? deadline : end))
                return LATE;
            nanosleep(&moment, NULL);
        }
    }
    return NULL;
}

/* Stop all that runs in one pass over the generations. ``seen`` gets every process, ``rests`` whether all rested. */
static const char *stop_once(pid_t init, struct pids *stopped, struct pids *seen, bool *rests, int64_t end)
{
    struct pids generation = {0}, next = {0}, busy = {0};
    const char *why = NULL;
    add_pid(&generation, init);
    *rests = true;
    while (why == NULL && generation.count > 0) {
        busy.count = 0;
        for (size_t index = 0; why == NULL && index < generation.count; index++) {
            pid_t pid = generation.items[index];
            bool is_at_rest;
            why = find_rest(pid, &is_at_rest);
            add_pid(seen, pid);
            if (!is_at_rest)
                add_pid(&busy, pid);
        }
        for (size_t index = 0; why == NULL && index < busy.count; index++)
            if (!has_pid(stopped, busy.items[index]))
                add_pid(stopped, busy.items[index]);
        if (why == NULL)
            why = stop(&busy, end);
        *rests = *rests && busy.count == 0;
        if (why == NULL)
            why = find_next(&generation, &next);
        struct pids other = generation;
        generation = next;
        next = other;
    }
    free(generation.items);
    free(next.items);
    free(busy.items);
    return why;
}

static bool are_equal(const struct pids *some, const struct pids *others)
{
    for (size_t index = 0; index < some->count; index++)
        if (!has_pid(others, some->items[index]))
            return false;
    for (size_t index = 0; index < others->count; index++)
        if (!has_pid(some, others->items[index]))
            return false;
    return true;
}

/* Stop a sandbox. On return none of its threads runs or is in a system call, until ``resume_all``. ``stopped`` gets the
   pids that were not stopped already. Return NULL, or why it is impossible; the sandbox then goes on. */
const char *pause_all(pid_t init, struct pids *stopped)
{
    struct pids before = {0}, seen = {0};
    int64_t end = now() + MOST;
    const char *why = NULL;
    for (bool rests, is_first = true;; is_first = false) {
        seen.count = 0;
        why = stop_once(init, stopped, &seen, &rests, end);
        /* two equal passes: /proc may skip a child while another one ends (proc(5)) */
        if (why != NULL || (rests && !is_first && are_equal(&seen, &before)))
            break;
        if (now() > end) {
            why = LATE;
            break;
        }
        struct pids other = before;
        before = seen;
        seen = other;
    }
    if (why != NULL)
        resume_all(init, stopped);
    free(before.items);
    free(seen.items);
    return why;
}

static bool descends(pid_t pid, pid_t init)
{
    char path[64];
    while (pid > 1 && pid != init) {
        snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
        if (state_of(path, &pid) == '\0')
            return false;
    }
    return pid == init;
}

/* Continue the processes that ``pause_all`` stopped and that still exist, children before their parents. A process that
   was stopped before the pause stays stopped. */
const char *resume_all(pid_t init, struct pids *stopped)
{
    for (size_t index = stopped->count; index > 0; index--)
        if (descends(stopped->items[index - 1], init))
            kill(stopped->items[index - 1], SIGCONT);
    stopped->count = 0;
    return NULL;
}

/* Kill and reap all children but ``spared``. As a subreaper this process inherits their children, which are killed in
   turn. */
void end_children(const struct pids *spared)
{
    struct pids children = {0};
    for (bool has_any = true; has_any;) {
        has_any = false;
        children.count = 0;
        add_children("/proc/thread-self/children", &children);
        for (size_t index = 0; index < children.count; index++) {
            pid_t pid = children.items[index];
            if (spared != NULL && has_pid(spared, pid))
                continue;
            has_any = true;
            kill(pid, SIGKILL);
            waitpid(pid, NULL, 0);
        }
    }
    free(children.items);
}

static int compare(const void *one, const void *other) { return *(const int *)one - *(const int *)other; }

/* Close all descriptors above the standard ones except ``kept``, which is sorted. */
void keep_only(int *kept, size_t count)
{
    unsigned first = 3;
    qsort(kept, count, sizeof *kept, compare);
    for (size_t index = 0; index < count; index++) {
        if (kept[index] < (int)first)
            continue;
        if (first < (unsigned)kept[index])
            syscall(CLOSE_RANGE, first, (unsigned)kept[index] - 1, 0);
        first = (unsigned)kept[index] + 1;
    }
    syscall(CLOSE_RANGE, first, ~0U, 0);
}
