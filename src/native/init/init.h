/* What the files of the native init share. The rules are at the top of nursery.c. */
#ifndef MUDROOM_INIT_H
#define MUDROOM_INIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROTOCOL "mudroom-init-3" /* PROTOCOL of wire.py; the name of the file, too */
#define FAILED 125                /* exit code: no command was started */
#define MOST_DESCRIPTORS 253      /* SCM_MAX_FD of unix(7) */
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

bool parse(const unsigned char *data, size_t size, struct value *value);
const struct value *find(const struct value *mapping, const char *key);
bool is_string(const struct value *value);
bool has_shape(const struct value *values, size_t count, const char *shape);
bool is_text(const struct value *value, const char *text);

/* ---- message.c ---- */

bool receive(int channel, struct value *value, int *descriptors, size_t *count);
bool send_with(int channel, const void *data, size_t size, const int *descriptors, size_t count);
void report_failure(int report, size_t index, const char *op, int error, const char *detail);
struct exited {
    int status;
    double user, system;
    long max_rss;
    int64_t started;
    bool is_empty;
};
struct refusal {
    int64_t rule;
    unsigned long count;
};
void report_exit(int report, const struct exited *exited, const struct refusal *refusals, size_t count);

/* ---- step.c, listener.c ---- */

struct listener {
    char kind[80];
    int descriptor;
};

struct context { /* StepContext of step_context.py */
    int root, view, gate, left, listener;
    const struct value *rows; /* of the filter with that listener */
    struct listener listeners[MOST_DESCRIPTORS];
    size_t count;
    const char *detail; /* of a failure: the path, if there is one */
};

/* Each returns 0 or an error number. ``arguments`` have the shape of the table in step.c. */
typedef int step(struct context *context, const struct value *arguments, size_t count);

bool perform(struct context *context, const struct value *plan, size_t first, int report);
step step_routes, step_listen, step_listen_on_loopback, step_hand_over;

/* ---- program.c ---- */

int become_program(char **words);

/* ---- command.c ---- */

void run_command(struct context *context, const struct value *request, int report);
void block_signals(void);

#endif
