/* Forwards frames between two networks of a daemon, without touching what is in them. */
#include "example.h"

#include <getopt.h>
#include <poll.h>

#define BURST 32

/* One side: a client on one network. */
struct side {
    struct conic_client *client;
    struct conic_queue *queue;
    struct conic_info info;
    /* Where frames that leave on this side go; all zeros leaves the address as it is. */
    unsigned char to[6];
    unsigned long forwarded, lost;
};

static const char usage[] =
    "usage: forwarder --from NETWORK --to NETWORK [--socket PATH] [--from-mac MAC] [--to-mac MAC]\n"
    "Frames that arrive on one network leave on the other, in both directions, until interrupted. Their source becomes the\n"
    "forwarder's address there, which is what a network lets it send from; --from-mac and --to-mac are the addresses that\n"
    "frames are sent to on either network, as a router's next hops are.\n";

/* Copies what arrived at one side into buffers of the other: the two share no memory. */
static int forward(struct side *from, struct side *to)
{
    static const unsigned char nowhere[6];
    struct conic_buf in[BURST], out[BURST];
    int got = conic_rx_burst(from->queue, in, BURST);
    unsigned int ready = 0, sent;
    for (int index = 0; index < got; index++) {
        unsigned char *frame;
        if (in[index].length < HEADER || conic_buf_alloc(to->queue, in[index].length, &out[ready], 1) != 1) {
            to->lost++;
            continue;
        }
        frame = out[ready++].data;
        memcpy(frame, in[index].data, in[index].length);
        memcpy(frame + 6, to->info.mac, 6);
        if (memcmp(to->to, nowhere, 6) != 0)
            memcpy(frame, to->to, 6);
    }
    conic_buf_free(from->queue, in, (unsigned int)got);
    sent = send_all(to->queue, out, ready);
    to->forwarded += sent;
    to->lost += ready - sent;
    return got;
}

/* Sleeps until there is something for one of the two, or for a tenth of a second: so that a signal is seen that comes just
   before the sleep. */
static void sleep_on_both(struct side *a, struct side *b)
{
    struct pollfd waited[] = {{conic_get_fd(a->queue), POLLIN, 0}, {conic_get_fd(b->queue), POLLIN, 0}};
    if (conic_arm(a->queue) == 0 && conic_arm(b->queue) == 0)
        poll(waited, 2, 100);
    conic_disarm(a->queue);
    conic_disarm(b->queue);
}

static void join(struct side *side, const char *socket, const char *network)
{
    side->client = attach(socket, "forwarder", network, &side->info);
    side->queue = conic_get_queue(side->client, 0);
    printf("%s: ", network);
    print_mac(side->info.mac);
    puts("");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"socket", required_argument, 0, 's'},   {"from", required_argument, 0, 'f'},   {"to", required_argument, 0, 't'},
        {"from-mac", required_argument, 0, 'F'}, {"to-mac", required_argument, 0, 'T'}, {"help", no_argument, 0, 'h'},
        {0, 0, 0, 0},
    };
    struct side a = {.forwarded = 0}, b = {.forwarded = 0};
    const char *socket = NULL, *from = NULL, *to = NULL;

    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (option) {
        case 's': socket = optarg; break;
        case 'f': from = optarg; break;
        case 't': to = optarg; break;
        case 'F': mac_of(optarg, a.to); break;
        case 'T': mac_of(optarg, b.to); break;
        case 'h': fputs(usage, stdout); return 0;
        default: fputs(usage, stderr); return 2;
        }
    }
    if (from == NULL || to == NULL)
        errx(2, "say the two networks: --from NAME --to NAME");
    join(&a, socket, from);
    join(&b, socket, to);
    stop_on_signals();
    while (!stopped) {
        int got = forward(&a, &b) + forward(&b, &a);
        if (got == 0)
            sleep_on_both(&a, &b);
    }
    printf("%lu forwarded and %lu lost to %s, %lu forwarded and %lu lost to %s\n", b.forwarded, b.lost, to, a.forwarded, a.lost,
           from);
    conic_detach(a.client);
    conic_detach(b.client);
    return 0;
}
