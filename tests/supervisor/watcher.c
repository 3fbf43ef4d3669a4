// Says what it hears of files: a line with the file that is watched, the event, its cookie and the name.
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <unistd.h>

static const struct {
    unsigned bit;
    const char *name;
} EVENTS[] = {
    {IN_ACCESS, "ACCESS"},
    {IN_MODIFY, "MODIFY"},
    {IN_ATTRIB, "ATTRIB"},
    {IN_CLOSE_WRITE, "CLOSE_WRITE"},
    {IN_CLOSE_NOWRITE, "CLOSE_NOWRITE"},
    {IN_OPEN, "OPEN"},
    {IN_MOVED_FROM, "MOVED_FROM"},
    {IN_MOVED_TO, "MOVED_TO"},
    {IN_CREATE, "CREATE"},
    {IN_DELETE, "DELETE"},
    {IN_DELETE_SELF, "DELETE_SELF"},
    {IN_MOVE_SELF, "MOVE_SELF"},
    {IN_UNMOUNT, "UNMOUNT"},
    {IN_Q_OVERFLOW, "Q_OVERFLOW"},
    {IN_IGNORED, "IGNORED"},
};

static void say(const struct inotify_event *e, char **files)
{
    for (size_t i = 0; i < sizeof EVENTS / sizeof *EVENTS; i++) {
        if (e->mask & EVENTS[i].bit) {
            const char *file = e->wd > 0 ? files[e->wd] : "-", *name = e->len ? e->name : "-";
            printf("%s %s%s %u %s\n", file, EVENTS[i].name, e->mask & IN_ISDIR ? ",ISDIR" : "", e->cookie, name);
        }
    }
}

int main(int argc, char **argv)
{
    int fd = inotify_init1(IN_CLOEXEC);
    for (int i = 1; i < argc; i++) {
        if (inotify_add_watch(fd, argv[i], IN_ALL_EVENTS) != i) {
            perror(argv[i]);
            return 1;
        }
    }
    puts("ready");
    fflush(stdout);
    _Alignas(struct inotify_event) char events[16 * (sizeof(struct inotify_event) + NAME_MAX + 1)];
    for (;;) {
        ssize_t n = read(fd, events, sizeof events);
        if (n <= 0)
            return 1;
        for (char *at = events; at < events + n;) {
            const struct inotify_event *e = (const struct inotify_event *)at;
            say(e, argv);
            at += sizeof *e + e->len;
        }
        fflush(stdout);
    }
}
