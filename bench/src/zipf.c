// Requests to many web servers on this host, a connection each, spread over them by Zipf's law.
//
//   zipf SERVERS FIRST_PORT SECONDS CLIENTS ALPHA     servers listen at ports from FIRST_PORT on; which of them is asked most is mixed up
//
// Prints "RATE BAD MEDIAN P99": requests answered a second, those that were not, and milliseconds.
#include <arpa/inet.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define MOST 400000
#define PRIME 7919u

struct client {
    pthread_t thread;
    unsigned seed;
    long good, bad;
    float *ms;
};

static int servers, first_port;
static double seconds, *up_to;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static int chosen(unsigned *seed)
{
    double u = rand_r(seed) / (RAND_MAX + 1.0);
    int low = 0, high = servers - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (up_to[middle] < u)
            low = middle + 1;
        else
            high = middle;
    }
    return (int)((unsigned long)low * PRIME % (unsigned)servers);
}

static int asked(int port)
{
    static const char request[] = "GET / HTTP/1.0\r\n\r\n";
    char answer[4096];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {10, 0};
    // No ports are left in TIME_WAIT.
    struct linger at_once = {1, 0};
    long got = 0, n;
    int s = socket(AF_INET, SOCK_STREAM, 0);
    if (s < 0)
        return 0;
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(s, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    if (connect(s, (struct sockaddr *)&at, sizeof at) == 0 && send(s, request, sizeof request - 1, MSG_NOSIGNAL) > 0)
        while ((n = recv(s, answer, sizeof answer, 0)) > 0)
            got += n;
    close(s);
    return got > 0;
}

static void *run(void *p)
{
    struct client *c = p;
    double end = now() + seconds, begun;
    while ((begun = now()) < end)
        if (!asked(first_port + chosen(&c->seed)))
            c->bad++;
        else if (c->good < MOST)
            c->ms[c->good++] = (now() - begun) * 1e3;
    return NULL;
}

static int compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return 2;
    servers = atoi(argv[1]), first_port = atoi(argv[2]), seconds = atof(argv[3]);
    int clients = atoi(argv[4]);
    double alpha = atof(argv[5]), sum = 0;
    up_to = calloc(servers, sizeof *up_to);
    struct client *all = calloc(clients, sizeof *all);
    float *ms = calloc((size_t)MOST * clients, sizeof *ms);
    if (!up_to || !all || !ms)
        return 1;
    for (int i = 0; i < servers; i++)
        up_to[i] = sum += 1 / pow(i + 1, alpha);
    for (int i = 0; i < servers; i++)
        up_to[i] /= sum;
    for (int i = 0; i < clients; i++) {
        all[i].seed = i + 1;
        all[i].ms = ms + (size_t)MOST * i;
        if (pthread_create(&all[i].thread, NULL, run, &all[i]))
            return 1;
    }
    long good = 0, bad = 0;
    for (int i = 0; i < clients; i++) {
        pthread_join(all[i].thread, NULL);
        memmove(ms + good, all[i].ms, all[i].good * sizeof *ms);
        good += all[i].good, bad += all[i].bad;
    }
    qsort(ms, good, sizeof *ms, compare);
    printf("%.1f %ld %.3f %.3f\n", good / seconds, bad, good ? ms[good / 2] : 0, good ? ms[good * 99 / 100] : 0);
    return 0;
}
