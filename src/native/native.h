/* What the files of the native client share. The rules are at the top of mudroom.c. */
#ifndef MUDROOM_NATIVE_H
#define MUDROOM_NATIVE_H

#include <stdbool.h>
#include <stddef.h>

/* Names, request, answers and NO_KEEPER, as ext/keeper has them: raise the number when one of them changes. A keeper of
 * another number has another name, and is not found; a script of another number (an editable installation whose code is
 * newer than this program) starts none. */
#define PROTOCOL "mudroom-native-5"
#define SCRIPT "mudroom-python"     /* the console script, beside this program */
#define NO_KEEPER "MUDROOM_NO_KEEPER" /* the variable that tells it which keeper it is to start */
#define FAILED 125                  /* exit code: mudroom failed */
#define NAME_SIZE 33                /* bytes of a keeper's name, with its NUL */
#define COUNT(table) (sizeof(table) / sizeof *(table))

/* What has become of a command that a keeper was to run. */
enum answer {
    SERVED,   /* it has started */
    EXCLUDED, /* its words, variables or descriptors exclude a keeper */
    NONE,     /* there is no keeper */
    APART,    /* the keeper may not have this process's control group or limits */
    OWN,      /* the keeper may not have this process's variables */
    REFUSED,
};

/* ---- bytes.c ---- */

struct bytes {
    unsigned char *data;
    size_t size, room;
    bool has_failed; /* no memory: the content is not to be used */
};

void append(struct bytes *bytes, const void *data, size_t size);
void append_text(struct bytes *bytes, const char *text);
bool starts_with(const char *text, const char *beginning);
bool starts_with_any(const char *text, const char *const *beginnings, size_t count);
bool is_among(const char *text, const char *const *texts, size_t count);
void write_error(const char *first, const char *second, const char *third);

/* ---- eligible.c ---- */

bool are_descriptors_right(void);
bool are_words_right(int argc, char **argv);
char **sorted_environment(size_t *count);

/* ---- name.c ---- */

/* Keepers that may run a command: for its control group, limits and variables alone; for these variables; for all. */
enum kind { OF_GROUP, OF_VARIABLES, OF_ALL, KINDS };

bool name_of(const char *script, char **variables, size_t count, enum kind kind, char *name);

/* ---- keeper.c ---- */

enum answer connect_to_keeper(char names[KINDS][NAME_SIZE], int *connection);
struct bytes make_request(const char *script, int argc, char **argv);
enum answer start(int connection, const struct bytes *request);
_Noreturn void wait_for_end(int connection);
void take_signals_back(void);

#endif
