/* Sends numbered frames at a rate, and says which came back: from a daemon in loopback mode, or from responder.c. */
#include "example.h"

#include <getopt.h>
#include <stdint.h>

#define BURST 32
#define WINDOW 32

struct sender {
    struct conic_queue *queue;
    unsigned char to[6], from[6];
    unsigned long count, rate, size;
    unsigned long sent, received, other;
    double least, sum;
};

static const char usage[] =
    "usage: sender [--socket PATH] [--network NAME] [--to MAC] [--count FRAMES] [--rate FRAMES/S] [--size BYTES]\n"
    "Sends frames of type 0x88b5 with a number and the time in them, and says how many came back, and when.\n"
    "Without --to they go to the program's own address, as a daemon in loopback mode has it. --rate 0 is as fast as it goes.\n";

/* Writes a frame with its number and the time it was sent. */
static void fill(const struct sender *sender, unsigned char *frame, uint64_t number)
{
    double now = seconds();
    memcpy(frame, sender->to, 6);
    memcpy(frame + 6, sender->from, 6);
    frame[12] = EXPERIMENT >> 8;
    frame[13] = EXPERIMENT & 0xff;
    memcpy(frame + HEADER, &number, sizeof number);
    memcpy(frame + HEADER + sizeof number, &now, sizeof now);
    memset(frame + HEADER + 16, (int)(number & 0xff), sender->size - HEADER - 16);
}

static void send_some(struct sender *sender, unsigned int most)
{
    struct conic_buf bufs[BURST];
    int got = conic_buf_alloc(sender->queue, (uint32_t)sender->size, bufs, most);
    int sent;
    for (int index = 0; index < got; index++)
        fill(sender, bufs[index].data, sender->sent + (unsigned long)index);
    sent = conic_tx_burst(sender->queue, bufs, got > 0 ? (unsigned int)got : 0);
    if (sent < 0)
        errx(1, "sending: %s", conic_strerror(sent));
    /* What was not taken is not counted, and is written anew next time. */
    conic_buf_free(sender->queue, bufs + sent, (unsigned int)(got - sent));
    sender->sent += (unsigned long)sent;
}

static int receive_some(struct sender *sender)
{
    struct conic_buf bufs[BURST];
    int got = conic_rx_burst(sender->queue, bufs, BURST);
    for (int index = 0; index < got; index++) {
        const unsigned char *frame = bufs[index].data;
        double then;
        if (bufs[index].length < HEADER + 16 || frame[12] != EXPERIMENT >> 8 || frame[13] != (EXPERIMENT & 0xff)) {
            sender->other++;
            continue;
        }
        memcpy(&then, frame + HEADER + 8, sizeof then);
        then = seconds() - then;
        sender->sum += then;
        sender->least = sender->received++ == 0 || then < sender->least ? then : sender->least;
    }
    conic_buf_free(sender->queue, bufs, (unsigned int)got);
    return got;
}

/* How many frames are due now. */
static unsigned int due(const struct sender *sender, double elapsed)
{
    double wanted = sender->rate == 0 ? (double)sender->count : elapsed * (double)sender->rate + 1;
    double left = (wanted < (double)sender->count ? wanted : (double)sender->count) - (double)sender->sent;
    /* As fast as it goes is as fast as they come back: no more are on their way than there are buffers for. */
    double room = WINDOW - ((double)sender->sent - (double)sender->received);
    left = left < room || sender->rate != 0 ? left : room;
    return left < 1 ? 0 : left > BURST ? BURST : (unsigned int)left;
}

static void run(struct sender *sender)
{
    double begun = seconds(), last = begun;
    while (!stopped && sender->received < sender->count) {
        double now = seconds();
        unsigned int some = due(sender, now - begun);
        unsigned long before = sender->sent;
        if (some > 0)
            send_some(sender, some);
        if (receive_some(sender) > 0 || sender->sent > before)
            last = now;
        /* A second without anything is the end, unless no frame is due yet. */
        if (now - last > 1 && (sender->sent == sender->count || some > 0 || sender->rate == 0))
            break;
    }
    printf("%lu sent, %lu came back, %lu did not, %lu others\n", sender->sent, sender->received,
           sender->sent > sender->received ? sender->sent - sender->received : 0, sender->other);
    if (sender->received == 0)
        printf("The daemon sends frames back in loopback mode (conic nic --mode loopback), a responder with --to ITS-ADDRESS.\n");
    else
        printf("%.1f us at least, %.1f us on average, %.0f frames/s\n", sender->least * 1e6,
               sender->sum / (double)sender->received * 1e6, (double)sender->received / (last - begun));
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"socket", required_argument, 0, 's'}, {"network", required_argument, 0, 'n'}, {"to", required_argument, 0, 't'},
        {"count", required_argument, 0, 'c'},  {"rate", required_argument, 0, 'r'},    {"size", required_argument, 0, 'z'},
        {"help", no_argument, 0, 'h'},         {0, 0, 0, 0},
    };
    struct sender sender = {.count = 1000, .rate = 10000, .size = 64};
    const char *socket = NULL, *network = NULL, *to = NULL;
    struct conic_client *client;
    struct conic_info info;

    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (option) {
        case 's': socket = optarg; break;
        case 'n': network = optarg; break;
        case 't': to = optarg; break;
        case 'c': sender.count = number_of(optarg, "--count"); break;
        case 'r': sender.rate = number_of(optarg, "--rate"); break;
        case 'z': sender.size = number_of(optarg, "--size"); break;
        case 'h': fputs(usage, stdout); return 0;
        default: fputs(usage, stderr); return 2;
        }
    }
    if (sender.size < HEADER + 16 || sender.size > 9600)
        errx(2, "--size is 30 to 9600, and not %lu", sender.size);
    client = attach(socket, "sender", network, &info);
    sender.queue = conic_get_queue(client, 0);
    memcpy(sender.from, info.mac, 6);
    memcpy(sender.to, info.mac, 6);
    if (to != NULL)
        mac_of(to, sender.to);
    stop_on_signals();
    run(&sender);
    conic_detach(client);
    return sender.received == sender.count ? 0 : 1;
}
