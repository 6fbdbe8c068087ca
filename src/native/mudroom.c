/* The program mudroom: the client of the keeper, a process that has everything loaded and runs the command.
 *
 * Rules of this file:
 * 1. Each doubt leads to the console script of Python beside this program (SCRIPT), which is always right: no keeper,
 *    another verb, an unusual variable, any error. The script gets the same words, environment and descriptors.
 * 2. It decides nothing about a command. The keeper's process (ext/keeper/command.py) takes the words, the environment,
 *    the descriptors 0 to 2 and the directory, and checks that it is confined and limited as this process is.
 * 3. Nothing is sent before the other end is known to be this user's (keeper.c).
 * 4. A command runs once. Until the keeper's process has acknowledged the start, it has not started, and the script is
 *    executed; afterwards it never is.
 * 5. No library but libc, one thread, no locale, no file is written. Sizes are checked where they are used: words and
 *    environment are those of any caller. Memory is not given back: the process ends or becomes another one.
 * 6. Not for a caller with more rights than its user: a setuid copy is refused.
 *
 * The keeper's name (name.c) is a number of facts: the interpreter and the script, by their files, and what an
 * interpreter reads at its start. The keeper itself checks that its code is what such an interpreter would load
 * (code.py). Where a keeper is lacking, the script is told in NO_KEEPER under which name it is to start one: one for all if
 * its variables permit that, otherwise one for these variables.
 *
 * MUDROOM_KEEPER=only writes the answer and the names, and executes no script: ``mudroom keeper status`` asks so.
 *
 * Sources: unix(7), socket(7), cmsg(3), signal(7), signal-safety(7), execve(2), environ(7), proc(5),
 * getauxval(3), Python/marshal.c and Python/initconfig.c of CPython.
 */
#define _GNU_SOURCE
#include "native.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static const char *const ANSWERS[] = {
    [EXCLUDED] = "excluded", [NONE] = "none", [APART] = "apart", [OWN] = "own", [REFUSED] = "refused",
};

/* Write the path of the script into PATH (PATH_MAX bytes). Return false if this program's own path is not known. */
static bool find_script(char *path)
{
    ssize_t size = readlink("/proc/self/exe", path, PATH_MAX);
    if (size < 0) { /* /proc is not mounted */
        const char *given = (const char *)getauxval(AT_EXECFN);
        if (given == NULL || realpath(given, path) == NULL)
            return false;
        size = (ssize_t)strlen(path);
    }
    if (size <= 0 || size >= PATH_MAX || path[0] != '/')
        return false;
    path[size] = '\0';
    size_t end = (size_t)(strrchr(path, '/') + 1 - path);
    if (end + sizeof SCRIPT > PATH_MAX)
        return false;
    memcpy(path + end, SCRIPT, sizeof SCRIPT);
    return true;
}

/* Become the script, with the words of this process. Return never. */
static _Noreturn void execute_script(const char *script, int argc, char **argv)
{
    char *alone[] = {(char *)script, NULL};
    char **words = argc > 0 ? argv : alone;
    words[0] = (char *)script;
    execv(script, words);
    int number = errno;
    if (number == ENOENT && access(script, F_OK) == 0)
        write_error("the interpreter of ", script, " is missing: pip install --force-reinstall mudroom");
    else if (number == ENOENT)
        write_error(script, " is missing", ": link to mudroom, do not copy it, or pip install --force-reinstall mudroom");
    else
        write_error(script, ": ", strerror(number));
    _exit(FAILED);
}

/* Return whether this file gives its caller more rights than its user has (execve(2), capabilities(7)). */
static bool is_privileged(void)
{
    struct stat found;
    if (getauxval(AT_SECURE) == 0)
        return false;
    if (stat("/proc/self/exe", &found) < 0)
        return true;
    return (found.st_mode & (S_ISUID | S_ISGID)) != 0 ||
           getxattr("/proc/self/exe", "security.capability", NULL, 0) >= 0;
}

/* The names of the keepers that may run this command. */
static char names[KINDS][NAME_SIZE];

/* Have the keeper run the command, and end as it ended. Return why the keeper does not: the command has not run then. */
static enum answer hand_over(const char *script, int argc, char **argv)
{
    size_t count;
    if (getauxval(AT_SECURE) != 0 || !are_descriptors_right() || !are_words_right(argc, argv))
        return EXCLUDED;
    char **variables = sorted_environment(&count);
    for (int kind = 0; kind < KINDS; kind++)
        if (variables == NULL || !name_of(script, variables, count, kind, names[kind]))
            return EXCLUDED;
    int connection;
    enum answer answer = connect_to_keeper(names, &connection);
    if (answer != SERVED)
        return answer;
    struct bytes request = make_request(script, argc, argv);
    answer = request.has_failed ? REFUSED : start(connection, &request);
    if (answer == SERVED)
        wait_for_end(connection);
    close(connection);
    take_signals_back();
    return answer;
}

/* Tell the script which keeper it is to start. Without memory it starts none. */
static void tell(enum answer answer)
{
    static char told[sizeof PROTOCOL + 2 * NAME_SIZE];
    unsetenv(NO_KEEPER);
    if (answer != NONE && answer != APART && answer != OWN)
        return;
    const char *own = names[answer == APART ? OF_GROUP : OF_VARIABLES];
    snprintf(told, sizeof told, "%s %s %s", PROTOCOL, answer == NONE ? names[OF_ALL] : own, own);
    setenv(NO_KEEPER, told, 1);
}

int main(int argc, char **argv)
{
    static char script[PATH_MAX + 1];
    if (is_privileged()) {
        write_error("refuses to run with the rights of its file", ": chmod ug-s mudroom; setcap -r mudroom", "");
        return FAILED;
    }
    if (!find_script(script)) {
        write_error("the path of this program is not known", ": mount /proc, or run ", SCRIPT);
        return FAILED;
    }
    enum answer answer = hand_over(script, argc, argv);
    const char *wanted = getenv("MUDROOM_KEEPER");
    if (wanted != NULL && strcmp(wanted, "only") == 0) {
        dprintf(STDOUT_FILENO, "%s %s %s %s\n", ANSWERS[answer], names[OF_GROUP], names[OF_VARIABLES], names[OF_ALL]);
        return FAILED;
    }
    tell(answer);
    execute_script(script, argc, argv);
}
