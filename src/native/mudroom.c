/* The native client of the keeper: the same as src/mudroom/ext/keeper/client.py, without an interpreter.
 *
 * Rules of this file:
 * 1. Each doubt leads to the console script of Python beside this program (SCRIPT), which is always right: no keeper,
 *    another verb, an unusual variable, any error. The script gets the same words, environment and descriptors.
 * 2. It decides nothing about a command. The tables of eligible.c, name.c and keeper.c are those of client.py; a test
 *    compares them.
 * 3. Nothing is sent before the other end is known to be this user's (keeper.c).
 * 4. A command runs once. Until the keeper's process has acknowledged the start, it has not started, and the script is
 *    executed; afterwards it never is.
 * 5. No library but libc, one thread, no locale, no file is written. Sizes are checked where they are used: words and
 *    environment are those of any caller. Memory is not given back: the process ends or becomes another one.
 * 6. Not for a caller with more rights than its user: a setuid copy is refused.
 *
 * The name of the keeper (name.c) is a number of facts that client.py knows, too, where the script runs it. They name
 * the interpreter and the script by their files. The keeper itself checks that its code is what such an interpreter
 * would load (code.py).
 *
 * Sources: unix(7), socket(7), cmsg(3), signal(7), signal-safety(7), execve(2), environ(7), proc(5),
 * getauxval(3), Python/marshal.c and Python/initconfig.c of CPython.
 */
#define _GNU_SOURCE
#include "native.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

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

/* Have the keeper run the command, and end as it ended. Return if the keeper cannot: the command has not run then. */
static void hand_over(const char *script, int argc, char **argv)
{
    char apart[NAME_SIZE], name[NAME_SIZE];
    size_t count;
    if (getauxval(AT_SECURE) != 0 || !are_descriptors_right() || !are_words_right(argc, argv))
        return;
    char **variables = sorted_environment(&count);
    if (variables == NULL || !name_of(script, variables, count, true, apart) ||
        !name_of(script, variables, count, false, name))
        return;
    int connection = connect_to_keeper(apart, name);
    if (connection < 0)
        return;
    struct bytes request = make_request(script, argc, argv);
    if (!request.has_failed && start(connection, &request))
        wait_for_end(connection);
    close(connection);
    take_signals_back();
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
    hand_over(script, argc, argv);
    execute_script(script, argc, argv);
}
