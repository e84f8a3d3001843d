/* The keeper and the inits it makes: shared declarations.
 *
 * One keeper per Proctor process lives in a mapped user namespace ("outer") and makes sandboxes on request.
 * Each sandbox has an init, PID 1 of its own namespaces, still with the outer namespace's credentials: what
 * runs inside belongs to a second user namespace ("inner") and can neither signal, trace nor read the init.
 *
 * Messages are packets of NUL-terminated strings; the first byte of a string says what it is.
 */
#ifndef PROCTOR_H
#define PROCTOR_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#define MAX_FDS 250
#define MAX_MESSAGE (1 << 18)
#define MAX_LAYERS 200
#define MAX_BINDS 64
#define MAX_TARGETS 16
#define SHARES 4 /* a sandbox gets a fourth of what the kernel allows the account of all */
#define INNER_IDS 65536 /* ids inside; the keeper itself is id 65536 of the outer namespace */

struct message {
    char *data;
    size_t size;
    int fds[MAX_FDS];
    int fd_count;
};

/* What one sandbox is made of, as asked for; strings point into the message. */
struct request {
    const char *id, *state, *hostname, *workdir;
    const char *layers[MAX_LAYERS];
    const char *binds[MAX_BINDS], *bind_targets[MAX_BINDS];
    int layer_count, bind_count, bind_writable[MAX_BINDS];
    int cgroup_count, trees; /* trees: folders come as detached mounts, not as paths */
    uint64_t capabilities, shm_bytes, nproc, fsize, data, nofile;
    int control, seccomp;
    int cgroup_fds[16], state_fd, layer_fds[MAX_LAYERS], bind_fds[MAX_BINDS];
};

/* What init needs for every command. */
struct sandbox {
    struct request *request;
    int control, inner;
    pid_t pid; /* ours, as the keeper's namespace counts */
};

/* One command to run inside, and what is made ready before it: folders made anew, streams unpacked. */
struct command {
    const char *id, *cwd, *user, *builtin, *quiet;
    char **argv, **env, **fresh, **targets;
    int argc, envc, fresh_count, target_count;
    int fds[3], target_fds[MAX_TARGETS];
    volatile char *made_ready; /* shared with the supervisor */
};

/* wire.c */
int receive_message(int socket, struct message *message);
const char *next_field(const struct message *message, const char *after);
void reply(int socket, const char *format, ...) __attribute__((format(printf, 2, 3)));
void reply_fd(int socket, int fd, const char *text);
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
int write_file(const char *path, const char *text);
int make_folders(char *path, mode_t mode);
void close_all(void);
struct rusage;
long long cpu_us(const struct rusage *used);

/* root.c */
void build_root(struct request *request);

/* init.c */
_Noreturn void run_init(struct request *request);
_Noreturn void serve_commands(struct sandbox *sandbox);

/* network.c */
void make_network(void);
void offer_tun(void);

/* container.c */
_Noreturn void run_in_container(const char *path);

/* terminal.c */
int run_terminal(int argc, char **argv);

/* keeper.c */
void read_request(const struct message *message, struct request *request);

/* command.c */
_Noreturn void run_command(struct sandbox *sandbox, struct command *command);
void set_filter(int fd);

/* files.c */
int write_all(int fd, const void *from, size_t size);
int run_builtin(int argc, char **argv);
void make_fresh(int count, char **paths);
void receive_tree(int stream, const char *target);
int remove_tree(int folder, const char *name);
_Noreturn void write_archive(int tree, int target, uint64_t most);

/* measure.c */
struct count {
    uint64_t bytes, inodes;
    uint64_t most; /* count no further; 0: everything */
    int64_t deadline_ms; /* 0: none */
    unsigned steps;
    int late;
};
int measure_tree(int folder, struct count *count);
int run_measure(int argc, char **argv);

#endif
