/* What conic.h promises, checked from C: `interface --socket PATH checks`; `survives`, `sleeps` and `waits-for-nobody` for the daemon's
 * death; `keeps` for an operator's detach. */
#include <conic.h>

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#define CHECK(what)                                                        \
    do {                                                                   \
        if (!(what)) {                                                     \
            printf("line %d: this is not so: %s\n", __LINE__, #what);      \
            exit(1);                                                       \
        }                                                                  \
    } while (0)

#define COUNT 100

static struct conic_client *attach(const char *socket, uint32_t queues)
{
    struct conic_options options;
    struct conic_client *client = NULL;
    char why[256] = "";
    CHECK(conic_options_init(&options, sizeof options) == 0);
    CHECK(options.queues == 1 && options.reconnect == 1 && options.size == sizeof options);
    options.socket = socket;
    options.queues = queues;
    options.name = "interface";
    if (conic_attach(&options, &client, why, sizeof why) != 0) {
        printf("%s\n", why);
        exit(1);
    }
    return client;
}

static void nothing_is_an_error(const char *socket)
{
    struct conic_client *client = (struct conic_client *)&socket;
    struct conic_options options;
    struct conic_buf buf;
    char why[64] = "";

    CHECK(conic_options_init(NULL, sizeof options) == CONIC_ERROR_ARGUMENT);
    CHECK(conic_options_init(&options, 8) == CONIC_ERROR_ARGUMENT);
    CHECK(conic_attach(NULL, NULL, why, sizeof why) == CONIC_ERROR_ARGUMENT && strlen(why) == sizeof why - 1);
    CHECK(conic_attach(NULL, NULL, NULL, 5) == CONIC_ERROR_ARGUMENT);
    conic_options_init(&options, sizeof options);
    options.size = 1 << 20;
    CHECK(conic_attach(&options, &client, why, sizeof why) == CONIC_ERROR_ARGUMENT && client == NULL);
    conic_options_init(&options, sizeof options);
    options.socket = socket;
    options.name = "no blanks";
    CHECK(conic_attach(&options, &client, why, sizeof why) == CONIC_ERROR_ARGUMENT && strstr(why, "name") != NULL);
    options.name = "\xff";
    CHECK(conic_attach(&options, &client, why, sizeof why) == CONIC_ERROR_ARGUMENT && strstr(why, "UTF-8") != NULL);
    options.name = NULL;
    options.has_mac = 2;
    CHECK(conic_attach(&options, &client, why, sizeof why) == CONIC_ERROR_ARGUMENT && strstr(why, "has_mac") != NULL);
    options.has_mac = 0;
    options.promiscuous = 2;
    CHECK(conic_attach(&options, &client, why, sizeof why) == CONIC_ERROR_ARGUMENT && strstr(why, "promiscuous") != NULL);
    options.promiscuous = 1;
    CHECK(conic_attach(&options, &client, why, sizeof why) == CONIC_ERROR_REFUSED && client == NULL);
    options.promiscuous = 0;
    options.descriptors = 3;
    CHECK(conic_attach(&options, &client, NULL, 0) == CONIC_ERROR_GEOMETRY);
    options.descriptors = 64;
    options.network = "nowhere";
    CHECK(conic_attach(&options, &client, why, sizeof why) == CONIC_ERROR_REFUSED && client == NULL);
    options.socket = "/nonexistent/nic.sock";
    CHECK(conic_attach(&options, &client, why, sizeof why) == CONIC_ERROR_CONNECT);

    conic_detach(NULL);
    CHECK(conic_get_queue(NULL, 0) == NULL);
    CHECK(conic_link(NULL) == CONIC_ERROR_ARGUMENT);
    CHECK(conic_get_info(NULL, NULL, 0) == CONIC_ERROR_ARGUMENT);
    CHECK(conic_set_mac(NULL, (const uint8_t *)"\2\0\0\0\0\1") == CONIC_ERROR_ARGUMENT);
    CHECK(conic_detached(NULL, why, sizeof why) == CONIC_ERROR_ARGUMENT);
    CHECK(conic_buf_alloc(NULL, 60, &buf, 1) == CONIC_ERROR_ARGUMENT);
    CHECK(conic_buf_free(NULL, &buf, 1) == CONIC_ERROR_ARGUMENT);
    CHECK(conic_tx_burst(NULL, &buf, 1) == CONIC_ERROR_ARGUMENT);
    CHECK(conic_rx_burst(NULL, &buf, 1) == CONIC_ERROR_ARGUMENT);
    CHECK(conic_get_counters(NULL, NULL, 0) == CONIC_ERROR_ARGUMENT);
    CHECK(conic_wait(NULL, 0) == CONIC_ERROR_ARGUMENT);
    CHECK(conic_get_fd(NULL) == CONIC_ERROR_ARGUMENT);
    CHECK(conic_arm(NULL) == CONIC_ERROR_ARGUMENT);
    CHECK(conic_disarm(NULL) == CONIC_ERROR_ARGUMENT);
    CHECK(strcmp(conic_strerror(CONIC_ERROR_TIMEOUT), conic_strerror(CONIC_ERROR_PEER)) != 0);
}

static void bad_packets_are_refused(struct conic_queue *queue)
{
    struct conic_buf buf, good, chain[5];
    char outside[64] = "";
    void *data;

    CHECK(conic_buf_alloc(queue, 0, &buf, 1) == CONIC_ERROR_ARGUMENT);
    CHECK(conic_buf_alloc(queue, 16385, &buf, 1) == CONIC_ERROR_ARGUMENT);
    CHECK(conic_buf_alloc(queue, 60, NULL, 1) == CONIC_ERROR_ARGUMENT);
    CHECK(conic_buf_alloc(queue, 60, NULL, 0) == 0);
    CHECK(conic_tx_burst(queue, NULL, 1) == CONIC_ERROR_ARGUMENT);
    CHECK(conic_rx_burst(queue, NULL, 1) == CONIC_ERROR_ARGUMENT);
    CHECK(conic_buf_free(queue, NULL, 1) == CONIC_ERROR_ARGUMENT);
    CHECK(conic_buf_alloc(queue, 60, &good, 1) == 1);
    CHECK(good.length == 60 && good.capacity == 128 && good.flags == 0 && good.metadata == 0);
    memset(good.data, 7, good.length);

    buf = good, buf.length = 129;
    CHECK(conic_tx_burst(queue, &buf, 1) == CONIC_ERROR_BUFFER);
    buf = good, buf.length = 0;
    CHECK(conic_tx_burst(queue, &buf, 1) == CONIC_ERROR_BUFFER);
    buf = good, buf.length = 1u << 31;
    CHECK(conic_tx_burst(queue, &buf, 1) == CONIC_ERROR_BUFFER);
    buf = good, buf.flags = 2;
    CHECK(conic_tx_burst(queue, &buf, 1) == CONIC_ERROR_BUFFER);
    buf = good, buf.flags = CONIC_BUF_NEXT;
    CHECK(conic_tx_burst(queue, &buf, 1) == CONIC_ERROR_BUFFER);
    buf = good, buf.data = outside;
    CHECK(conic_tx_burst(queue, &buf, 1) == CONIC_ERROR_BUFFER);
    CHECK(conic_buf_free(queue, &buf, 1) == CONIC_ERROR_BUFFER);
    buf = good, buf.data = NULL;
    CHECK(conic_tx_burst(queue, &buf, 1) == CONIC_ERROR_BUFFER);
    for (int index = 0; index < 5; index++)
        chain[index] = good, chain[index].flags = index < 4 ? CONIC_BUF_NEXT : 0;
    CHECK(conic_tx_burst(queue, chain, 5) == CONIC_ERROR_BUFFER);

    /* What stands before one that cannot be sent is sent. */
    data = good.data;
    chain[0] = good, chain[1].data = outside, chain[1].flags = 0;
    while (conic_tx_burst(queue, chain, 2) == 0)
        ;
    while (conic_rx_burst(queue, &buf, 1) == 0)
        ;
    CHECK(buf.length == 60 && memcmp(buf.data, "\7\7\7\7", 4) == 0);
    CHECK(conic_buf_free(queue, &buf, 1) == 0);
    (void)data;
}

/* Frames of all sizes go and come back, more than there are buffers, in bursts that are larger than those within. */
static void frames_come_back(struct conic_queue *queue)
{
    struct conic_buf out[COUNT], in[COUNT];
    struct conic_counters counters;
    unsigned int received = 0, bytes = 0;

    CHECK(conic_get_counters(queue, NULL, sizeof counters) == CONIC_ERROR_ARGUMENT);
    CHECK(conic_get_counters(queue, &counters, sizeof counters) == 0);
    received = (unsigned int)counters.received_frames;
    bytes = (unsigned int)counters.received_bytes;
    for (unsigned int round = 0; round < 100; round++) {
        unsigned int length = 60 + round * 9600 / 110, sent = 0, back = 0;
        unsigned int count = (unsigned int)conic_buf_alloc(queue, length, out, length > 4096 ? 8 : COUNT);
        CHECK(count == (length > 4096 ? 8 : COUNT));
        for (unsigned int index = 0; index < count; index++)
            memset(out[index].data, (int)(round + index), length);
        while (back < count) {
            int got = conic_tx_burst(queue, out + sent, count - sent);
            CHECK(got >= 0);
            sent += (unsigned int)got;
            got = conic_rx_burst(queue, in, COUNT);
            CHECK(got >= 0);
            for (int index = 0; index < got; index++, back++) {
                const unsigned char *data = in[index].data;
                CHECK(in[index].length == length && in[index].capacity >= length && in[index].flags == 0);
                CHECK(data[0] == (unsigned char)(round + back) && data[length - 1] == data[0]);
            }
            CHECK(conic_buf_free(queue, in, (unsigned int)got) == 0);
        }
        received += count;
        bytes += count * length;
    }
    CHECK(conic_get_counters(queue, &counters, sizeof counters) == 0);
    CHECK(counters.sent_frames == received && counters.received_frames == received);
    CHECK(counters.sent_bytes == bytes && counters.received_bytes == bytes);
    CHECK(counters.refused == 0 && counters.ring_faults == 0 && counters.freed_twice == 0 && counters.copied == 0);
}

/* Parts of a packet arrive as one. */
static void chains_are_one_packet(struct conic_queue *queue)
{
    struct conic_buf parts[3], whole;
    CHECK(conic_buf_alloc(queue, 100, parts, 3) == 3);
    for (int index = 0; index < 3; index++) {
        memset(parts[index].data, 'a' + index, 100);
        parts[index].flags = index < 2 ? CONIC_BUF_NEXT : 0;
    }
    while (conic_tx_burst(queue, parts, 3) == 0)
        ;
    while (conic_rx_burst(queue, &whole, 1) == 0)
        ;
    CHECK(whole.length == 300 && whole.flags == 0);
    CHECK(((char *)whole.data)[99] == 'a' && ((char *)whole.data)[100] == 'b' && ((char *)whole.data)[299] == 'c');
    CHECK(conic_buf_free(queue, &whole, 1) == 0);
}

static double now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int readable(int descriptor, int milliseconds)
{
    struct pollfd waited = {descriptor, POLLIN, 0};
    return poll(&waited, 1, milliseconds);
}

static void send_one(struct conic_queue *queue, char content)
{
    struct conic_buf buf;
    CHECK(conic_buf_alloc(queue, 60, &buf, 1) == 1);
    memset(buf.data, content, 60);
    while (conic_tx_burst(queue, &buf, 1) == 0)
        ;
}

static void receive_one(struct conic_queue *queue, char content)
{
    struct conic_buf buf;
    CHECK(conic_rx_burst(queue, &buf, 1) == 1 && *(char *)buf.data == content);
    CHECK(conic_buf_free(queue, &buf, 1) == 0);
}

static void ignore(int signal)
{
    (void)signal;
}

/* A wait ends with a packet, with its time, or with a signal. */
static void waits_end(struct conic_queue *queue)
{
    struct itimerval soon = {{0, 0}, {0, 50000}};
    struct sigaction action;
    double begun = now();

    CHECK(conic_wait(queue, 0) == 0 && conic_wait(queue, 20000000) == 0);
    CHECK(now() - begun >= 0.02);
    for (char round = 0; round < 20; round++) {
        send_one(queue, round);
        CHECK(conic_wait(queue, 5000000000) == 1 && conic_wait(queue, 0) == 1 && conic_wait(queue, -1) == 1);
        receive_one(queue, round);
    }
    memset(&action, 0, sizeof action);
    action.sa_handler = ignore;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &soon, NULL);
    begun = now();
    CHECK(conic_wait(queue, -1) == 0);
    CHECK(now() - begun < 5);
}

/* The descriptor is readable when a packet comes after it was asked for that, and only then. */
static void the_descriptor_wakes(struct conic_queue *queue)
{
    int descriptor = conic_get_fd(queue);
    CHECK(descriptor >= 0 && conic_get_fd(queue) == descriptor);
    for (char round = 0; round < 20; round++) {
        CHECK(conic_arm(queue) == 0 && readable(descriptor, 0) == 0);
        send_one(queue, round);
        CHECK(readable(descriptor, 5000) == 1);
        CHECK(conic_disarm(queue) == 0 && readable(descriptor, 0) == 0);
        CHECK(conic_wait(queue, 5000000000) == 1 && conic_arm(queue) == 1);
        CHECK(conic_disarm(queue) == 0);
        receive_one(queue, round);
    }
}

static void queues_share_buffers(struct conic_client *client)
{
    struct conic_queue *first = conic_get_queue(client, 0), *second = conic_get_queue(client, 1);
    struct conic_buf buf;
    struct conic_info info;
    const uint8_t wanted[6] = {2, 0, 0, 0, 0, 0x55}, multicast[6] = {1, 0, 0x5e, 0, 0, 1};
    char why[8] = "x";

    CHECK(first != NULL && second != NULL && first != second && conic_get_queue(client, 2) == NULL);
    CHECK(conic_get_info(client, &info, sizeof info) == 0);
    CHECK(info.queues == 2 && info.link == 1 && info.reconnects == 0 && info.longest_frame >= 1514);
    CHECK(conic_get_info(client, &info, 4) == CONIC_ERROR_ARGUMENT);
    CHECK(conic_link(client) == 1);
    CHECK(conic_detached(client, why, sizeof why) == 0 && why[0] == '\0');
    CHECK(conic_set_promiscuous(NULL, 1) == CONIC_ERROR_ARGUMENT && conic_set_promiscuous(client, 2) == CONIC_ERROR_ARGUMENT);
    CHECK(conic_set_promiscuous(client, 1) == CONIC_ERROR_REFUSED && conic_set_promiscuous(client, 0) == 0);
    CHECK(conic_get_info(client, &info, sizeof info) == 0 && info.promiscuous == 0);
    CHECK(conic_set_mac(client, NULL) == CONIC_ERROR_ARGUMENT);
    CHECK(conic_set_mac(client, multicast) == CONIC_ERROR_REFUSED && conic_set_mac(client, wanted) == 0);
    CHECK(conic_get_info(client, &info, sizeof info) == 0 && memcmp(info.mac, wanted, sizeof wanted) == 0);
    CHECK(conic_buf_alloc(first, 5000, &buf, 1) == 1 && buf.capacity == 16384);
    CHECK(conic_buf_free(second, &buf, 1) == 0);
}

/* All are freed by one call, however many. */
static void any_number_is_freed(const char *socket)
{
    enum { MANY = 1 << 17 };
    struct conic_options options;
    struct conic_client *client = NULL;
    struct conic_buf *bufs = calloc(MANY, sizeof *bufs);
    struct conic_queue *queue;

    CHECK(bufs != NULL && conic_options_init(&options, sizeof options) == 0);
    options.socket = socket;
    options.small_buffers = MANY;
    CHECK(conic_attach(&options, &client, NULL, 0) == 0);
    queue = conic_get_queue(client, 0);
    for (int round = 0; round < 2; round++) {
        int count = 0, got;
        while ((got = conic_buf_alloc(queue, 60, bufs + count, (unsigned int)(MANY - count))) > 0)
            count += got;
        /* Some are where the NIC receives, and the same ones then. */
        CHECK(count > MANY - 4096);
        CHECK(conic_buf_free(queue, bufs, (unsigned int)count) == 0);
    }
    conic_detach(client);
    free(bufs);
}

static void wait_for_link(struct conic_client *client, struct conic_queue *queue, int wanted)
{
    struct timespec pause = {0, 1000000};
    struct conic_buf buf;
    while (conic_link(client) != wanted) {
        CHECK(conic_rx_burst(queue, &buf, 1) == 0);
        nanosleep(&pause, NULL);
    }
    puts(wanted ? "link up" : "link down");
    fflush(stdout);
}

/* Waits by the descriptor alone until the link is as wanted. */
static void sleep_until_link(struct conic_client *client, struct conic_queue *queue, int descriptor, uint32_t wanted)
{
    struct conic_info info;
    do {
        CHECK(conic_get_fd(queue) == descriptor && conic_arm(queue) == 0);
        CHECK(readable(descriptor, 10000) == 1);
        CHECK(conic_disarm(queue) == 0);
        CHECK(conic_get_info(client, &info, sizeof info) == 0);
    } while (info.link != wanted);
    puts(wanted ? "link up" : "link down");
    fflush(stdout);
}

/* A program that only sleeps on the descriptor learns of the daemon's death, attaches again and is woken by packets again. */
static void sleeps(const char *socket)
{
    struct conic_client *client = attach(socket, 1);
    struct conic_queue *queue = conic_get_queue(client, 0);
    int descriptor = conic_get_fd(queue);

    CHECK(conic_arm(queue) == 0 && conic_disarm(queue) == 0);
    puts("attached");
    fflush(stdout);
    sleep_until_link(client, queue, descriptor, 0);
    sleep_until_link(client, queue, descriptor, 1);
    CHECK(conic_arm(queue) == 0 && readable(descriptor, 0) == 0);
    send_one(queue, 'z');
    CHECK(readable(descriptor, 5000) == 1 && conic_disarm(queue) == 0);
    CHECK(conic_wait(queue, 5000000000) == 1);
    receive_one(queue, 'z');
    puts("woken");
    conic_detach(client);
}

/* A daemon that listens and says nothing keeps nobody waiting who has an event loop. */
static void waits_for_nobody(const char *socket)
{
    struct conic_client *client = attach(socket, 1);
    struct conic_queue *queue = conic_get_queue(client, 0);
    int descriptor = conic_get_fd(queue);

    puts("attached");
    fflush(stdout);
    sleep_until_link(client, queue, descriptor, 0);
    for (int round = 0; round < 20; round++) {
        double begun = now();
        CHECK(conic_arm(queue) == 0 && readable(descriptor, 10000) == 1 && conic_disarm(queue) == 0);
        CHECK(now() - begun < 2.5);
    }
    puts("not kept waiting");
    conic_detach(client);
}

/* Buffers of a daemon that is gone are sent to the next one, and freed. */
static void survives(const char *socket)
{
    struct conic_client *client = attach(socket, 2);
    struct conic_queue *queue = conic_get_queue(client, 0), *other = conic_get_queue(client, 1);
    struct conic_buf kept[3], back[2];
    struct conic_counters counters;
    struct conic_info info;
    int sent = 0, got = 0;

    CHECK(conic_buf_alloc(queue, 200, kept, 3) == 3);
    memset(kept[0].data, 'x', 200);
    memset(kept[1].data, 'y', 200);
    puts("attached");
    fflush(stdout);
    wait_for_link(client, queue, 0);
    CHECK(conic_tx_burst(queue, kept, 2) == 0);
    wait_for_link(client, queue, 1);
    while (sent < 2)
        sent += conic_tx_burst(queue, kept + sent, (unsigned int)(2 - sent));
    while (got < 2)
        got += conic_rx_burst(queue, back + got, (unsigned int)(2 - got));
    CHECK(((char *)back[0].data)[199] == 'x' && ((char *)back[1].data)[0] == 'y');
    CHECK(conic_buf_free(other, back, 2) == 0);
    CHECK(conic_buf_free(other, kept + 2, 1) == 0);
    /* Nobody holds anything of the old region any more, and so it is gone. */
    CHECK(conic_buf_free(other, kept + 2, 1) == CONIC_ERROR_BUFFER);
    CHECK(conic_get_counters(queue, &counters, sizeof counters) == 0 && counters.copied == 2 && counters.not_taken >= 2);
    CHECK(conic_get_info(client, &info, sizeof info) == 0 && info.reconnects == 1);
    puts("old buffers came back");
    conic_detach(client);
}

/* Buffers that the program holds are what they were when an operator has detached it and it has attached again. */
static void keeps(const char *socket)
{
    enum { HELD = 3, BYTES = 2000 };
    struct conic_client *client = attach(socket, 1);
    struct conic_queue *queue = conic_get_queue(client, 0);
    struct conic_buf held[HELD], buf;
    struct conic_info info;
    double until = now() + 10;

    CHECK(conic_buf_alloc(queue, BYTES, held, HELD) == HELD);
    for (int index = 0; index < HELD; index++)
        memset(held[index].data, 'a' + index, BYTES);
    CHECK(conic_get_info(client, &info, sizeof info) == 0);
    printf("session %llu\n", (unsigned long long)info.session);
    fflush(stdout);
    do {
        CHECK(conic_rx_burst(queue, &buf, 1) == 0 && now() < until);
        CHECK(conic_get_info(client, &info, sizeof info) == 0);
    } while (info.reconnects == 0);
    /* It moves on to the new region here, and the daemon hears within milliseconds of what is let go of. */
    CHECK(conic_rx_burst(queue, &buf, 1) == 0);
    for (double begun = now(); now() - begun < 0.3;)
        for (int index = 0; index < HELD; index++)
            for (int at = 0; at < BYTES; at++)
                CHECK(((volatile char *)held[index].data)[at] == 'a' + index);
    for (int index = 0; index < HELD; index++) {
        while (conic_tx_burst(queue, held + index, 1) == 0)
            ;
        while (conic_rx_burst(queue, &buf, 1) == 0)
            ;
        CHECK(buf.length == BYTES && memcmp(buf.data, "abc" + index, 1) == 0);
        CHECK(conic_buf_free(queue, &buf, 1) == 0);
    }
    puts("held buffers are whole");
    conic_detach(client);
}

int main(int argc, char **argv)
{
    struct conic_client *client;
    CHECK(argc == 4 && strcmp(argv[1], "--socket") == 0);
    if (strcmp(argv[3], "survives") == 0) {
        survives(argv[2]);
        return 0;
    }
    if (strcmp(argv[3], "keeps") == 0) {
        keeps(argv[2]);
        return 0;
    }
    if (strcmp(argv[3], "waits-for-nobody") == 0) {
        waits_for_nobody(argv[2]);
        return 0;
    }
    if (strcmp(argv[3], "sleeps") == 0) {
        sleeps(argv[2]);
        return 0;
    }
    nothing_is_an_error(argv[2]);
    client = attach(argv[2], 2);
    queues_share_buffers(client);
    bad_packets_are_refused(conic_get_queue(client, 1));
    frames_come_back(conic_get_queue(client, 0));
    chains_are_one_packet(conic_get_queue(client, 1));
    waits_end(conic_get_queue(client, 1));
    the_descriptor_wakes(conic_get_queue(client, 0));
    conic_detach(client);
    any_number_is_freed(argv[2]);
    puts("all as promised");
    return 0;
}
