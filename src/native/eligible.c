/* Whether a keeper may run the words of this process, judging by verb, options, variables and descriptors. */
#define _GNU_SOURCE
#include "native.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

/* A verb that a keeper runs. The beginning of an option that leads to the script, or NULL: the process stays
 * (--background), or follows others (--follow). Whether it runs for a terminal whose foreground group contains this
 * process: it neither asks, pages nor relays. The others need the terminal as their controlling terminal, which a process
 * in another session cannot have. */
static const struct {
    const char *name, *in_process;
    bool on_terminal;
} VERBS[] = {
    {"apply", NULL, false},   {"checkpoint", NULL, false}, {"diff", NULL, false},     {"discard", NULL, false},
    {"exec", "--b", false},   {"fork", NULL, false},       {"hook", NULL, false},     {"log", "--fol", false},
    {"ls", NULL, true},       {"policy", NULL, false},     {"ps", NULL, false},       {"recover", NULL, false},
    {"redo", NULL, false},    {"resolve", NULL, false},    {"rollback", NULL, false}, {"run", NULL, false},
    {"status", NULL, true},   {"undo", NULL, false},
};
static const char *const HELP[] = {"-h", "--h"}; /* it ends an interpreter in its own way */

/* Parts of paths that mean the process that reads them: /dev/fd/63, from ``--card <(…)`` in bash. */
static const char *const OF_THE_PROCESS[] = {"/fd/", "/proc/"};

/* Variables of an interpreter with which it runs as a keeper does, or that it does not know. With any other the script is
 * executed. */
static const char *const PYTHON_VARIABLES[] = {
    "PYTHONPATH",        "PYTHONDONTWRITEBYTECODE",   "PYTHONUNBUFFERED",    "PYTHONIOENCODING",
    "PYTHONHASHSEED",    "PYTHONNOUSERSITE",          "PYTHONUTF8",          "PYTHONSTARTUP",
    "PYTHONUSERBASE",    "PYTHONBREAKPOINT",          "PYTHONFAULTHANDLER",  "PYTHONWARNINGS",
    "PYTHONSAFEPATH",    "PYTHONASYNCIODEBUG",        "PYTHON_COLORS",       "PYTHON_HISTORY",
    "PYTHON_VERSION",    "PYTHON_SHA256",             "PYTHON_PIP_VERSION",  "PYTHON_SETUPTOOLS_VERSION",
    "PYTHON_GET_PIP_URL", "PYTHON_GET_PIP_SHA256",    "PYTHON_KEYRING_BACKEND",
};

static bool are_terminals_right(bool on_terminal)
{
    pid_t group = getpgrp();
    for (int number = 0; number < 3; number++)
        if (isatty(number) && (!on_terminal || tcgetpgrp(number) != group))
            return false;
    return true;
}

/* Return whether the descriptors are those with which an interpreter starts as usual. */
bool are_descriptors_right(void)
{
    struct stat found;
    for (int number = 0; number < 3; number++)
        if (fstat(number, &found) < 0 || S_ISDIR(found.st_mode))
            return false;
    return true;
}

bool are_words_right(int argc, char **argv)
{
    if (argc < 2)
        return false;
    for (size_t at = 0; at < COUNT(VERBS); at++) {
        if (strcmp(argv[1], VERBS[at].name) != 0)
            continue;
        for (int word = 2; word < argc && strcmp(argv[word], "--") != 0; word++) {
            if (starts_with_any(argv[word], HELP, COUNT(HELP)))
                return false;
            if (VERBS[at].in_process != NULL && starts_with(argv[word], VERBS[at].in_process))
                return false;
            for (size_t part = 0; part < COUNT(OF_THE_PROCESS); part++)
                if (strstr(argv[word], OF_THE_PROCESS[part]) != NULL)
                    return false;
        }
        return are_terminals_right(VERBS[at].on_terminal);
    }
    return false;
}

/* Return whether each part of a PYTHONPATH is absolute. */
static bool is_absolute(const char *path)
{
    for (;;) {
        if (*path != '/')
            return false;
        path = strchr(path, ':');
        if (path == NULL)
            return true;
        path++;
    }
}

static bool is_variable_right(const char *variable)
{
    const char *equals = strchr(variable, '=');
    if (equals == NULL || equals == variable)
        return false; /* an interpreter has none such */
    if (starts_with(variable, "LD_PRELOAD=") || starts_with(variable, "LD_AUDIT="))
        return equals[1] == '\0';
    if (starts_with(variable, "MUDROOM_KEEPER="))
        return strcmp(equals + 1, "0") != 0;
    if (!starts_with(variable, "PYTHON"))
        return true;
    if (starts_with(variable, "PYTHONPATH="))
        return is_absolute(equals + 1);
    size_t size = (size_t)(equals - variable);
    for (size_t at = 0; at < COUNT(PYTHON_VARIABLES); at++)
        if (strlen(PYTHON_VARIABLES[at]) == size && strncmp(variable, PYTHON_VARIABLES[at], size) == 0)
            return true;
    return false;
}

static int compare_texts(const void *one, const void *other)
{
    return strcmp(*(char *const *)one, *(char *const *)other);
}

/* Return the variables in order; NULL if one is unusual, or there twice. Two of one name are neighbours then. */
char **sorted_environment(size_t *count)
{
    size_t variables = 0;
    while (environ != NULL && environ[variables] != NULL)
        variables++;
    char **sorted = calloc(variables + 1, sizeof *sorted);
    if (sorted == NULL)
        return NULL;
    for (size_t at = 0; at < variables; at++)
        sorted[at] = environ[at];
    qsort(sorted, variables, sizeof *sorted, compare_texts);
    for (size_t at = 0; at < variables; at++) {
        if (!is_variable_right(sorted[at]))
            return NULL;
        size_t name = (size_t)(strchr(sorted[at], '=') + 1 - sorted[at]);
        if (at > 0 && strncmp(sorted[at - 1], sorted[at], name) == 0)
            return NULL;
    }
    *count = variables;
    return sorted;
}
