/* What the examples have in common: the end on a signal, MAC addresses, the time, attaching or telling why not. */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <conic.h>

#include <err.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* An Ethernet header: destination, source, type. */
#define HEADER 14
/* The EtherType for local experiments. */
#define EXPERIMENT 0x88b5

static volatile sig_atomic_t stopped;

static void stop(int signal)
{
    (void)signal;
    stopped = 1;
}

/* Ends the loop that looks at `stopped` when the program is interrupted. */
static inline void stop_on_signals(void)
{
    signal(SIGINT, stop);
    signal(SIGTERM, stop);
}

static inline double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* A number of an argument, or the end with the reason. */
static inline unsigned long number_of(const char *text, const char *what)
{
    char *end;
    unsigned long number = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0')
        errx(2, "%s is a number, such as 1000, and not \"%s\"", what, text);
    return number;
}

/* A MAC address of an argument, or the end with the reason. */
static inline void mac_of(const char *text, unsigned char mac[6])
{
    unsigned int part[6];
    char more;
    if (sscanf(text, "%2x:%2x:%2x:%2x:%2x:%2x%c", &part[0], &part[1], &part[2], &part[3], &part[4], &part[5], &more) != 6)
        errx(2, "a MAC address is as 02:00:00:00:00:01, and not \"%s\"", text);
    for (int index = 0; index < 6; index++)
        mac[index] = (unsigned char)part[index];
}

static inline void print_mac(const unsigned char mac[6])
{
    printf("%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
}

/* Attaches to a network of the daemon at `socket`, either NULL for the default, or ends with the reason. */
static inline struct conic_client *attach(const char *socket, const char *name, const char *network, struct conic_info *info)
{
    struct conic_options options;
    struct conic_client *client;
    char why[256] = "";

    conic_options_init(&options, sizeof options);
    options.socket = socket;
    options.name = name;
    options.network = network;
    if (conic_attach(&options, &client, why, sizeof why) < 0)
        errx(1, "%s", why);
    conic_get_info(client, info, sizeof *info);
    return client;
}

/* Gives back what `conic_tx_burst` did not take, after trying for as long as the link is up and it makes progress. */
static inline unsigned int send_all(struct conic_queue *queue, struct conic_buf *bufs, unsigned int count)
{
    unsigned int sent = 0;
    for (int idle = 0; sent < count && idle < 100000; idle++) {
        int taken = conic_tx_burst(queue, bufs + sent, count - sent);
        if (taken < 0)
            break;
        if (taken > 0)
            idle = 0;
        sent += (unsigned int)taken;
    }
    conic_buf_free(queue, bufs + sent, count - sent);
    return sent;
}

#endif
