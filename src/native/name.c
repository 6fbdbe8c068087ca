/* The keeper's name: machine, pid namespace, personality(2) and interpreter. The keeper finds other differences itself
 * (ext/keeper/caller.py), and takes over what it can. */
#define _GNU_SOURCE
#include "native.h"

#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#define FACT_SIZE 65536   /* bytes of a file in /proc that are read */
#define SHEBANG_SIZE 4096 /* bytes of the script that are looked at */

/* Prefixes of variables that an interpreter and its libraries read once: ``AT_START`` of ext/keeper/variables.py. A keeper
 * for all has none of them. The locale is the caller's (ext/keeper/command.py). */
static const char *const AT_START[] = {"PYTHON", "LOCPATH", "LD_", "GLIBC_", "MALLOC_", "OPENSSL_"};

/* Options of an interpreter in the first line of SCRIPT, as pipx writes one. */
static const char *const OPTIONS[] = {"-E", "-I", "-s", "-Es", "-sE"};

/* Append the file and a NUL. Return false if it cannot be read. */
static bool append_file(struct bytes *facts, const char *path)
{
    static unsigned char content[FACT_SIZE];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    ssize_t size = read(file, content, sizeof content);
    close(file);
    if (size < 0)
        return false;
    append(facts, content, (size_t)size);
    append(facts, "", 1);
    return true;
}

static long long nanoseconds(struct timespec time) { return time.tv_sec * 1000000000LL + time.tv_nsec; }

/* Append what names the content of a file. Return false if it is no regular file. */
static bool append_stamp(struct bytes *facts, const char *path)
{
    struct stat found;
    char text[128];
    if (stat(path, &found) < 0 || !S_ISREG(found.st_mode))
        return false;
    snprintf(text, sizeof text, "%llu %llu %llu %lld %lld", (unsigned long long)found.st_dev,
             (unsigned long long)found.st_ino, (unsigned long long)found.st_size, nanoseconds(found.st_mtim),
             nanoseconds(found.st_ctim));
    append(facts, text, strlen(text) + 1);
    return true;
}

/* Append the first line of the script, which names its interpreter, and the stamp of that. Return false if the line is
 * another one than "#!PATH" or "#!PATH OPTION", as where a path is too long for the kernel, or holds a space: then it
 * names a shell. */
static bool append_interpreter(struct bytes *facts, const char *script)
{
    static char line[SHEBANG_SIZE];
    int file = open(script, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    ssize_t size = read(file, line, sizeof line - 1);
    close(file);
    if (size < 3 || memcmp(line, "#!/", 3) != 0)
        return false;
    line[size] = '\0';
    size_t end = strcspn(line, "\n"), path = strcspn(line, " \n");
    if (line[end] != '\n')
        return false;
    line[end] = '\0';
    append(facts, line, end + 1);
    if (path < end && !is_among(line + path + 1, OPTIONS, COUNT(OPTIONS)))
        return false;
    line[path] = '\0';
    return starts_with(strrchr(line, '/') + 1, "python") && append_stamp(facts, line + 2);
}

/* Write the hexadecimal remainder of a number of little-endian bytes by 2**127 - 1 into NAME (33 bytes). The product
 * of such a remainder and 256 is its 127 bits, rotated by 8. */
static void write_name(const struct bytes *facts, char *name)
{
    uint64_t high = 0, low = 0; /* 63 and 64 bits */
    for (size_t at = facts->size; at-- > 0;) {
        uint64_t over = high >> 55;
        high = ((high << 8) | (low >> 56)) & (UINT64_MAX >> 1);
        low = (low << 8) | over;
        low += facts->data[at];
        high += low < facts->data[at];
        if (high >> 63) { /* 2**127 is 1 */
            high &= UINT64_MAX >> 1;
            low++;
        }
        if (high == UINT64_MAX >> 1 && low == UINT64_MAX)
            high = low = 0;
    }
    snprintf(name, NAME_SIZE, "%016llx%016llx", (unsigned long long)high, (unsigned long long)low);
}

/* Write the name of a keeper for this process. Those for its variables and for all are equal where it has none of them.
 * Return false if a fact is not known. */
bool name_of(const char *script, char **variables, size_t count, enum kind kind, char *name)
{
    static char space[PATH_MAX];
    struct bytes facts = {0};
    struct utsname machine;
    const char *home = getenv("HOME");
    ssize_t size = readlink("/proc/self/ns/pid", space, sizeof space - 1);
    if (size < 0 || uname(&machine) < 0)
        return false;
    space[size] = '\0';
    if (kind != OF_GROUP)
        append(&facts, "", 1);
    else if (!append_file(&facts, "/proc/self/cgroup") || !append_file(&facts, "/proc/self/limits"))
        return false;
    if (!append_file(&facts, "/proc/self/personality"))
        return false;
    append(&facts, machine.nodename, strlen(machine.nodename) + 1);
    append(&facts, space, strlen(space) + 1);
    append(&facts, PROTOCOL, sizeof PROTOCOL);
    append(&facts, script, strlen(script) + 1);
    if (!append_stamp(&facts, script) || !append_interpreter(&facts, script))
        return false;
    append_text(&facts, "HOME="); /* the user's own modules are below it */
    append_text(&facts, home != NULL ? home : "");
    for (size_t at = 0; kind != OF_ALL && at < count; at++) {
        if (!starts_with_any(variables[at], AT_START, COUNT(AT_START)))
            continue;
        append(&facts, "", 1);
        append_text(&facts, variables[at]);
    }
    write_name(&facts, name);
    return !facts.has_failed;
}
