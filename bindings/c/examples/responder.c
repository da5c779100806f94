/* Answers: ARP and ping for an IPv4 address, and frames of type 0x88b5 by sending them back (sender.c sends such). */
#include "example.h"

#include <getopt.h>
#include <stdint.h>

#define BURST 32
#define IP (HEADER)
#define ICMP (HEADER + 20)

struct responder {
    unsigned char mac[6];
    unsigned int ip[4];
    unsigned long answered, passed_by;
};

static const char usage[] =
    "usage: responder [--socket PATH] [--network NAME] [--address IPV4]\n"
    "Answers ARP and ping for an address, and sends frames of type 0x88b5 back to where they came from, until interrupted.\n";

/* Whether four bytes are the responder's address. */
static int is_own(const struct responder *responder, const unsigned char *ip)
{
    for (int index = 0; index < 4; index++)
        if (ip[index] != responder->ip[index])
            return 0;
    return responder->ip[0] != 0;
}

static void turn_around(const struct responder *responder, unsigned char *frame)
{
    memcpy(frame, frame + 6, 6);
    memcpy(frame + 6, responder->mac, 6);
}

static int answer_arp(const struct responder *responder, unsigned char *frame, uint32_t length)
{
    static const unsigned char request[] = {0, 1, 8, 0, 6, 4, 0, 1};
    unsigned char *arp = frame + HEADER, asked[4];
    if (length < HEADER + 28 || memcmp(arp, request, sizeof request) != 0 || !is_own(responder, arp + 24))
        return 0;
    memcpy(asked, arp + 24, 4);
    arp[7] = 2;
    memcpy(arp + 18, arp + 8, 10);
    memcpy(arp + 8, responder->mac, 6);
    memcpy(arp + 14, asked, 4);
    return 1;
}

static int answer_ping(const struct responder *responder, unsigned char *frame, uint32_t length)
{
    unsigned char ip[4];
    uint32_t sum;
    if (length < ICMP + 8 || frame[IP] != 0x45 || frame[IP + 9] != 1 || !is_own(responder, frame + IP + 16) || frame[ICMP] != 8)
        return 0;
    memcpy(ip, frame + IP + 16, 4);
    memcpy(frame + IP + 16, frame + IP + 12, 4);
    memcpy(frame + IP + 12, ip, 4);
    /* Swapped addresses leave the header's checksum as it is; an 8 that becomes a 0 adds 0x0800 to the message's. */
    frame[ICMP] = 0;
    sum = ((uint32_t)frame[ICMP + 2] << 8 | frame[ICMP + 3]) + 0x0800;
    sum = (sum & 0xffff) + (sum >> 16);
    frame[ICMP + 2] = (unsigned char)(sum >> 8);
    frame[ICMP + 3] = (unsigned char)sum;
    return 1;
}

/* Makes a frame its answer; 0 if it is none of ours. */
static int answer(const struct responder *responder, unsigned char *frame, uint32_t length)
{
    unsigned int type;
    int ours;
    if (length < HEADER)
        return 0;
    type = (unsigned int)frame[12] << 8 | frame[13];
    ours = type == EXPERIMENT ? memcmp(frame, responder->mac, 6) == 0
         : type == 0x0806     ? answer_arp(responder, frame, length)
         : type == 0x0800     ? answer_ping(responder, frame, length)
                              : 0;
    if (ours)
        turn_around(responder, frame);
    return ours;
}

static void serve(struct responder *responder, struct conic_queue *queue)
{
    struct conic_buf bufs[BURST];
    while (!stopped) {
        unsigned int answers = 0;
        int got = conic_rx_burst(queue, bufs, BURST);
        for (int index = 0; index < got; index++) {
            struct conic_buf buf = bufs[index];
            if (answer(responder, buf.data, buf.length)) {
                bufs[answers++] = buf;
            } else {
                responder->passed_by++;
                conic_buf_free(queue, &buf, 1);
            }
        }
        responder->answered += send_all(queue, bufs, answers);
        /* No longer than a tenth of a second, so that a signal is seen that comes just before the sleep. */
        if (got == 0)
            conic_wait(queue, 100000000);
    }
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"socket", required_argument, 0, 's'},
        {"network", required_argument, 0, 'n'},
        {"address", required_argument, 0, 'a'},
        {"help", no_argument, 0, 'h'},
        {0, 0, 0, 0},
    };
    struct responder responder = {.answered = 0};
    const char *socket = NULL, *network = NULL;
    struct conic_client *client;
    struct conic_info info;
    char more;

    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (option) {
        case 's': socket = optarg; break;
        case 'n': network = optarg; break;
        case 'a':
            if (sscanf(optarg, "%3u.%3u.%3u.%3u%c", &responder.ip[0], &responder.ip[1], &responder.ip[2], &responder.ip[3],
                       &more) != 4)
                errx(2, "an address is as 10.9.0.2, and not \"%s\"", optarg);
            break;
        case 'h': fputs(usage, stdout); return 0;
        default: fputs(usage, stderr); return 2;
        }
    }
    client = attach(socket, "responder", network, &info);
    memcpy(responder.mac, info.mac, 6);
    stop_on_signals();
    fputs("answering at ", stdout);
    print_mac(info.mac);
    puts("");
    fflush(stdout);
    serve(&responder, conic_get_queue(client, 0));
    printf("%lu answered, %lu passed by\n", responder.answered, responder.passed_by);
    conic_detach(client);
    return 0;
}
