/* Interposer that prints the options of a program and ends it, for dev/grammar/generate.py.
 *
 * A program that parses its words with getopt(3), getopt_long(3), argp(3) or popt(3) hands its whole table of options to
 * the library, hidden ones included. With this object in LD_PRELOAD, the table goes to the file GRAMMAR_OUT, one option
 * a line: short letter or "-", long name or "-", 0 (no value), 1 (required) or 2 (optional), a number that is equal for
 * aliases, and the word that the help shows for the value.
 */
#define _GNU_SOURCE
#include <argp.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static FILE *out(void) {
    const char *path = getenv("GRAMMAR_OUT");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) _exit(3);
    return file;
}

static void row(FILE *file, int letter, const char *name, int value, long key, const char *shown) {
    fprintf(file, "%c\t%s\t%d\t%ld\t%s\n", letter ? letter : '-', name ? name : "-", value, key, shown ? shown : "");
}

static int finish(FILE *file) {
    fclose(file);
    _exit(0);
}

/* Aliases set the same variable to the same value, or return the same value. */
static long key_of(const void *set, int value, const void *own) {
    return set ? (long)set * 64 + value : value ? value : (long)own;
}

static void letters(FILE *file, const char *text) {
    fprintf(file, "style\t%s\n", *text == '+' ? "posix" : "gnu");
    while (*text == '+' || *text == '-' || *text == ':') text++;
    for (; *text; text++) {
        if (*text == ':' || *text == ';') continue;
        row(file, *text, NULL, text[1] == ':' ? (text[2] == ':' ? 2 : 1) : 0, *text, "");
    }
}

static int table(const char *text, const struct option *options, const char *kind) {
    FILE *file = out();
    letters(file, text);
    if (kind) fprintf(file, "style\t%s\n", kind);
    for (; options && options->name; options++)
        row(file, 0, options->name, options->has_arg, key_of(options->flag, options->val, options), "");
    return finish(file);
}

int getopt(int argc, char *const argv[], const char *text) { return table(text, NULL, NULL); }
int __posix_getopt(int argc, char *const argv[], const char *text) { return table(text, NULL, "posix"); }
int getopt_long(int argc, char *const argv[], const char *text, const struct option *options, int *index) {
    return table(text, options, NULL);
}
int getopt_long_only(int argc, char *const argv[], const char *text, const struct option *options, int *index) {
    return table(text, options, "only");
}

static void argp_rows(FILE *file, const struct argp *argp) {
    const struct argp_option *option = argp->options;
    long last = 0;
    for (; option && (option->name || option->key || option->doc || option->group); option++) {
        int letter = option->key > 32 && option->key < 127 ? option->key : 0;
        static const char *shown;
        static int value;
        if (!option->name && !letter) continue;
        if (!(option->flags & OPTION_ALIAS)) {
            last = option->key;
            shown = option->arg;
            value = option->arg ? (option->flags & OPTION_ARG_OPTIONAL ? 2 : 1) : 0;
        }
        row(file, letter, option->name, value, last, shown);
    }
    const struct argp_child *child = argp->children;
    for (; child && child->argp; child++) argp_rows(file, child->argp);
}

error_t argp_parse(const struct argp *argp, int argc, char **argv, unsigned flags, int *index, void *input) {
    FILE *file = out();
    fprintf(file, "style\t%s\n", flags & ARGP_IN_ORDER ? "posix" : "gnu");
    argp_rows(file, argp);
    if (!(flags & ARGP_NO_HELP)) {
        row(file, '?', "help", 0, -1, "");
        row(file, 0, "usage", 0, -3, "");
    }
    row(file, 'V', "version", 0, -2, "");
    return finish(file);
}

struct popt { const char *name; char letter; unsigned info; void *arg; int key; const char *help; const char *shown; };

static void popt_rows(FILE *file, const struct popt *option) {
    for (; option && (option->name || option->letter || option->arg); option++) {
        unsigned kind = option->info & 0xff;
        if (kind == 4) popt_rows(file, option->arg);
        else if (kind != 5 && kind != 6 && (option->name || option->letter))
            row(file, option->letter, option->name, !(kind == 0 || kind == 7), key_of(option->arg, option->key, option), option->shown);
    }
}

void *poptGetContext(const char *name, int argc, const char **argv, const struct popt *options, unsigned flags) {
    FILE *file = out();
    fprintf(file, "style\t%s\n", flags & 2 ? "posix" : "gnu");
    popt_rows(file, options);
    finish(file);
    return NULL;
}
