/* A directory of an overlay is renamed for the command.
 *
 * The kernel answers EXDEV if a directory has a lower layer, because a user's overlay has no "redirect_dir" (overlayfs.rst,
 * "Renaming directories" and "userxattr"). The filter of a sandbox with an overlay sends rename(2), renameat(2) and
 * renameat2(2) to init (SECCOMP_RET_USER_NOTIF). What is no directory continues at once: the kernel does it, with the
 * caller's own rights.
 *
 * 1. Init tries the call itself for a directory. Every answer but EXDEV is the kernel's own. For that one it forks a mover,
 *    whose exit code will be the answer; meanwhile it answers others.
 * 2. The mover fills a new directory beside the new name: directories are made, all other files are linked (link(2), by which the
 *    overlay copies them up). The old directory is whole until the end of this step. An overlay copies each name of a file
 *    for itself: the second is linked to what the first has become.
 * 3. It renames the new directory to the new name. An upper directory can be renamed.
 * 4. It removes the old directory, and no file that the new one does not have: another process may have added some.
 *
 * Its end before step 3 leaves the old name, its end after it the new one, with what remains of the old. A caller that is
 * gone (NOTIF_ID_VALID) ends step 2, and the new directory is removed. Only the death of the whole sandbox leaves a directory
 * ".mudroom-rename-…".
 *
 * Rights: a mover is a clone of init, which has the command's user, no capability, its filter and its namespaces. The two
 * things by which a process narrows itself further are honoured: after landlock_restrict_self(2), which the filter sends
 * here, too, no more directory is renamed in this sandbox; nor is one for a process with another label (attr/current in
 * proc(5)). What is renamed is read once and opened once; from then on only descriptors of this process count. */
#define _GNU_SOURCE
#include "launcher.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define OPENAT2 437
#define LANDLOCK_RESTRICT_SELF 446
#define CONTINUE 1            /* SECCOMP_USER_NOTIF_FLAG_CONTINUE */
#define NOREPLACE 1           /* RENAME_NOREPLACE */
#define OVERLAY 0x794c7630    /* OVERLAYFS_SUPER_MAGIC */
#define MOUNT_ID 0x1000       /* STATX_MNT_ID */
#define MOST_ENTRIES 100000
#define DEEPEST 100 /* three descriptors each */
#define REFUSED 254 /* exit code of a mover: EXDEV, which the user is told */
#define PASSED 253  /* no error number: the kernel is left to perform the call */
#define PART 65536
#define SLOTS 262144 /* a power of two above MOST_ENTRIES */

struct rename {
    const struct call *call;
    int from, to; /* the parents */
    char *old, *new; /* the names in them */
    uint64_t flags;
    size_t entries;
    char made[LONGEST_PATH]; /* in step 2: the directory that is filled, from ``to`` on */
};

/* The arguments of a call: directory and path of both names, and flags; -1: it has none. */
static bool find_arguments(int number, int *indices)
{
    static const struct {
        int number, indices[5];
    } CALLS[] = {
#ifdef SYS_rename
        {SYS_rename, {-1, 0, -1, 1, -1}},
#endif
#ifdef SYS_renameat
        {SYS_renameat, {0, 1, 2, 3, -1}},
#endif
        {SYS_renameat2, {0, 1, 2, 3, 4}},
    };
    for (size_t row = 0; row < COUNT(CALLS); row++)
        if (CALLS[row].number == number) {
            memcpy(indices, CALLS[row].indices, sizeof CALLS[row].indices);
            return true;
        }
    return false;
}

/* Read the path of a name, without slashes at its end. Return the directory that it starts at, or -1. ``name`` has
   LONGEST_PATH bytes. */
static int open_start(const struct call *call, int directory, int path, char *name)
{
    int at = directory >= 0 ? (int)call->from.arguments[directory] : AT_FDCWD;
    int error = read_string(call, call->from.arguments[path], name, 4096);
    if (error != 0 || *name == '\0') {
        errno = error != 0 ? error : ENOENT;
        return -1;
    }
    for (size_t size = strlen(name); size > 1 && name[size - 1] == '/'; size--)
        name[size - 1] = '\0';
    return open_directory_of(call, *name == '/' ? AT_FDCWD : at);
}

/* Open what a path leads to, by no magic link: those of /proc/self are this process's here, and lead where the caller
   may not. */
static int open_from(int start, const char *path, int flags)
{
    uint64_t how[3] = {(uint64_t)(O_PATH | O_CLOEXEC | flags), 0, 2 /* RESOLVE_NO_MAGICLINKS */};
    return (int)syscall(OPENAT2, start, path, how, sizeof how);
}

/* Whether the old name is a directory, as far as this process can see. */
static bool is_of_directory(const struct call *call, const int *indices, char *name)
{
    struct stat status;
    int start = open_start(call, indices[0], indices[1], name), opened = -1;
    if (start < 0)
        return false;
    opened = open_from(start, name, O_NOFOLLOW);
    bool is_directory = opened >= 0 && fstat(opened, &status) == 0 && S_ISDIR(status.st_mode);
    close(start);
    if (opened >= 0)
        close(opened);
    return is_directory && check_waiting(call) == 0;
}

/* ---- a call ---- */

/* Split a path at its last slash, and open the directory before it. */
static int open_parent(const struct call *call, int directory, int path, char *text, char **name)
{
    int start = open_start(call, directory, path, text);
    char *slash = start < 0 ? NULL : strrchr(text, '/');
    *name = slash == NULL ? text : slash + 1;
    if (slash == NULL)
        return start;
    *slash = '\0';
    int opened = open_from(start, slash == text ? "/" : text, O_DIRECTORY);
    close(start);
    return opened;
}

static int rename_at(int from, const char *old, int to, const char *new, uint64_t flags)
{
    return syscall(SYS_renameat2, from, old, to, new, flags | UNROUTED) < 0 ? errno : 0;
}

static uint64_t mount_of(int descriptor)
{
    uint64_t status[32] = {0}; /* struct statx: stx_mnt_id is at byte 144 */
    if (syscall(SYS_statx, descriptor, "", AT_EMPTY_PATH, MOUNT_ID, status) < 0)
        return 0;
    return (uint32_t)status[0] & MOUNT_ID ? status[18] : 0;
}

static bool is_overlay(int descriptor)
{
    struct statfs system;
    return fstatfs(descriptor, &system) == 0 && (uint32_t)system.f_type == OVERLAY;
}

/* Open a directory in a directory, on the same mount. */
static int open_inside(int at, const char *name)
{
    uint64_t how[3] = {O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0, 1 | 4 | 8}; /* NO_XDEV, NO_SYMLINKS, BENEATH */
    return (int)syscall(OPENAT2, at, name, how, sizeof how);
}

static DIR *list(int at)
{
    int opened = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listed = opened < 0 ? NULL : fdopendir(opened);
    if (listed == NULL && opened >= 0)
        close(opened);
    return listed;
}

/* Return the next name that is not the directory itself or its parent, or NULL with an error number, 0 at the end. */
static const char *next_name(DIR *listed)
{
    const struct dirent *entry;
    do {
        errno = 0;
        entry = readdir(listed);
    } while (entry != NULL && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0));
    return entry == NULL ? NULL : entry->d_name;
}

/* Copy the extended attributes, ACLs among them, but the labels that the kernel gives. */
static int copy_attributes(int from, int to)
{
    static const char *const ACLS[] = {"system.posix_acl_access", "system.posix_acl_default"};
    static char names[PART], content[PART];
    for (size_t index = 0; index < COUNT(ACLS); index++) /* the parent's default */
        if (fremovexattr(to, ACLS[index]) < 0 && errno != ENODATA && errno != EOPNOTSUPP)
            return errno;
    ssize_t size = flistxattr(from, names, sizeof names);
    if (size < 0)
        return errno == EOPNOTSUPP ? 0 : errno;
    for (const char *name = names; name < names + size; name += strlen(name) + 1) {
        if (strncmp(name, "security.", 9) == 0)
            continue;
        ssize_t got = fgetxattr(from, name, content, sizeof content);
        if (got < 0 || fsetxattr(to, name, content, (size_t)got, 0) < 0)
            return errno;
    }
    return 0;
}

static int copy_metadata(int from, int to)
{
    struct stat old, new;
    if (fstat(from, &old) < 0 || fstat(to, &new) < 0)
        return errno;
    if (old.st_uid != new.st_uid)
        return EPERM;
    if (old.st_gid != new.st_gid && fchown(to, (uid_t)-1, old.st_gid) < 0)
        return errno;
    int error = copy_attributes(from, to);
    if (error == 0 && fchmod(to, old.st_mode & 07777) < 0)
        error = errno;
    struct timespec times[] = {old.st_atim, old.st_mtim};
    return error == 0 && futimens(to, times) < 0 ? errno : error;
}

/* A file with several names, as it was found, and its first new name. */
struct shared_file {
    dev_t device;
    ino_t inode;
    char *path;
};

/* Return the slot of a file with several names, which has no path before the first; NULL for any other, or without memory. */
static struct shared_file *find_shared(const struct stat *status)
{
    static struct shared_file *slots;
    if (status->st_nlink < 2 || (slots == NULL && (slots = calloc(SLOTS, sizeof *slots)) == NULL))
        return NULL;
    size_t slot = ((uint64_t)status->st_ino * 0x9e3779b97f4a7c15U) >> 46; /* 18 bits */
    while (slots[slot].path != NULL &&
           (slots[slot].inode != status->st_ino || slots[slot].device != status->st_dev))
        slot = (slot + 1) % SLOTS;
    return &slots[slot];
}

/* Link a file to its first new name. */
static bool link_again(const struct rename *rename, char *path, int to, const char *name)
{
    char *last = strrchr(path, '/');
    *last = '\0';
    int above = open_inside(rename->to, path);
    *last = '/';
    bool is_linked = above >= 0 && linkat(above, last + 1, to, name, 0) == 0;
    if (above >= 0)
        close(above);
    return is_linked;
}

static int link_file(const struct rename *rename, int from, const char *name, const struct stat *status, int to)
{
    struct shared_file *shared = find_shared(status);
    if (shared != NULL && shared->path != NULL && link_again(rename, shared->path, to, name))
        return 0;
    if (linkat(from, name, to, name, 0) < 0)
        return errno;
    char *path = NULL;
    if (shared != NULL && shared->path == NULL && asprintf(&path, "%s/%s", rename->made, name) > 0)
        *shared = (struct shared_file){status->st_dev, status->st_ino, path};
    return 0;
}

static int fill(struct rename *rename, int from, int to, int depth);

/* Make the directory ``name`` in ``to`` the same as the one in ``from``. */
static int fill_directory(struct rename *rename, int from, const char *name, int to, const char *new, int depth)
{
    int source = open_inside(from, name), target = -1, error = 0;
    size_t length = strlen(rename->made), room = sizeof rename->made - length;
    if ((size_t)snprintf(rename->made + length, room, length == 0 ? "%s" : "/%s", new) >= room)
        error = ENAMETOOLONG;
    else if (source < 0 || mkdirat(to, new, 0700) < 0 || (target = open_inside(to, new)) < 0)
        error = errno;
    if (error == 0)
        error = fill(rename, source, target, depth);
    if (error == 0)
        error = copy_metadata(source, target);
    if (source >= 0)
        close(source);
    if (target >= 0)
        close(target);
    rename->made[length] = '\0';
    return error;
}

static int fill(struct rename *rename, int from, int to, int depth)
{
    DIR *listed = depth < DEEPEST ? list(from) : NULL;
    int error = 0;
    if (listed == NULL)
        return depth < DEEPEST ? errno : ELOOP;
    for (const char *name; error == 0 && (name = next_name(listed)) != NULL;) {
        struct stat status;
        if (++rename->entries > MOST_ENTRIES)
            error = E2BIG;
        else if (check_waiting(rename->call) != 0)
            error = EINTR;
        else if (fstatat(from, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
            error = errno;
        else if (S_ISDIR(status.st_mode))
            error = fill_directory(rename, from, name, to, name, depth + 1);
        else
            error = link_file(rename, from, name, &status, to);
    }
    if (error == 0)
        error = errno;
    closedir(listed);
    return error;
}

/* Whether the new directory has an entry of the old one: for a file, a link to the same. An overlay's links have different
   inode numbers ("index" in overlayfs.rst), and the same times, to the nanosecond, of one file below. A name that was linked to
   another's copy is still the file that was found in step 2. */
static bool is_kept(int kept, const char *name, const struct stat *old)
{
    struct stat new;
    if (fstatat(kept, name, &new, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    if (S_ISDIR(old->st_mode))
        return S_ISDIR(new.st_mode);
    if (old->st_mode != new.st_mode || old->st_nlink < 2 || old->st_size != new.st_size ||
        memcmp(&old->st_mtim, &new.st_mtim, sizeof new.st_mtim) != 0)
        return false;
    const struct shared_file *shared = find_shared(old);
    return ((shared != NULL && shared->path != NULL) ||
            (old->st_nlink == new.st_nlink && memcmp(&old->st_ctim, &new.st_ctim, sizeof new.st_ctim) == 0));
}

static int remove_directory(int at, const char *name, int kept);

static int remove_entry(int at, const char *name, int kept)
{
    struct stat status;
    if (fstatat(at, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return errno;
    if (kept >= 0 && !is_kept(kept, name, &status))
        return 0;
    if (!S_ISDIR(status.st_mode))
        return unlinkat(at, name, 0) < 0 ? errno : 0;
    int inside = kept >= 0 ? open_inside(kept, name) : -1;
    int error = kept >= 0 && inside < 0 ? errno : remove_directory(at, name, inside);
    if (inside >= 0)
        close(inside);
    return error;
}

/* Remove the directory ``name``, with all in it that the directory ``kept`` has, too; with all in it if ``kept`` is -1. */
static int remove_directory(int at, const char *name, int kept)
{
    struct stat status;
    int opened = open_inside(at, name), error = 0;
    if (opened < 0)
        return errno;
    if (fstat(opened, &status) < 0 || ((status.st_mode & 0300) != 0300 && fchmod(opened, 0700) < 0))
        error = errno;
    DIR *listed = error == 0 ? list(opened) : NULL;
    if (listed == NULL && error == 0)
        error = errno;
    for (const char *below; error == 0 && (below = next_name(listed)) != NULL;)
        error = remove_entry(opened, below, kept);
    if (error == 0)
        error = errno;
    if (listed != NULL)
        closedir(listed);
    close(opened);
    return error == 0 && unlinkat(at, name, AT_REMOVEDIR) < 0 ? errno : error;
}

/* Whether the new name is a directory with content. */
static bool is_full(const struct rename *rename)
{
    int opened = open_inside(rename->to, rename->new);
    DIR *listed = opened < 0 ? NULL : list(opened);
    bool has_any = listed != NULL && next_name(listed) != NULL;
    if (listed != NULL)
        closedir(listed);
    if (opened >= 0)
        close(opened);
    return has_any;
}

/* Rename a directory that the kernel does not. */
static int move(struct rename *rename)
{
    char made[64];
    struct stat status;
    if (rename->flags & ~(uint64_t)NOREPLACE)
        return REFUSED;
    if (is_full(rename))
        return ENOTEMPTY;
    snprintf(made, sizeof made, ".mudroom-rename-%d-%llx", (int)getpid(), (unsigned long long)rename->call->from.id);
    if (fstatat(rename->to, made, &status, AT_SYMLINK_NOFOLLOW) == 0)
        return REFUSED;
    int error = fill_directory(rename, rename->from, rename->old, rename->to, made, 0);
    if (error == 0)
        error = check_waiting(rename->call);
    if (error == 0)
        error = rename_at(rename->to, made, rename->to, rename->new, rename->flags);
    if (error != 0) {
        int kept = remove_directory(rename->to, made, -1);
        return kept == 0 && (error == EEXIST || error == ENOTEMPTY || error == ENOTDIR) ? error : REFUSED;
    }
    int kept = open_inside(rename->to, rename->new);
    error = kept < 0 ? errno : remove_directory(rename->from, rename->old, kept);
    close(kept);
    return error;
}

/* Whether the caller has the label of this process: AppArmor, SELinux and others. */
static bool has_own_label(const struct call *call)
{
    char own[1024], other[1024];
    int opened = open("/proc/self/attr/current", O_RDONLY | O_CLOEXEC), theirs = open_of_caller(call, "attr/current", O_RDONLY);
    ssize_t size = opened < 0 ? -1 : read(opened, own, sizeof own);
    ssize_t got = theirs < 0 ? -1 : read(theirs, other, sizeof other);
    if (opened >= 0)
        close(opened);
    if (theirs >= 0)
        close(theirs);
    return size == got && (size <= 0 || memcmp(own, other, (size_t)size) == 0);
}

static bool is_movable(const char *name) { return *name != '\0' && strcmp(name, ".") != 0 && strcmp(name, "..") != 0; }

/* Try a call as it is. Return its answer; REFUSED if the kernel does not rename the directory; PASSED if it has not been
   tried. ``rename`` has no parents (-1) before. */
static int try_rename(struct rename *rename, const int *indices)
{
    static char old[LONGEST_PATH], new[LONGEST_PATH];
    const struct call *call = rename->call;
    rename->flags = indices[4] >= 0 ? (uint32_t)call->from.arguments[indices[4]] : 0;
    if ((rename->from = open_parent(call, indices[0], indices[1], old, &rename->old)) < 0 ||
        (rename->to = open_parent(call, indices[2], indices[3], new, &rename->new)) < 0 ||
        !is_movable(rename->old) || !is_movable(rename->new) || check_waiting(call) != 0)
        return PASSED;
    int error = rename_at(rename->from, rename->old, rename->to, rename->new, rename->flags);
    uint64_t mount = error == EXDEV ? mount_of(rename->from) : 0;
    return mount != 0 && mount == mount_of(rename->to) && is_overlay(rename->from) ? REFUSED : error;
}

/* ---- in init ---- */

/* Answer a call of ``from``: with an error number, or 0; or let the kernel perform it. */
static void answer(const struct context *context, uint64_t id, int error, bool continues)
{
    struct reply reply = {.id = id, .error = -error, .flags = continues ? CONTINUE : 0};
    while (syscall(SYS_ioctl, context->listener, NOTIF_SEND, &reply) < 0 && errno == EINTR)
        ;
}

/* Fork a mover for a call. Return false without one. */
static bool start_mover(struct context *context, struct rename *rename, const char *name)
{
    if (context->moving == MOST_MOVERS)
        return false;
    pid_t pid = (pid_t)syscall(SYS_clone, (unsigned long)SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        int kept[] = {context->listener, rename->from, rename->to};
        keep_only(kept, COUNT(kept));
        _exit(move(rename));
    }
    if (pid < 0)
        return false;
    struct mover *mover = &context->movers[context->moving++];
    mover->pid = pid;
    mover->id = rename->call->from.id;
    snprintf(mover->name, sizeof mover->name, "%.255s", name);
    return true;
}

/* Return whether a call is one of those that the filter sends here although it is not refused; it is or will be answered. */
bool answer_rename(struct context *context, const struct notification *request, struct refusals *refusals)
{
    static char name[LONGEST_PATH];
    const struct call call = {.listener = context->listener, .from = *request};
    struct rename rename = {.call = &call, .from = -1, .to = -1};
    int indices[5], error;
    bool is_rename = find_arguments(request->number, indices);
    if (!is_rename && request->number != LANDLOCK_RESTRICT_SELF)
        return false;
    context->is_narrowed = context->is_narrowed || !is_rename;
    if (context->is_narrowed || !is_of_directory(&call, indices, name) || !has_own_label(&call)) {
        answer(context, request->id, 0, true);
        return true;
    }
    error = try_rename(&rename, indices);
    if (error == REFUSED && !start_mover(context, &rename, name)) {
        add_named(refusals, "rename", name);
        error = EXDEV;
    }
    if (error != REFUSED)
        answer(context, request->id, error == PASSED ? 0 : error, error == PASSED);
    if (rename.from >= 0)
        close(rename.from);
    if (rename.to >= 0)
        close(rename.to);
    return true;
}

/* Answer the call of a mover that has ended; nothing if ``pid`` is none. */
void finish_rename(struct context *context, pid_t pid, int status, struct refusals *refusals)
{
    for (size_t index = 0; index < context->moving; index++) {
        struct mover *mover = &context->movers[index];
        if (mover->pid != pid)
            continue;
        int error = WIFEXITED(status) ? WEXITSTATUS(status) : REFUSED;
        if (error == REFUSED)
            add_named(refusals, "rename", mover->name);
        answer(context, mover->id, error == REFUSED ? EXDEV : error, false);
        *mover = context->movers[--context->moving];
        return;
    }
}

/* Wait for the movers: their callers are gone, or will be with the sandbox. */
void await_renames(struct context *context, struct refusals *refusals)
{
    int status;
    while (context->moving > 0) {
        pid_t pid = context->movers[0].pid;
        if (waitpid(pid, &status, 0) == pid || errno == ECHILD)
            finish_rename(context, pid, status, refusals);
    }
}
