/* What the files of the launcher share. The rules are at the top of launcher.c. */
#ifndef MUDROOM_LAUNCHER_H
#define MUDROOM_LAUNCHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PROTOCOL "mudroom-launcher-2" /* PROTOCOL of core/system/launcher.py, and the name of the file */
#define FAILED 125                    /* exit code: no command was started */
#define MOST_DESCRIPTORS 253          /* SCM_MAX_FD of unix(7) */
#define NOWHERE ((size_t)-1)          /* the index of a failure that is no step's */
#define COUNT(table) (sizeof(table) / sizeof *(table))

/* ---- value.c ---- */

enum kind { NONE, NUMBER, BYTES, TEXT, SEQUENCE, MAPPING };

struct value {
    enum kind kind;
    int64_t number;            /* also of a boolean */
    const char *data;          /* of bytes and text; a NUL follows */
    size_t size;               /* of the data, or the number of items */
    const struct value *items; /* of a mapping: keys and values in turn */
};

struct pool { /* the memory of values */
    void *newest;
};

void *take_memory(struct pool *pool, size_t size);
bool parse(struct pool *pool, const unsigned char *data, size_t size, struct value *value);
void free_pool(struct pool *pool);
const struct value *find(const struct value *mapping, const char *key);
const struct value *find_of(const struct value *mapping, const char *key, enum kind kind);
int64_t number_of(const struct value *mapping, const char *key);
bool is_string(const struct value *value);
bool has_shape(const struct value *values, size_t count, const char *shape);
bool is_text(const struct value *value, const char *text);

/* ---- message.c ---- */

struct descriptors {
    int numbers[MOST_DESCRIPTORS];
    size_t count;
};

struct refusal {
    int64_t rule;
    unsigned long count;
};

#define MOST_REFUSALS 100 /* different ones */
#define MOST_NAMED 20     /* refused calls that are reported with the file or address */

struct refusals {
    struct refusal counted[MOST_REFUSALS];
    size_t count;
    char named[6000]; /* texts, each with its NUL */
    size_t size, names;
};

struct exited {
    int status;
    double user, system;
    long max_rss;
    int64_t started;
    bool is_empty;
};

bool receive(struct pool *pool, int channel, struct value *value, struct descriptors *descriptors);
bool send_with(int channel, const void *data, size_t size, const int *descriptors, size_t count);
bool receive_one(int channel, int flags, int *descriptor);
bool send_message(int channel, const void *data, size_t size, const int *descriptors, size_t count);
void close_all(const struct descriptors *descriptors);
void report_word(int report, const char *word);
void report_failure(int report, size_t index, const char *op, int error, const char *detail);
void report_why(int report, const char *why);
void report_exit(int report, const struct exited *exited, const struct refusals *refusals);
void add_named(struct refusals *refusals, const char *action, const char *name);

/* ---- step.c, listener.c ---- */

struct listener {
    char kind[80];
    int descriptor;
};

#define MOST_MOVERS 16

struct mover {
    pid_t pid;
    uint64_t id;    /* of the call that it performs */
    char name[256]; /* for the user */
};

struct context {
    int root;               /* the new root */
    uint64_t resolve;       /* how paths below it are resolved: openat2(2) */
    int64_t namespaces;     /* flags of the clone */
    int view, left, channel, gate, door; /* sockets to the host, or -1 */
    bool is_redirected;     /* whether every connection reaches the gate, also of a program that knows no proxy */
    int engine;             /* socket between init and its engine, or -1 */
    pid_t engine_pid;       /* the engine's first process, or 0 */
    bool is_overlay;        /* whether the view is this sandbox's own overlay */
    bool has_domain;        /* whether it is in a Landlock domain that handles files */
    int terminal;           /* the command's side of the pseudo-terminal, or -1 */
    int listener;           /* of the filter whose refusals init answers, or -1 */
    const struct value *rows; /* the rules of that filter */
    bool is_narrowed;         /* whether a process in the sandbox has a Landlock domain of its own */
    struct mover movers[MOST_MOVERS]; /* processes that rename a directory for the command (rename.c) */
    size_t moving;
    struct listener listeners[MOST_DESCRIPTORS]; /* the gate's, until they are handed over */
    size_t count;
    const char *detail; /* of a failure: the path, if there is one */
};

void begin_context(struct context *context, int64_t namespaces);

/* Each returns 0 or an error number. ``arguments`` have the shape of the table in step.c. */
typedef int step(struct context *context, const struct value *arguments, size_t count);

int perform_all(struct context *context, const struct value *plan, size_t *index);
bool perform(struct context *context, const struct value *plan, size_t first, int report);
step step_routes, step_listen, step_listen_on_loopback, step_hand_over, step_terminal;
int set_apart(struct context *context);
int attach_new(struct context *context, int tree, const char *path);
int clone_tree(const struct context *context, const char *path);
int copy_root(struct context *context, const char *mountpoint);
bool write_file(const char *path, const void *data, size_t size);

/* ---- engine.c ---- */

step step_engine, step_nest, step_copy_root, step_lend, step_lent;

/* ---- process.c ---- */

struct pids {
    pid_t *items;
    size_t count, room;
};

void add_pid(struct pids *pids, pid_t pid);
const char *pause_all(pid_t init, struct pids *stopped);
const char *resume_all(pid_t init, struct pids *stopped);
void end_children(const struct pids *spared);
void keep_only(int *kept, size_t count);
void block_signals(void);
void discard_terminal_signals(void);

/* ---- init.c ---- */

struct shared { /* the steps before and after a command's own, which its template knows; NULL: there are none */
    const struct value *ahead, *last;
};

_Noreturn void be_init(struct context *context, const struct value *request, struct descriptors *descriptors,
                       const struct shared *shared, bool is_ahead_done);

/* ---- command.c ---- */

struct notification { /* struct seccomp_notif of include/uapi/linux/seccomp.h */
    uint64_t id;
    uint32_t pid, flags;
    int32_t number;
    uint32_t machine;
    uint64_t pointer, arguments[6];
};

struct reply { /* struct seccomp_notif_resp */
    uint64_t id;
    int64_t value;
    int32_t error;
    uint32_t flags;
};

struct command {
    const struct value *request; /* argv, env, search, mediation */
    struct context *context;
    int report;
    int signals;  /* signalfd(2) */
    int channel;  /* tells the host of stops; -1: it has no terminal */
    bool answers; /* whether this process answers the filter's refusals */
    bool ends_children; /* whether no pid namespace ends them */
    struct refusals refusals;
};

bool run_command(struct command *command, struct exited *exited);
void answer_refusal(struct context *context, struct refusals *refusals);
int renew_null(void);
int take_terminal(struct context *context, const struct value *numbers);
int watch_signals(bool has_terminal);
void count_refusal(struct refusals *refusals, int64_t rule, unsigned long by);

/* ---- mediator.c ---- */

#define NOTIF_RECV 0xC0502100UL /* include/uapi/linux/seccomp.h */
#define NOTIF_SEND 0xC0182101UL
#define NEW_LISTENER 8
#define WAIT_KILLABLE 32       /* since Linux 5.19: a signal does not interrupt a call that is being answered */
#define LONGEST_PATH (4096 + 4098) /* room for a path, its NUL and a page more */

struct call {
    int listener;
    struct notification from;
    const char *action;
    int directory, path, flags, values; /* indices of arguments; -1: the call has no such argument */
    bool follows;
    const char *clock;
    const struct value *places;
    struct refusals *refusals;
};

int install_filter(const void *program, size_t size, unsigned flags);
int check_waiting(const struct call *call);
int open_of_caller(const struct call *call, const char *name, int flags);
int open_directory_of(const struct call *call, int number);
int read_string(const struct call *call, uint64_t address, char *text, size_t limit);
bool is_mediation(const struct value *mediation);
void mediate(int listener, const struct value *mediation, struct refusals *refusals);

/* ---- rename.c ---- */

/* In the fifth argument of 32 bits, whose upper half the kernel ignores: the filter lets the call pass. */
#define UNROUTED (1ULL << 63)


bool answer_rename(struct context *context, const struct notification *request, struct refusals *refusals);
void finish_rename(struct context *context, pid_t pid, int status, struct refusals *refusals);
void await_renames(struct context *context, struct refusals *refusals);

/* ---- trial.c ---- */

bool enter_namespaces(int flags);
int try_container(void);

/* ---- probe.c ---- */

int probe_overlays(double seconds, const char *scratch, char **paths, int count);

/* ---- clear.c ---- */

void clear(const struct value *works);

#endif
