/* The application's work and the network interface's work, the same for every peer. */
#include "loopback.h"

#include <stdio.h>
#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "histogram.h"
#include "payload.h"

/* Idle polls between two looks at the clock and at the flags. */
#define IDLE_POLLS 256u

struct application {
    const struct end *end;
    uint64_t next_sent, next_received; /* sequence numbers; their difference is in flight */
    uint64_t received, lost, reordered, corrupted;
    struct rte_mbuf *unsent[MAX_BURST];
    unsigned unsent_count;
    struct histogram latencies;
};

static struct application application;

/* Allocates a burst and writes its payloads whole; the packets wait in `unsent`. One stamp a
 * burst, taken before the first payload is written. */
static void fill_burst(struct application *app, unsigned count)
{
    const unsigned size = app->end->options->packet_size;
    if (rte_pktmbuf_alloc_bulk(app->end->pool, app->unsent, count) != 0)
        return;
    const uint64_t stamp = rte_rdtsc();
    for (unsigned i = 0; i < count; i++) {
        struct rte_mbuf *packet = app->unsent[i];
        payload_write(rte_pktmbuf_mtod(packet, uint8_t *), size, stamp, app->next_sent + i);
        packet->data_len = (uint16_t)size;
        packet->pkt_len = size;
    }
    app->next_sent += count;
    app->unsent_count = count;
}

static inline void transmit(struct application *app)
{
    if (app->unsent_count == 0) {
        const struct options *options = app->end->options;
        uint64_t room = options->window - (app->next_sent - app->next_received);
        unsigned count = room < options->burst ? (unsigned)room : options->burst;
        if (count == 0)
            return;
        fill_burst(app, count);
        if (app->unsent_count == 0)
            return;
    }
    unsigned sent = rte_eth_tx_burst(app->end->port, 0, app->unsent, (uint16_t)app->unsent_count);
    app->unsent_count -= sent;
    for (unsigned i = 0; i < app->unsent_count && sent != 0; i++)
        app->unsent[i] = app->unsent[i + sent];
}

/* Order and loss, from the sequence number the packet carries. Returns the number to check the
 * pattern against. */
static inline uint64_t account(struct application *app, uint64_t sequence)
{
    if (__builtin_expect(sequence != app->next_received, 0)) {
        if (sequence < app->next_received) {
            app->reordered++;
            return sequence;
        }
        if (sequence >= app->next_sent) { /* never sent: the number itself is damaged */
            app->corrupted++;
            return app->next_received++;
        }
        app->lost += sequence - app->next_received;
    }
    app->next_received = sequence + 1;
    return sequence;
}

/* Reads the whole payload of each packet of one burst, then frees them. Returns their number. */
static inline unsigned receive(struct application *app)
{
    const struct options *options = app->end->options;
    struct rte_mbuf *packets[MAX_BURST];
    unsigned count = rte_eth_rx_burst(app->end->port, 0, packets, (uint16_t)options->burst);
    if (count == 0)
        return 0;
    for (unsigned i = 0; i < count; i++)
        rte_prefetch0(rte_pktmbuf_mtod(packets[i], void *));
    const uint64_t now = rte_rdtsc();
    for (unsigned i = 0; i < count; i++) {
        const uint8_t *payload = rte_pktmbuf_mtod(packets[i], const uint8_t *);
        if (__builtin_expect(packets[i]->pkt_len != options->packet_size ||
                             packets[i]->nb_segs != 1, 0)) {
            app->corrupted++;
            continue;
        }
        uint64_t sequence = account(app, payload_word(payload, 1));
        app->corrupted += payload_check(payload, options->packet_size, sequence) != 0;
        histogram_add(&app->latencies, now - payload_word(payload, 0));
    }
    rte_pktmbuf_free_bulk(packets, count);
    app->received += count;
    return count;
}

/* Keeps the window full until `deadline`; false when the end was told to terminate. */
static bool exchange_until(struct application *app, uint64_t deadline)
{
    unsigned idle = 0;
    while (!terminated) {
        transmit(app);
        if (receive(app) != 0 || ++idle == IDLE_POLLS) {
            idle = 0;
            if (rte_rdtsc() >= deadline)
                return true;
        }
    }
    return false;
}

/* Receives what is still in flight, for at most a fifth of a second. The rest is lost. */
static void drain(struct application *app)
{
    uint64_t deadline = rte_rdtsc() + rte_get_tsc_hz() / 5;
    while (app->next_received != app->next_sent && rte_rdtsc() < deadline && !terminated) {
        if (app->unsent_count != 0)
            transmit(app);
        receive(app);
    }
    app->lost += app->next_sent - app->next_received;
}

static void report(const struct application *app, struct result *result, uint64_t received,
                   uint64_t ticks, const struct histogram *latencies)
{
    const double ns = 1e9 / (double)rte_get_tsc_hz();
    result->received = received;
    result->lost = app->lost;
    result->reordered = app->reordered;
    result->corrupted = app->corrupted;
    result->duration_s = (double)ticks * ns * 1e-9;
    result->minimum_ns = latencies->count ? (double)latencies->minimum * ns : 0;
    result->p50_ns = histogram_quantile(latencies, 0.5) * ns;
    result->p99_ns = histogram_quantile(latencies, 0.99) * ns;
    result->p999_ns = histogram_quantile(latencies, 0.999) * ns;
}

int application_run(const struct end *end)
{
    static struct histogram measured;
    struct application *app = &application;
    const uint64_t per_ms = rte_get_tsc_hz() / 1000;
    app->end = end;
    histogram_clear(&app->latencies);
    bool whole = exchange_until(app, rte_rdtsc() + end->options->warmup_ms * per_ms);
    histogram_clear(&app->latencies);
    app->received = 0;
    const uint64_t start = rte_rdtsc();
    whole = whole && exchange_until(app, start + end->options->duration_ms * per_ms);
    const uint64_t ticks = rte_rdtsc() - start, received = app->received;
    measured = app->latencies; /* what the drain receives is not measured */
    drain(app);
    if (!whole)
        return EXIT_FAILED;
    report(app, &end->shared->result, received, ticks, &measured);
    if (received == 0) {
        fprintf(stderr, "loopback: no packet came back\n");
        return EXIT_FAILED;
    }
    return EXIT_DONE;
}

/* Replaces each packet by a copy in a fresh buffer. False when the pool is empty: then no packet
 * has changed. */
static inline bool copy_burst(const struct end *end, struct rte_mbuf **packets, unsigned count)
{
    struct rte_mbuf *fresh[MAX_BURST];
    if (rte_pktmbuf_alloc_bulk(end->pool, fresh, count) != 0)
        return false;
    for (unsigned i = 0; i < count; i++)
        rte_prefetch0(rte_pktmbuf_mtod(packets[i], void *));
    for (unsigned i = 0; i < count; i++) {
        unsigned size = packets[i]->pkt_len;
        payload_copy(rte_pktmbuf_mtod(fresh[i], uint8_t *),
                     rte_pktmbuf_mtod(packets[i], const uint8_t *), size);
        fresh[i]->data_len = (uint16_t)size;
        fresh[i]->pkt_len = size;
    }
    rte_pktmbuf_free_bulk(packets, count);
    for (unsigned i = 0; i < count; i++)
        packets[i] = fresh[i];
    return true;
}

/* Damages one packet in some thousands, to show that the application notices. Returns how many
 * packets of the burst remain. */
static unsigned inject_fault(enum fault fault, struct rte_mbuf **packets, unsigned count)
{
    static uint64_t seen;
    seen += count;
    if (seen < 5000)
        return count;
    seen = 0;
    if (fault == FAULT_CRASH)
        raise(SIGKILL);
    if (fault == FAULT_CORRUPT)
        rte_pktmbuf_mtod(packets[count - 1], uint8_t *)[packets[count - 1]->data_len - 1] ^= 1;
    if (fault == FAULT_DROP)
        rte_pktmbuf_free(packets[--count]);
    return count;
}

static inline bool stopped(const struct end *end)
{
    /* Relaxed: nothing else is read on the strength of this flag. */
    return terminated || atomic_load_explicit(&end->shared->stop, memory_order_relaxed);
}

int nic_run(const struct end *end)
{
    const struct options *options = end->options;
    const bool copies = options->variant->nic_copies;
    struct rte_mbuf *packets[MAX_BURST];
    unsigned idle = 0;
    while (!terminated) {
        unsigned count = rte_eth_rx_burst(end->port, 0, packets, (uint16_t)options->nic_burst);
        if (count == 0) {
            if (++idle % IDLE_POLLS == 0 && stopped(end))
                break;
            continue;
        }
        while (copies && !copy_burst(end, packets, count) && !stopped(end))
            ;
        if (__builtin_expect(options->fault != FAULT_NONE, 0))
            count = inject_fault(options->fault, packets, count);
        unsigned sent = 0;
        while (sent < count && !terminated) {
            sent += rte_eth_tx_burst(end->port, 0, packets + sent, (uint16_t)(count - sent));
            if (sent < count && stopped(end))
                break;
        }
    }
    return EXIT_DONE;
}
