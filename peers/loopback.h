/* The loopback of `conic bench`, over DPDK's peers: what the files of this folder share.
 *
 * loopback.c  options, the supervisor of the two ends, the JSON object
 * peer.c      the environment of DPDK and the port of each peer
 * traffic.c   the application's work and the network interface's work
 * payload.h   what is written into a packet and checked in it
 * histogram.h latencies, log-linear */
#ifndef CONIC_PEERS_LOOPBACK_H
#define CONIC_PEERS_LOOPBACK_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct rte_mempool;

#define MAX_BURST 256u
#define MAX_WINDOW 4096u
#define MIN_PACKET 60u
#define MAX_PACKET 9600u

/* Exit codes of the program and of its two ends. EXIT_ENVIRONMENT never leaves the supervisor
 * when plain pages are still to be tried. */
enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_MISSING = 2, EXIT_ENVIRONMENT = 3, EXIT_USE = 64 };

enum peer_kind { PEER_MEMIF, PEER_MEMIF_ZERO_COPY, PEER_VHOST, PEER_VHOST_PACKED, PEER_RING };

/* One way to set a peer up. The first of a peer's variants is its fastest and the default. */
struct variant {
    enum peer_kind peer;
    const char *name;
    const char *application; /* device arguments of the application's end, after the socket */
    const char *nic;         /* device arguments of the network interface's end */
    bool nic_copies;         /* the NIC loop must copy, for the driver hands over the sender's buffer */
    bool needs_avx512;
    bool application_listens; /* so the application's end must start first */
    unsigned ring_size;      /* descriptors a queue, unless --ring-size says otherwise */
};

enum fault { FAULT_NONE, FAULT_DROP, FAULT_CORRUPT, FAULT_CRASH };
enum huge { HUGE_AUTO, HUGE_YES, HUGE_NO };

struct options {
    const char *peer_name;
    enum peer_kind peer;
    const struct variant *variant;
    unsigned packet_size; /* bytes */
    unsigned window;      /* packets in flight at most */
    unsigned burst, nic_burst;
    unsigned ring_size;
    unsigned buffer_size; /* memif's shared buffers, bytes */
    unsigned duration_ms, warmup_ms;
    unsigned application_core, nic_core;
    enum fault fault;
    enum huge huge;
};

struct result {
    uint64_t received; /* in the measured interval */
    uint64_t lost, reordered, corrupted; /* in the whole run, warm-up included */
    double duration_s;
    double minimum_ns, p50_ns, p99_ns, p999_ns;
};

/* Shared by the supervisor and both ends: flags, and the result of the application. */
struct shared {
    atomic_int listening; /* the end that starts first can be connected to */
    atomic_int stop; /* tells the NIC that the application has finished */
    atomic_int nic_done, application_done; /* each end has left its data path */
    struct result result;
};

/* One end: a port and the pool that its buffers come from. */
struct end {
    const struct options *options;
    struct shared *shared;
    struct rte_mempool *pool;
    uint16_t port;
};

/* Set by SIGTERM in an end. */
extern volatile sig_atomic_t terminated;

/* peer.c */
extern const struct variant variants[];
extern const unsigned variant_count;
const char *peer_name(enum peer_kind peer);
/* Runs one end to its completion inside its own process; returns an exit code. For the ring peer
 * the application's end runs both. */
int run_end(const struct options *options, struct shared *shared, const char *directory,
            bool is_nic, bool huge_pages);

/* traffic.c */
int application_run(const struct end *end);
int nic_run(const struct end *end);

#endif
