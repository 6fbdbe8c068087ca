/* A plan's steps, one function each: step_bind performs ("bind", ...). A step runs in the sandbox's init or in a template,
 * after the clone; a failure ends the sandbox before the command has run.
 *
 * Paths below the new root are resolved by openat2(2): a command of the same fork may exchange a directory of the view for a
 * link at any time. */
#define _GNU_SOURCE
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

/* From the headers of Linux (include/uapi), which the libc of a build may be older than; equal on all machines. */
enum {
    OPEN_TREE = 428, MOVE_MOUNT = 429, FSOPEN = 430, FSCONFIG = 431, FSMOUNT = 432, FSPICK = 433, OPENAT2 = 437, MOUNT_SETATTR = 442,
    LANDLOCK_CREATE_RULESET = 444, LANDLOCK_ADD_RULE = 445, LANDLOCK_RESTRICT_SELF = 446
};
#define CLONE_TREE (1 | O_CLOEXEC) /* OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC */
#define RECURSIVELY 0x8000         /* AT_RECURSIVE */
#define FROM_EMPTY 4               /* MOVE_MOUNT_F_EMPTY_PATH */
#define TO_EMPTY 0x40              /* MOVE_MOUNT_T_EMPTY_PATH */
#define CLOSE_ON_EXEC 1            /* FSOPEN_CLOEXEC, FSMOUNT_CLOEXEC */
#define SET_FLAG 0
#define SET_STRING 1
#define CREATE 6
#define READ_ONLY_NO_DEVICES (1 | 4)
#define OF_FILES 0x1c007 /* Landlock's rights on files: execute, write, read; truncate, ioctl, resolve_unix */
#define REFER 0x2000     /* LANDLOCK_ACCESS_FS_REFER */
#define UNLOGGED 5       /* LANDLOCK_RESTRICT_SELF_LOG_SAME_EXEC_OFF, _SUBDOMAINS_OFF */
#define MOST_TRIES 10000
#define MOST_LEFT 8 /* directories whose files end with the command */
#define DIRECTORY_AT (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

#define NUMBER_OF(index) (arguments[index].number)
#define PATH_OF(index) (arguments[index].data)

static int failed_at(struct context *context, const char *path)
{
    int error = errno;
    context->detail = path;
    return error;
}

static int close_after(int descriptor, int error)
{
    close(descriptor);
    return error;
}

void begin_context(struct context *context, int64_t namespaces)
{
    context->root = context->view = context->left = context->channel = context->gate = context->door = -1;
    context->engine = -1;
    context->engine_pid = 0;
    context->terminal = context->listener = -1;
    context->resolve = 4 | 8; /* RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH */
    context->namespaces = namespaces;
    context->is_overlay = context->has_domain = false;
    context->rows = NULL;
    context->is_narrowed = context->is_redirected = false;
    context->moving = 0;
    context->count = 0; /* the listeners stay as they are: each written page is copied for each command */
    context->detail = NULL;
}

/* Open below a directory. The kernel returns EAGAIN if a rename or a mount anywhere on the machine ran beside the
   resolution of a ``..``, also of one in a link (openat2(2)): it is repeated then, so that a busy machine ends no
   command, and at most MOST_TRIES times, so that an accomplice who renames without end holds no start for ever. */
static int open_scoped(int at, const char *path, int flags, uint64_t resolve)
{
    uint64_t how[3] = {(uint64_t)(flags | O_CLOEXEC), 0, resolve};
    for (int tries = 0;; tries++) {
        int opened = (int)syscall(OPENAT2, at, path, how, sizeof how);
        if (opened >= 0 || errno != EAGAIN || tries == MOST_TRIES)
            return opened;
    }
}

static int open_below(const struct context *context, int at, const char *path, int flags)
{
    return open_scoped(at, *path == '\0' ? "." : path, flags, context->resolve);
}

/* Open what exists at a path below the new root. An absolute path is the host's: a standing template mounts the view in
   the vault, and takes it from there. */
static int open_in(const struct context *context, const char *path, int flags)
{
    return *path == '/' ? open(path, flags | O_CLOEXEC) : open_below(context, context->root, path, flags);
}

static bool make_directories(const struct context *context, const char *path, mode_t mode);

/* Create the directories above the last name of ``path``; existing ones are kept. Return the last one,
   open, or -1. ``name`` is the last name. */
static int make_above(const struct context *context, const char *path, const char **name)
{
    const char *slash = strrchr(path, '/');
    char *above = strndup(path, slash == NULL ? 0 : (size_t)(slash - path));
    *name = slash == NULL ? path : slash + 1;
    if (above == NULL)
        return -1;
    int at = open_in(context, above, O_PATH | O_DIRECTORY);
    if (at < 0 && errno == ENOENT && make_directories(context, above, 0755)) /* usually only the last ones are missing */
        at = open_in(context, above, O_PATH | O_DIRECTORY);
    free(above); /* errno stays: musl 1.2, glibc 2.33 */
    return at;
}

/* Create the directories of ``path``; existing ones are kept. The last one gets ``mode``. */
static bool make_directories(const struct context *context, const char *path, mode_t mode)
{
    const char *name;
    if (*path == '\0')
        return true;
    int above = make_above(context, path, &name);
    if (above < 0)
        return false;
    bool is_made = mkdirat(above, name, mode) == 0 || errno == EEXIST;
    int error = errno;
    close(above);
    errno = error;
    return is_made;
}

/* Create what ``tree`` can be mounted on: a directory or an empty file. */
static bool make_place(const struct context *context, const char *path, int tree)
{
    const char *name;
    struct stat status;
    if (fstat(tree, &status) < 0)
        return false;
    if (S_ISDIR(status.st_mode))
        return make_directories(context, path, 0755);
    int above = make_above(context, path, &name);
    if (above < 0)
        return false;
    int made = openat(above, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644), error = errno;
    close(above);
    if (made >= 0)
        close(made);
    errno = error;
    return made >= 0 || error == EEXIST;
}

static bool set_attributes(int tree, uint64_t attributes, bool recursive)
{
    uint64_t attr[4] = {attributes, 0, 0, 0};
    return syscall(MOUNT_SETATTR, tree, "", AT_EMPTY_PATH | (recursive ? RECURSIVELY : 0), attr, sizeof attr) == 0;
}

/* Attach a detached mount, which is closed. */
static int attach(struct context *context, int tree, const char *path)
{
    int error = 0, place = open_in(context, path, O_PATH);
    if (place < 0)
        return close_after(tree, failed_at(context, path));
    if (syscall(MOVE_MOUNT, tree, "", place, "", FROM_EMPTY | TO_EMPTY) < 0)
        error = errno;
    close(place);
    return close_after(tree, error);
}

/* Attach a detached mount at a path whose directories are made. */
int attach_new(struct context *context, int tree, const char *path)
{
    if (!make_directories(context, path, 0755))
        return close_after(tree, failed_at(context, path));
    return attach(context, tree, path);
}

struct option {
    const char *key, *value;
};

/* Return a detached mount of a new file system, or -1. An option without value is a flag. */
static int new_filesystem(const char *kind, const struct option *options, size_t count, unsigned attributes)
{
    int opened = (int)syscall(FSOPEN, kind, CLOSE_ON_EXEC), tree = -1, error = 0;
    if (opened < 0)
        return -1;
    for (size_t index = 0; index < count && error == 0; index++) {
        const struct option *option = &options[index];
        unsigned command = option->value == NULL ? SET_FLAG : SET_STRING;
        if (syscall(FSCONFIG, opened, command, option->key, option->value, 0) < 0)
            error = errno;
    }
    if (error == 0 && syscall(FSCONFIG, opened, CREATE, NULL, NULL, 0) < 0)
        error = errno;
    if (error == 0 && (tree = (int)syscall(FSMOUNT, opened, CLOSE_ON_EXEC, attributes)) < 0)
        error = errno;
    close(opened);
    errno = error;
    return tree;
}

static step step_enter, step_tmpfs, step_proc, step_sysfs, step_devpts, step_cover, step_freeze, step_take, step_leave, step_beneath,
    step_bind, step_mounted, step_left, step_inside, step_spread, step_overlay, step_view, step_directory,
    step_symlink, step_file, step_seal, step_pivot, step_rlimit, step_umask, step_cwd, step_drop_capabilities,
    step_no_new_privs, step_landlock, step_seccomp, step_loopback, step_private, step_root, step_host, step_image,
    step_counters, step_drop_bounding_set;

static const struct {
    const char *name, *shape;
    step *perform;
} STEPS[] = {
    {"beneath", "p", step_beneath},
    {"bind", "ppii", step_bind},
    {"copy_root", "p", step_copy_root},
    {"counters", "s", step_counters},
    {"cover", "p", step_cover},
    {"cwd", "p", step_cwd},
    {"devpts", "p", step_devpts},
    {"directory", "pi", step_directory},
    {"drop_bounding_set", "", step_drop_bounding_set},
    {"drop_capabilities", "", step_drop_capabilities},
    {"engine", "psssss", step_engine},
    {"enter", "", step_enter},
    {"file", "pbi", step_file},
    {"freeze", "p", step_freeze},
    {"hand_over", "", step_hand_over},
    {"host", "pi", step_host},
    {"image", "pi", step_image},
    {"inside", "ppi", step_inside},
    {"landlock", "iiisi?s", step_landlock},
    {"leave", "", step_leave},
    {"left", "s", step_left},
    {"lend", "p", step_lend},
    {"lent", "p", step_lent},
    {"listen", "iisb", step_listen},
    {"listen_on_loopback", "s", step_listen_on_loopback},
    {"loopback", "", step_loopback},
    {"mounted", "ppis", step_mounted},
    {"nest", "bbp", step_nest},
    {"no_new_privs", "", step_no_new_privs},
    {"overlay", "psppi", step_overlay},
    {"pivot", "", step_pivot},
    {"private", "", step_private},
    {"proc", "p", step_proc},
    {"rlimit", "iii", step_rlimit},
    {"root", "ps", step_root},
    {"routes", "b", step_routes},
    {"seal", "pi", step_seal},
    {"seccomp", "b?bs", step_seccomp},
    {"spread", "ps", step_spread},
    {"symlink", "pp", step_symlink},
    {"sysfs", "p", step_sysfs},
    {"take", "pp", step_take},
    {"terminal", "p", step_terminal},
    {"tmpfs", "psi", step_tmpfs},
    {"umask", "i", step_umask},
    {"view", "p", step_view},
};

static int perform_one(struct context *context, const struct value *plan_step)
{
    if (plan_step->kind != SEQUENCE || plan_step->size == 0)
        return EINVAL;
    for (size_t row = 0; row < COUNT(STEPS); row++)
        if (is_text(&plan_step->items[0], STEPS[row].name)) {
            const struct value *arguments = plan_step->items + 1;
            size_t count = plan_step->size - 1;
            return has_shape(arguments, count, STEPS[row].shape) ? STEPS[row].perform(context, arguments, count) : EINVAL;
        }
    return ENOSYS;
}

/* Perform the steps of ``plan``. Return 0 or an error number; ``index`` is that of the step that failed. */
int perform_all(struct context *context, const struct value *plan, size_t *index)
{
    int error = plan != NULL && plan->kind == SEQUENCE ? 0 : EINVAL;
    for (*index = 0; error == 0 && *index < plan->size; ++*index) {
        context->detail = NULL;
        if ((error = perform_one(context, &plan->items[*index])) != 0)
            break;
    }
    return error;
}

/* Perform the steps of ``plan``. ``first`` is the index of its first step in the plan that the host knows. Return
   false after a failed step, which is reported if ``report`` is a descriptor. */
bool perform(struct context *context, const struct value *plan, size_t first, int report)
{
    size_t index;
    int error = perform_all(context, plan, &index);
    if (error == 0)
        return true;
    if (report >= 0) {
        const struct value *at = plan != NULL && plan->kind == SEQUENCE && index < plan->size ? &plan->items[index] : NULL;
        bool has_name = at != NULL && at->kind == SEQUENCE && at->size > 0 && is_string(&at->items[0]);
        const char *name = has_name ? at->items[0].data : "init";
        report_failure(report, first + index, name, error, context->detail != NULL ? context->detail : strerror(error));
    }
    return false;
}

static int step_enter(struct context *context, const struct value *arguments, size_t count)
{
    (void)arguments, (void)count;
    context->root = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return context->root < 0 ? failed_at(context, ".") : 0;
}

static int step_leave(struct context *context, const struct value *arguments, size_t count)
{
    (void)arguments, (void)count;
    close(context->root);
    context->root = -1;
    return 0;
}

/* Return a detached tmpfs with the options of a plan, or -1. */
static int new_tmpfs(const struct value *given, unsigned attributes)
{
    struct option options[16];
    errno = E2BIG;
    if (given->size > COUNT(options))
        return -1;
    errno = EINVAL;
    for (size_t index = 0; index < given->size; index++) {
        const struct value *pair = &given->items[index];
        if (pair->kind != SEQUENCE || pair->size != 2 || !is_string(&pair->items[0]) ||
            !(pair->items[1].kind == NONE || is_string(&pair->items[1])))
            return -1;
        options[index] = (struct option){pair->items[0].data, pair->items[1].data};
    }
    return new_filesystem("tmpfs", options, given->size, attributes);
}

static int step_tmpfs(struct context *context, const struct value *arguments, size_t count)
{
    (void)count;
    int tree = new_tmpfs(&arguments[1], (unsigned)NUMBER_OF(2));
    if (tree < 0)
        return errno;
    return attach_new(context, tree, PATH_OF(0));
}

/* Separate this namespace's mount events from the host's, in both directions. */
static int step_private(struct context *context, const struct value *arguments, size_t count)
{
    (void)context, (void)arguments, (void)count;
    return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ? errno : 0;
}

/* Mount ``tree``, which is closed, over a directory in the vault, and make it the new root. */
static int become_root(struct context *context, int tree, const char *mountpoint)
{
    if (syscall(MOVE_MOUNT, tree, "", AT_FDCWD, mountpoint, FROM_EMPTY) < 0)
        return close_after(tree, failed_at(context, mountpoint));
    close(tree);
    context->root = open(mountpoint, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return context->root < 0 ? failed_at(context, mountpoint) : 0;
}

/* Make an empty tmpfs the new root. Until the pivot it is mounted over its first argument. */
static int step_root(struct context *context, const struct value *arguments, size_t count)
{
    (void)count;
    int tree = new_tmpfs(&arguments[1], 6);
    return tree < 0 ? errno : become_root(context, tree, PATH_OF(0));
}

/* Make the host's root the new root, with everything mounted in it and with attributes on every mount. A nested user
   namespace can neither uncover these mounts nor make them writable: mount_namespaces(7), restrictions. */
static int step_host(struct context *context, const struct value *arguments, size_t count)
{
    (void)count;
    int tree = (int)syscall(OPEN_TREE, AT_FDCWD, "/", CLONE_TREE | RECURSIVELY);
    if (tree < 0)
        return errno;
    if (!set_attributes(tree, (uint64_t)NUMBER_OF(1), true))
        return close_after(tree, errno);
    return become_root(context, tree, PATH_OF(0));
}

/* In a container: make the image's root the new root. An image has links of its own, such as /var/run: those that stay
   below the root are followed. */
static int step_image(struct context *context, const struct value *arguments, size_t count)
{
    context->resolve = 8 /* RESOLVE_BENEATH */;
    return step_host(context, arguments, count);
}

/* After a new mount namespace was entered from the root: make a copy of the root, which can be pivoted to, the new one. Its
   mounts stay locked. */
int copy_root(struct context *context, const char *mountpoint)
{
    int tree = (int)syscall(OPEN_TREE, AT_FDCWD, ".", CLONE_TREE | RECURSIVELY);
    if (tree < 0)
        return errno;
    if (context->root >= 0)
        close(context->root);
    return become_root(context, tree, mountpoint);
}

/* Return a detached copy of what is mounted at a path below the root, with all that is mounted in it, or -1. */
int clone_tree(const struct context *context, const char *path)
{
    int place = open_in(context, path, O_PATH | O_DIRECTORY);
    if (place < 0)
        return -1;
    int tree = (int)syscall(OPEN_TREE, place, "", CLONE_TREE | RECURSIVELY | AT_EMPTY_PATH), error = errno;
    close(place);
    errno = error;
    return tree;
}

static int new_at(struct context *context, const char *kind, const struct option *options, size_t count,
                  unsigned attributes, const char *path)
{
    int tree = new_filesystem(kind, options, count, attributes);
    if (tree < 0)
        return errno;
    return attach_new(context, tree, path);
}

static int step_proc(struct context *context, const struct value *arguments, size_t count)
{
    (void)count;
    return new_at(context, "proc", NULL, 0, 14, PATH_OF(0));
}

static int step_sysfs(struct context *context, const struct value *arguments, size_t count)
{
    (void)count;
    return new_at(context, "sysfs", NULL, 0, 14, PATH_OF(0));
}

static int step_devpts(struct context *context, const struct value *arguments, size_t count)
{
    (void)count;
    static const struct option options[] = {{"ptmxmode", "0666"}, {"mode", "0620"}, {"max", "256"}, {"newinstance", NULL}};
    return new_at(context, "devpts", options, COUNT(options), 10, PATH_OF(0));
}

/* Mount ``tree``, read-only and without devices, on the file that ``place`` refers to; both are closed. */
static int lay_over(int tree, int place)
{
    int error = 0;
    if (tree < 0 || !set_attributes(tree, READ_ONLY_NO_DEVICES, false) ||
        syscall(MOVE_MOUNT, tree, "", place, "", FROM_EMPTY | TO_EMPTY) < 0)
        error = errno;
    if (tree >= 0)
        close(tree);
    return close_after(place, error);
}

static int step_cover(struct context *context, const struct value *arguments, size_t count)
{
    (void)count;
    int place = open_in(context, PATH_OF(0), O_PATH | O_NOFOLLOW);
    if (place < 0)
        return errno == ENOENT ? 0 : failed_at(context, PATH_OF(0)); /* this kernel has no such file */
    return lay_over((int)syscall(OPEN_TREE, AT_FDCWD, "/dev/null", CLONE_TREE), place);
}

static int step_freeze(struct context *context, const struct value *arguments, size_t count)
{
    (void)count;
    int place = open_in(context, PATH_OF(0), O_PATH | O_DIRECTORY);
    if (place < 0)
        return failed_at(context, PATH_OF(0));
    return lay_over((int)syscall(OPEN_TREE, place, "", CLONE_TREE | AT_EMPTY_PATH), place);
}

static int step_take(struct context *context, const struct value *arguments, size_t count)
{
    (void)count;
    if (!make_directories(context, PATH_OF(1), 0755))
        return failed_at(context, PATH_OF(1));
    int place = open_in(context, PATH_OF(1), O_PATH);
    if (place < 0)
        return failed_at(context, PATH_OF(1));
    return close_after(place, syscall(MOVE_MOUNT, AT_FDCWD, PATH_OF(0), place, "", TO_EMPTY) < 0 ? errno : 0);
}

static int step_beneath(struct context *context, const struct value *arguments, size_t count)
{
    (void)count;
    struct stat status;
    int place = open_scoped(context->root, PATH_OF(0), O_PATH | O_NOFOLLOW, 8 /* RESOLVE_BENEATH */);
    if (place < 0)
        return errno == EXDEV ? ELOOP : errno;
    int error = fstat(place, &status) < 0 ? errno : S_ISLNK(status.st_mode) ? ELOOP : 0;
    return close_after(place, error);
}

static int step_bind(struct context *context, const struct value *arguments, size_t count)
{
    (void)count;
    const char *path = PATH_OF(1);
    int tree = (int)syscall(OPEN_TREE, AT_FDCWD, PATH_OF(0), CLONE_TREE | RECURSIVELY);
    if (tree < 0)
        return NUMBER_OF(3) && (errno == ENOENT || errno == EACCES || errno == ENOTDIR) ? 0 : errno;
    if (NUMBER_OF(2) && !set_attributes(tree, (uint64_t)NUMBER_OF(2), true))
        return close_after(tree, errno);
    if (!make_place(context, path, tree))
        return close_after(tree, failed_at(context, path));
    return attach(context, tree, path);
}

static int step_mounted(struct context *context, const struct value *arguments, size_t count)
{
    (void)count;
    const struct value *identity = &arguments[3];
    struct stat status;
    int tree = (int)syscall(OPEN_TREE, AT_FDCWD, PATH_OF(0), CLONE_TREE);
    if (tree < 0)
        return errno;
    if (identity->size != 2 || identity->items[0].kind != NUMBER || identity->items[1].kind != NUMBER)
        return close_after(tree, EINVAL);
    if (fstat(tree, &status) < 0)
        return close_after(tree, errno);
    if ((int64_t)status.st_dev != identity->items[0].number || (int64_t)status.st_ino != identity->items[1].number)
        return close_after(tree, ESTALE);
    if (*PATH_OF(1) == '\0')
        return close_after(tree, 0);
    if (!set_attributes(tree, (uint64_t)NUMBER_OF(2), false))
        return close_after(tree, errno);
    return attach_new(context, tree, PATH_OF(1));
}

static int step_inside(struct context *context, const struct value *arguments, size_t count)
{
    (void)count;
    int tree = (int)syscall(OPEN_TREE, AT_FDCWD, PATH_OF(0), CLONE_TREE | RECURSIVELY);
    if (tree < 0)
        return errno;
    if (!set_attributes(tree, (uint64_t)NUMBER_OF(2), true))
        return close_after(tree, errno);
    if (!make_place(context, PATH_OF(1), tree))
        return close_after(tree, failed_at(context, PATH_OF(1)));
    return attach(context, tree, PATH_OF(1));
}

static int step_spread(struct context *context, const struct value *arguments, size_t count)
{
    (void)count;
    const struct value *places = &arguments[1];
    int error = 0, whole = open_in(context, PATH_OF(0), O_PATH | O_DIRECTORY);
    if (whole < 0)
        return failed_at(context, PATH_OF(0));
    for (size_t index = 0; error == 0 && index < places->size; index++) {
        const struct value *pair = &places->items[index];
        if (pair->kind != SEQUENCE || !has_shape(pair->items, pair->size, "pp"))
            return close_after(whole, EINVAL);
        int source = open_below(context, whole, pair->items[0].data, O_PATH);
        int tree = source < 0 ? -1 : (int)syscall(OPEN_TREE, source, "", CLONE_TREE | AT_EMPTY_PATH);
        if (tree < 0)
            error = errno;
        if (source >= 0)
            close(source);
        if (tree < 0)
            return close_after(whole, error);
        if (!make_directories(context, pair->items[1].data, 0755))
            error = close_after(tree, failed_at(context, pair->items[1].data));
        else
            error = attach(context, tree, pair->items[1].data);
    }
    return close_after(whole, error);
}

#define MOST_LAYERS 512 /* an overlay has at most 500 lowers: OVL_MAX_STACK in fs/overlayfs/super.c */

/* Mount many lowers by mount(2): before Linux 6.8 there is no option for each. */
static int overlay_all_at_once(struct context *context, const char *path, const int *layers, size_t lowers, bool is_volatile)
{
    char options[8192], target[16];
    size_t size = 0;
    for (size_t index = 0; index < lowers; index++)
        size += (size_t)snprintf(options + size, 16, "%s%d", index == 0 ? "lowerdir=" : ":", layers[index]);
    snprintf(options + size, 96, ",upperdir=%d,workdir=%d,userxattr%s", layers[lowers], layers[lowers + 1],
             is_volatile ? ",volatile" : "");
    int error = 0, place = open_in(context, path, O_PATH | O_DIRECTORY);
    if (place < 0)
        return failed_at(context, path);
    snprintf(target, sizeof target, "%d", place);
    if (chdir("/proc/self/fd") < 0 || mount("overlay", target, "overlay", MS_NOSUID | MS_NODEV, options) < 0 ||
        chdir("/") < 0)
        error = errno;
    return close_after(place, error);
}

static int step_overlay(struct context *context, const struct value *arguments, size_t count)
{
    (void)count;
    const struct value *lowers = &arguments[1];
    size_t all = lowers->size + 2, opened = 0, used = 0;
    int layers[MOST_LAYERS] = {0}, error = 0, tree = -1;
    context->is_overlay = true;
    char names[MOST_LAYERS][28];
    struct option options[MOST_LAYERS + 2];
    if (all > MOST_LAYERS || lowers->size == 0)
        return E2BIG;
    if (!make_directories(context, PATH_OF(0), 0755))
        return failed_at(context, PATH_OF(0));
    for (; opened < all; opened++) {
        const struct value *layer = opened < lowers->size ? &lowers->items[opened] : &arguments[2 + opened - lowers->size];
        if (!is_string(layer)) {
            error = EINVAL;
            break;
        }
        layers[opened] = open(layer->data, DIRECTORY_AT);
        if (layers[opened] < 0) {
            error = failed_at(context, layer->data);
            break;
        }
        snprintf(names[opened], sizeof names[opened], "/proc/self/fd/%d", layers[opened]);
    }
    if (error == 0) {
        for (size_t index = 0; index < lowers->size; index++)
            options[used++] = (struct option){lowers->size == 1 ? "lowerdir" : "lowerdir+", names[index]};
        options[used++] = (struct option){"upperdir", names[all - 2]};
        options[used++] = (struct option){"workdir", names[all - 1]};
        options[used++] = (struct option){"userxattr", NULL};
        if (NUMBER_OF(4))
            options[used++] = (struct option){"volatile", NULL};
        tree = new_filesystem("overlay", options, used, 6);
        if (tree >= 0)
            error = attach(context, tree, PATH_OF(0));
        else if (errno == EINVAL && lowers->size > 1)
            error = overlay_all_at_once(context, PATH_OF(0), layers, lowers->size, NUMBER_OF(4) != 0);
        else
            error = errno;
    }
    while (opened > 0)
        close(layers[--opened]);
    return error;
}

/* Send the host of a held sandbox a descriptor with which it can reconfigure the overlay at ``path``. Now: fspick(2) needs
   the privilege in the mount namespace, which init gives up later. The reconfiguration itself needs only the privilege in the
   user namespace, whose owner is the host (vfs_cmd_reconfigure in fs/fsopen.c).

   There is no descriptor for a view of another kind, whose file system is not the sandbox's own; nor where the kernel (before
   5.2) or a container's filter has no fspick(2): the view may then show old names, as docs/THREATS.md says. */
static int send_refresher(struct context *context, const char *path)
{
    int picked = context->is_overlay ? (int)syscall(FSPICK, context->root, path, CLOSE_ON_EXEC) : -1, error = 0;
    if (context->is_overlay && picked < 0 && errno != ENOSYS && errno != EPERM)
        return failed_at(context, path);
    if (!send_with(context->door, "r", 1, &picked, picked >= 0) && errno != EPIPE)
        error = errno;
    if (picked >= 0)
        close(picked);
    return error;
}

/* Send the view's mount to the host, if it asked for it. A file opened below this descriptor (openat2(2)) is the file that
   the command sees, from any mount namespace. */
static int step_view(struct context *context, const struct value *arguments, size_t count)
{
    (void)count;
    int error = context->door >= 0 ? send_refresher(context, PATH_OF(0)) : 0;
    if (context->view < 0 || error != 0)
        return error;
    int place = open_in(context, PATH_OF(0), O_PATH | O_DIRECTORY);
    if (place < 0)
        return failed_at(context, PATH_OF(0));
    if (!send_with(context->view, "v", 1, &place, 1) && errno != EPIPE)
        error = errno;
    close(context->view);
    context->view = -1;
    return close_after(place, error);
}

static int step_left(struct context *context, const struct value *arguments, size_t count)
{
    (void)count;
    const struct value *paths = &arguments[0];
    int opened[MOST_LEFT] = {0}, error = 0;
    uint64_t state[3 * MOST_LEFT] = {0};
    struct stat status;
    struct statfs room;
    size_t index = 0;
    if (context->left < 0)
        return 0;
    if (paths->size == 0 || paths->size > MOST_LEFT)
        return E2BIG;
    for (; index < paths->size; index++) {
        if (!is_string(&paths->items[index])) {
            error = EINVAL;
            break;
        }
        opened[index] = open_in(context, paths->items[index].data, O_PATH | O_DIRECTORY);
        if (opened[index] < 0 || fstat(opened[index], &status) < 0 || fstatfs(opened[index], &room) < 0) {
            error = failed_at(context, paths->items[index].data);
            index += opened[index] >= 0;
            break;
        }
        state[3 * index] = (uint64_t)status.st_mtim.tv_sec * 1000000000U + (uint64_t)status.st_mtim.tv_nsec;
        state[3 * index + 1] = room.f_ffree;
        state[3 * index + 2] = room.f_bfree;
    }
    if (error == 0 && !send_with(context->left, state, 3 * index * sizeof *state, opened, index) && errno != EPIPE)
        error = errno;
    while (index > 0)
        close(opened[--index]);
    close(context->left);
    context->left = -1;
    return error;
}

/* Open a pseudo-terminal for the command, if the host asked for it. The host gets the master, the command will get the other
   side. The path is a ptmx device; the ioctls need no other path (ioctl_tty(2), TIOCGPTPEER: Linux 4.13). */
int step_terminal(struct context *context, const struct value *arguments, size_t count)
{
    (void)count;
    int unlocked = 0, error = 0, flags = O_RDWR | O_NOCTTY | O_CLOEXEC;
    if (context->channel < 0)
        return 0;
    int master = open_in(context, PATH_OF(0), flags);
    if (master < 0)
        return failed_at(context, PATH_OF(0));
    if (syscall(SYS_ioctl, master, TIOCSPTLCK, &unlocked) < 0)
        return close_after(master, errno);
    context->terminal = (int)syscall(SYS_ioctl, master, 0x5441UL /* TIOCGPTPEER */, flags);
    if (context->terminal < 0 || (!send_with(context->channel, "t", 1, &master, 1) && errno != EPIPE))
        error = errno;
    return close_after(master, error);
}

static int step_directory(struct context *context, const struct value *arguments, size_t count)
{
    (void)count;
    mode_t mode = (mode_t)NUMBER_OF(1);
    int made = -1;
    if (make_directories(context, PATH_OF(0), mode))
        made = open_in(context, PATH_OF(0), O_RDONLY | O_DIRECTORY);
    if (made < 0)
        return failed_at(context, PATH_OF(0));
    return close_after(made, fchmod(made, mode) < 0 ? failed_at(context, PATH_OF(0)) : 0);
}

static int step_symlink(struct context *context, const struct value *arguments, size_t count)
{
    (void)count;
    const char *name;
    int above = make_above(context, PATH_OF(1), &name);
    if (above < 0)
        return failed_at(context, PATH_OF(1));
    return close_after(above, symlinkat(PATH_OF(0), above, name) < 0 ? failed_at(context, PATH_OF(1)) : 0);
}

static int step_file(struct context *context, const struct value *arguments, size_t count)
{
    (void)count;
    const struct value *content = &arguments[1];
    const char *name;
    int made, error = 0, above = make_above(context, PATH_OF(0), &name);
    if (above < 0)
        return failed_at(context, PATH_OF(0));
    made = openat(above, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, (mode_t)NUMBER_OF(2));
    if (made < 0)
        return close_after(above, failed_at(context, PATH_OF(0)));
    close(above);
    ssize_t written = write(made, content->data, content->size);
    if (written != (ssize_t)content->size)
        error = written < 0 ? errno : ENOSPC;
    return close_after(made, error);
}

static int step_seal(struct context *context, const struct value *arguments, size_t count)
{
    (void)count;
    const char *path = *PATH_OF(0) == '\0' ? "." : PATH_OF(0);
    int tree = open_in(context, path, O_PATH);
    if (tree < 0)
        return failed_at(context, path);
    return close_after(tree, set_attributes(tree, (uint64_t)NUMBER_OF(1), false) ? 0 : errno);
}

static int step_pivot(struct context *context, const struct value *arguments, size_t count)
{
    (void)arguments, (void)count;
    if (fchdir(context->root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 ||
        chdir("/") < 0)
        return errno;
    close(context->root);
    context->root = -1;
    return 0;
}

static int step_rlimit(struct context *context, const struct value *arguments, size_t count)
{
    (void)context, (void)count;
    uint64_t limit[2] = {(uint64_t)NUMBER_OF(1), (uint64_t)NUMBER_OF(2)}; /* struct rlimit64: soft, hard */
    return syscall(SYS_prlimit64, 0, (int)NUMBER_OF(0), limit, NULL) < 0 ? errno : 0;
}

static int step_loopback(struct context *context, const struct value *arguments, size_t count)
{
    (void)context, (void)arguments, (void)count;
    struct {
        char name[16];
        short flags;
        char rest[22];
    } request = {"lo", 1 /* IFF_UP */, ""}; /* struct ifreq of netdevice(7) */
    int opened = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (opened < 0)
        return errno;
    return close_after(opened, syscall(SYS_ioctl, opened, 0x8914UL /* SIOCSIFFLAGS */, &request) < 0 ? errno : 0);
}

bool write_file(const char *path, const void *data, size_t size)
{
    int opened = open(path, O_WRONLY | O_CLOEXEC);
    if (opened < 0)
        return false;
    ssize_t written = write(opened, data, size);
    int error = errno;
    close(opened);
    errno = written < 0 ? error : EIO;
    return written == (ssize_t)size;
}

/* Set limits of this user namespace: (file in /proc/sys/user, number, whether to go on without it). /proc is the host's:
   these files show the namespace of the process that opens them, and its CAP_SYS_RESOURCE opens them for writing
   (set_permissions in kernel/ucount.c). In a container /proc/sys may be read-only. */
static int step_counters(struct context *context, const struct value *arguments, size_t count)
{
    (void)count;
    for (size_t index = 0; index < arguments[0].size; index++) {
        const struct value *limit = &arguments[0].items[index];
        char path[128], text[32];
        if (limit->kind != SEQUENCE || !has_shape(limit->items, limit->size, "pii") || limit->items[0].size > 60)
            return EINVAL;
        snprintf(path, sizeof path, "/proc/sys/user/%s", limit->items[0].data);
        int opened = open(path, O_WRONLY | O_CLOEXEC);
        if (opened < 0 && limit->items[2].number)
            continue;
        if (opened < 0)
            return failed_at(context, limit->items[0].data);
        int size = snprintf(text, sizeof text, "%lld", (long long)limit->items[1].number);
        ssize_t written = write(opened, text, (size_t)size);
        int error = written == size ? 0 : written < 0 ? failed_at(context, limit->items[0].data) : EIO;
        close(opened);
        if (error != 0)
            return error;
    }
    return 0;
}

/* Empty the bounding set. From then on no exec gives this process or its descendants a capability (capabilities(7)).
   Capabilities already held stay until they are dropped. */
static int step_drop_bounding_set(struct context *context, const struct value *arguments, size_t count)
{
    (void)arguments, (void)count;
    for (unsigned long capability = 0; capability < 64; capability++) {
        if (prctl(PR_CAPBSET_READ, capability, 0, 0, 0) < 0)
            return 0;
        if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0 && context->namespaces & CLONE_NEWUSER)
            return errno;
    }
    return 0;
}

static int step_umask(struct context *context, const struct value *arguments, size_t count)
{
    (void)context, (void)count;
    umask((mode_t)NUMBER_OF(0));
    return 0;
}

static int step_cwd(struct context *context, const struct value *arguments, size_t count)
{
    (void)count;
    return chdir(PATH_OF(0)) < 0 ? failed_at(context, PATH_OF(0)) : 0;
}

static int step_drop_capabilities(struct context *context, const struct value *arguments, size_t count)
{
    (void)context, (void)arguments, (void)count;
    struct {
        uint32_t version;
        int pid;
    } head = {0x20080522, 0}; /* _LINUX_CAPABILITY_VERSION_3 */
    uint32_t none[6] = {0}, held[6];
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    memset(held, 0xff, sizeof held);
    if (syscall(SYS_capset, &head, none) < 0 || syscall(SYS_capget, &head, held) < 0)
        return errno;
    return memcmp(held, none, sizeof held) == 0 ? 0 : EPERM;
}

static int step_no_new_privs(struct context *context, const struct value *arguments, size_t count)
{
    (void)context, (void)arguments, (void)count;
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? errno : 0;
}

static int step_landlock(struct context *context, const struct value *arguments, size_t count)
{
    const struct value *rules = &arguments[3];
    uint64_t attributes[3] = {(uint64_t)NUMBER_OF(0), (uint64_t)NUMBER_OF(1), (uint64_t)NUMBER_OF(2)};
    size_t size = attributes[2] ? 24 : attributes[1] ? 16 : 8;
    int error = 0, ruleset = (int)syscall(LANDLOCK_CREATE_RULESET, attributes, size, 0);
    if (ruleset < 0)
        return errno;
    for (size_t index = 0; error == 0 && index < rules->size; index++) {
        const struct value *pair = &rules->items[index];
        struct stat status;
        if (pair->kind != SEQUENCE || !has_shape(pair->items, pair->size, "pi"))
            return close_after(ruleset, EINVAL);
        int place = open(pair->items[0].data, O_PATH | O_CLOEXEC);
        if (place < 0)
            continue; /* a missing path allows less */
        struct {
            uint64_t access;
            int32_t parent;
        } __attribute__((packed)) rule = {(uint64_t)pair->items[1].number, place};
        if (fstat(place, &status) < 0)
            error = errno;
        else if (!S_ISDIR(status.st_mode))
            rule.access &= OF_FILES;
        if (error == 0 && syscall(LANDLOCK_ADD_RULE, ruleset, 1, &rule, 0) < 0)
            error = errno;
        close(place);
    }
    for (size_t index = 0; error == 0 && count > 5 && index < arguments[5].size; index++) {
        const struct value *pair = &arguments[5].items[index];
        if (pair->kind != SEQUENCE || !has_shape(pair->items, pair->size, "ii"))
            return close_after(ruleset, EINVAL);
        uint64_t rule[2] = {(uint64_t)pair->items[1].number, (uint64_t)pair->items[0].number};
        if (syscall(LANDLOCK_ADD_RULE, ruleset, 2, rule, 0) < 0)
            error = errno;
    }
    /* The fifth argument, which this call does not have, is for the filter of a sandbox that holds: a warden's domain
       narrows nothing, so directories are renamed for its command (rename.c). */
    if (error == 0 && syscall(LANDLOCK_RESTRICT_SELF, ruleset, (unsigned)NUMBER_OF(4), 0, 0, UNROUTED) < 0)
        error = errno;
    context->has_domain = error == 0 && attributes[0] & REFER;
    return close_after(ruleset, error);
}

/* Give this process a Landlock domain inside of its sandbox's: processes of another command there cannot open it
   (/proc/PID/fd, environ, mem, cwd, root) or trace it, nor it them (hook_ptrace_access_check in security/landlock/task.c).
   A domain has to handle a right: renames between directories, which this one permits. At level 0, where programs mount,
   the sandbox's handles none: mount(2) is refused then. */
int set_apart(struct context *context)
{
    static char root[] = "/";
    struct value permitted[] = {{.kind = BYTES, .data = root, .size = 1}, {.kind = NUMBER, .number = REFER}};
    struct value rule = {.kind = SEQUENCE, .size = 2, .items = permitted};
    long abi = syscall(LANDLOCK_CREATE_RULESET, NULL, 0, 1 /* LANDLOCK_CREATE_RULESET_VERSION */);
    struct value arguments[] = {{.kind = NUMBER, .number = REFER}, {.kind = NUMBER}, {.kind = NUMBER},
                                {.kind = SEQUENCE, .size = 1, .items = &rule},
                                {.kind = NUMBER, .number = abi >= 7 ? UNLOGGED : 0}};
    return context->has_domain ? step_landlock(context, arguments, COUNT(arguments)) : 0;
}

/* Install a system call filter. The second argument is the same filter with its refusals sent to init, which has the rows
   (command.c). It is used where possible: not before Linux 5.0 (EINVAL), nor where another listener exists already because
   mudroom runs in a container (EBUSY). */
static int step_seccomp(struct context *context, const struct value *arguments, size_t count)
{
    if (count > 1 && count != 3)
        return EINVAL;
    if (count > 1 && arguments[1].size > 0) {
        context->listener = install_filter(arguments[1].data, arguments[1].size, NEW_LISTENER | WAIT_KILLABLE);
        if (context->listener < 0 && errno == EINVAL)
            context->listener = install_filter(arguments[1].data, arguments[1].size, NEW_LISTENER);
        if (context->listener >= 0) {
            context->rows = &arguments[2];
            return 0;
        }
        if (errno != EBUSY && errno != EINVAL)
            return errno;
    }
    return install_filter(arguments[0].data, arguments[0].size, 0) < 0 ? errno : 0;
}
