/* The process that holds a terminal: it types what it is asked to, and tells what comes back.
 *
 * What the terminal prints while nobody asks is kept, the last of it, and told to whoever asks next. */
#include "terminal.h"
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#define KEPT (1 << 18)
#define MOST_MARK 256
#define MOST_TEXT (64 << 20)

void append(struct bytes *bytes, const void *data, size_t size)
{
    if (bytes->size + size > bytes->room) {
        bytes->room = 2 * (bytes->size + size);
        bytes->data = realloc(bytes->data, bytes->room);
        if (!bytes->data)
            _exit(1);
    }
    memcpy(bytes->data + bytes->size, data, size);
    bytes->size += size;
}

static void take(struct bytes *bytes, size_t size)
{
    bytes->size -= size;
    memmove(bytes->data, bytes->data + size, bytes->size);
}

/* Pass on as much as is taken now; -1 when nobody is there any more. */
static int pass_on(int fd, struct bytes *bytes)
{
    if (!bytes->size)
        return 0;
    ssize_t sent = write(fd, bytes->data, bytes->size);
    if (sent < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    take(bytes, sent);
    return 0;
}

static long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* Whether the mark with its digits is in there. Its last byte ends both the mark and the digits. */
static int is_marked(const struct bytes *seen, const char *mark, size_t size)
{
    const char *from = seen->data, *end = seen->data + seen->size, *at;
    while (size && from < end && (at = memmem(from, end - from, mark, size))) {
        const char *digit = at + size;
        while (digit < end && *digit >= '0' && *digit <= '9')
            digit++;
        if (digit < end && digit > at + size && *digit == mark[size - 1])
            return 1;
        from = at + 1;
    }
    return 0;
}

/* Who asks, what for, and what is on the way between them and the terminal. */
static struct {
    int client, master, script;
    struct bytes printed, typed, heard, told, seen;
    int asked; /* whether somebody waits for its end */
    struct question question;
    char mark[MOST_MARK];
    long long deadline;
} talking;

static void hang_up(void)
{
    close(talking.client);
    talking.client = -1;
    talking.asked = talking.heard.size = talking.told.size = 0;
}

static void answer(char kind, uint32_t value)
{
    struct answer answer = {kind, talking.question.number, value};
    append(&talking.told, &answer, sizeof answer);
}

static void end_question(int code)
{
    answer('e', code);
    talking.asked = talking.seen.size = 0;
}

/* What was printed goes to whoever asked, until the mark has come or the time is over. */
static void tell(void)
{
    struct bytes *printed = &talking.printed, *seen = &talking.seen;
    size_t mark_size = talking.question.mark_size, overlap = mark_size + 16;
    if (talking.asked && printed->size && !talking.told.size) {
        answer('o', printed->size);
        append(&talking.told, printed->data, printed->size);
        append(seen, printed->data, printed->size);
        printed->size = 0;
        if (is_marked(seen, talking.mark, mark_size))
            end_question(0);
        else if (seen->size > overlap)
            take(seen, seen->size - overlap);
    }
    if (talking.asked && now_ms() >= talking.deadline)
        end_question(TIME_LIMIT);
    if (talking.client >= 0 && pass_on(talking.client, &talking.told) < 0)
        hang_up();
}

static int write_script(const char *text, size_t size)
{
    if (ftruncate(talking.script, 0) < 0 || lseek(talking.script, 0, SEEK_SET) < 0)
        return -1;
    return write_all(talking.script, text, size);
}

/* Begin with what was asked, once all of it is there: 1; -1 when it is no question. */
static int begin_question(void)
{
    struct bytes *heard = &talking.heard;
    struct question question;
    if (heard->size < sizeof question)
        return 0;
    memcpy(&question, heard->data, sizeof question);
    if (question.mark_size > MOST_MARK || question.line_size > MOST_MARK || question.text_size > MOST_TEXT)
        return -1;
    size_t size = sizeof question + question.mark_size + question.line_size + question.text_size;
    if (heard->size < size)
        return 0;
    const char *mark = heard->data + sizeof question, *line = mark + question.mark_size;
    const char *text = line + question.line_size;
    char path[64];
    memcpy(talking.mark, mark, question.mark_size);
    talking.question = question;
    talking.deadline = now_ms() + question.limit_ms;
    talking.asked = 1;
    talking.seen.size = 0;
    if (!question.line_size)
        append(&talking.typed, text, question.text_size);
    else if (write_script(text, question.text_size) < 0)
        end_question(GONE);
    else {
        append(&talking.typed, line, question.line_size);
        append(&talking.typed, path, snprintf(path, sizeof path, SCRIPT_PATH, getpid(), talking.script));
    }
    take(heard, size);
    return 1;
}

static void hear_client(void)
{
    static char piece[PIECE];
    ssize_t size = read(talking.client, piece, sizeof piece);
    int begun = size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR) ? -1 : 1;
    if (size > 0)
        append(&talking.heard, piece, size);
    while (begun > 0)
        begun = begin_question();
    if (begun < 0)
        hang_up();
}

/* Whether the terminal is over. */
static int hear_terminal(void)
{
    static char piece[PIECE];
    ssize_t size = read(talking.master, piece, sizeof piece);
    if (size <= 0)
        return size == 0 || (errno != EAGAIN && errno != EINTR);
    append(&talking.printed, piece, size);
    if (!talking.asked && talking.printed.size > KEPT)
        take(&talking.printed, talking.printed.size - KEPT);
    return 0;
}

static void take_client(int listening)
{
    int next = accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (next < 0)
        return;
    if (talking.client >= 0)
        hang_up();
    talking.client = next;
}

static int wait_for(struct pollfd *watched, int ended, const sigset_t *waiting)
{
    long long left = talking.asked ? talking.deadline - now_ms() : -1;
    if (talking.asked && left < 0)
        left = 0;
    if (ended && (left < 0 || left > 100))
        left = 100;
    struct timespec time = {.tv_sec = left / 1000, .tv_nsec = left % 1000 * 1000000};
    return ppoll(watched, 3, left < 0 ? NULL : &time, waiting);
}

/* With `waiting` the end of the shell is heard while nothing else happens: hundreds of terminals may wait. */
_Noreturn void serve_terminal(const struct terminal *terminal, const sigset_t *waiting)
{
    int over = 0, ended = 0;
    talking.client = terminal->client;
    talking.master = terminal->master;
    talking.script = terminal->script;
    while (!over || (talking.client >= 0 && (talking.told.size || (talking.asked && talking.printed.size)))) {
        /* Who asks and is slow holds up the terminal; while nobody asks the oldest output goes. */
        int reads = !talking.asked || talking.printed.size + talking.told.size < PIECE;
        int tells = talking.told.size || (talking.asked && talking.printed.size);
        struct pollfd watched[3] = {
            {.fd = talking.master, .events = (reads ? POLLIN : 0) | (talking.typed.size ? POLLOUT : 0)},
            {.fd = terminal->listening, .events = POLLIN},
            {.fd = talking.client, .events = POLLIN | (tells ? POLLOUT : 0)},
        };
        if (over || !watched[0].events)
            watched[0].fd = -1;
        if (wait_for(watched, ended, waiting) < 0 && errno != EINTR)
            break;
        if (watched[0].revents & (POLLIN | POLLHUP) && hear_terminal())
            over = 1;
        if (watched[2].revents & (POLLIN | POLLHUP | POLLERR))
            hear_client();
        if (watched[1].revents & POLLIN)
            take_client(terminal->listening);
        if (!over && talking.typed.size)
            pass_on(talking.master, &talking.typed);
        tell();
        /* Jobs of a shell that has ended may hold its terminal: what came before its end is still read. */
        if (ended && watched[0].fd == talking.master && !(watched[0].revents & POLLIN))
            over = 1;
        if (!ended && waitpid(terminal->shell, NULL, WNOHANG) == terminal->shell)
            ended = 1;
    }
    _exit(0);
}
