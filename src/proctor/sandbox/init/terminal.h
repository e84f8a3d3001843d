/* The terminal that stays: what the process that holds it and those who ask it share. */
#ifndef TERMINAL_H
#define TERMINAL_H

#include "proctor.h"

#define PIECE (1 << 16)
#define TIME_LIMIT 124
#define GONE 125
#define SCRIPT_PATH "/proc/%d/fd/%d\n" /* as the shell reads it: of the process that holds the terminal */

struct __attribute__((packed)) question {
    uint32_t number, mark_size, line_size, text_size;
    int64_t limit_ms;
};

struct __attribute__((packed)) answer {
    char kind;
    uint32_t number, value; /* of the question; how many bytes follow, or the code */
};

struct bytes {
    char *data;
    size_t size, room;
};

/* What holds the terminal; `listening` is -1 where nobody but `client` may ask. */
struct terminal {
    int master, script, listening, client;
    pid_t shell;
};

/* terminal_server.c */
void append(struct bytes *bytes, const void *data, size_t size);
_Noreturn void serve_terminal(const struct terminal *terminal, const sigset_t *waiting);

#endif
