/* The environment of DPDK and the port of each peer. Public API only. */
#define _GNU_SOURCE
#include "loopback.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <rte_cycles.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#define POOL_CACHE 512u

const struct variant variants[] = {
    {PEER_MEMIF, "application-server", "role=server", "role=client", .application_listens = true,
     .ring_size = 256},
    {PEER_MEMIF, "application-client", "role=client", "role=server", .ring_size = 256},
    {PEER_MEMIF_ZERO_COPY, "application-client", "role=client,zero-copy=yes", "role=server",
     .ring_size = 256},
    {PEER_MEMIF_ZERO_COPY, "nic-client", "role=server", "role=client,zero-copy=yes",
     .nic_copies = true, .application_listens = true, .ring_size = 256},
    {PEER_VHOST, "split-vectorized", "mrg_rxbuf=0,in_order=0,vectorized=1", "", .ring_size = 256},
    {PEER_VHOST, "split-in-order", "mrg_rxbuf=0,in_order=1", "", .ring_size = 256},
    {PEER_VHOST, "split-mergeable", "mrg_rxbuf=1,in_order=0", "", .ring_size = 256},
    {PEER_VHOST_PACKED, "packed-vectorized", "packed_vq=1,mrg_rxbuf=0,in_order=1,vectorized=1", "",
     .needs_avx512 = true, .ring_size = 256},
    {PEER_VHOST_PACKED, "packed-in-order", "packed_vq=1,mrg_rxbuf=0,in_order=1", "",
     .ring_size = 256},
    {PEER_VHOST_PACKED, "packed", "packed_vq=1,mrg_rxbuf=0,in_order=0", "", .ring_size = 256},
    {PEER_RING, "one-pool", "", "", .nic_copies = true, .ring_size = 1024},
};
const unsigned variant_count = sizeof variants / sizeof variants[0];

const char *peer_name(enum peer_kind peer)
{
    static const char *const names[] = {"memif", "memif-zero-copy", "vhost-user",
                                        "vhost-user-packed", "ring"};
    return names[peer];
}

static int fail(const char *what, int error)
{
    fprintf(stderr, "loopback: %s: %s\n", what, rte_strerror(error < 0 ? -error : error));
    return EXIT_FAILED;
}

static int environment_start(const struct options *options, bool is_nic, bool huge_pages)
{
    char cores[32], prefix[48];
    unsigned own = is_nic ? options->nic_core : options->application_core;
    if (options->peer == PEER_RING)
        snprintf(cores, sizeof cores, "%u,%u", own, options->nic_core);
    else
        snprintf(cores, sizeof cores, "%u", own);
    snprintf(prefix, sizeof prefix, "conic-peers-%ld", (long)getpid());
    char main_core[16];
    snprintf(main_core, sizeof main_core, "%u", own);
    char *arguments[32] = {"loopback", "-l", cores, "--main-lcore", main_core, "--file-prefix", prefix,
                           "--no-pci", "--no-telemetry", "--iova-mode=va",
                           "--single-file-segments", "--force-max-simd-bitwidth=512",
                           "--log-level=error"};
    int count = 13;
    if (huge_pages) {
        /* In memory: no file in a hugetlbfs, nothing to leave behind. */
        arguments[count++] = "--in-memory";
    } else {
        arguments[count++] = "--no-huge";
        arguments[count++] = "--no-shconf";
        arguments[count++] = "-m";
        arguments[count++] = "192";
    }
    if (rte_eal_init(count, arguments) >= 0)
        return EXIT_DONE;
    fprintf(stderr, "loopback: DPDK's environment does not start (%s pages): %s\n",
            huge_pages ? "huge" : "plain", rte_strerror(rte_errno));
    return EXIT_ENVIRONMENT;
}

struct driver_search { const char *name; char path[512]; };

static int match_driver(struct dl_phdr_info *info, size_t size, void *data)
{
    struct driver_search *search = data;
    (void)size;
    if (info->dlpi_name == NULL || strstr(info->dlpi_name, search->name) == NULL)
        return 0;
    snprintf(search->path, sizeof search->path, "%s", info->dlpi_name);
    return 1;
}

/* Whether DPDK has loaded the driver, a plugin; if so its path. Says what is missing if not. */
static bool driver_loaded(const char *name, char *path, size_t size)
{
    struct driver_search search = {.name = name};
    if (dl_iterate_phdr(match_driver, &search) == 0) {
        fprintf(stderr, "loopback: DPDK's driver %s is missing (Debian and Ubuntu: package dpdk, "
                        "or librte-* for this driver)\n", name);
        return false;
    }
    if (path != NULL)
        snprintf(path, size, "%s", search.path);
    return true;
}

static struct rte_mempool *pool_create(const struct options *options)
{
    /* virtio wants room for the largest frame (CRC included) and its own header. */
    unsigned room = options->packet_size + 32 > RTE_MBUF_DEFAULT_DATAROOM
                        ? (options->packet_size + 32 + 63) / 64 * 64 : RTE_MBUF_DEFAULT_DATAROOM;
    /* Both queues full, the window in flight, the caches of two cores, and bursts in hand. */
    unsigned least = 2 * options->ring_size + options->window + 4 * POOL_CACHE + 4 * MAX_BURST;
    unsigned count = 1023;
    while (count < least)
        count = 2 * count + 1;
    return rte_pktmbuf_pool_create("packets", count, POOL_CACHE, 0,
                                   (uint16_t)(room + RTE_PKTMBUF_HEADROOM), SOCKET_ID_ANY);
}

/* Adds the device of a two-process peer. */
static int device_add(const struct end *end, const char *directory, bool is_nic, uint16_t *port)
{
    const struct options *options = end->options;
    const struct variant *variant = options->variant;
    const char *extra = is_nic ? variant->nic : variant->application, *driver, *name;
    char arguments[512];
    if (options->peer == PEER_MEMIF || options->peer == PEER_MEMIF_ZERO_COPY) {
        unsigned log2_ring = 31u - (unsigned)__builtin_clz(options->ring_size);
        name = "net_memif0", driver = "librte_net_memif";
        snprintf(arguments, sizeof arguments,
                 "%s,id=0,socket=%s/socket,socket-abstract=no,rsize=%u,bsize=%u",
                 extra, directory, log2_ring, options->buffer_size);
    } else if (is_nic) {
        name = "net_vhost0", driver = "librte_net_vhost";
        snprintf(arguments, sizeof arguments, "iface=%s/socket,queues=1,client=0", directory);
    } else {
        name = "net_virtio_user0", driver = "librte_net_virtio";
        snprintf(arguments, sizeof arguments, "path=%s/socket,queues=1,queue_size=%u,%s",
                 directory, options->ring_size, extra);
    }
    if (!driver_loaded(driver, NULL, 0))
        return EXIT_MISSING;
    int error = rte_eal_hotplug_add("vdev", name, arguments);
    if (error == 0)
        error = rte_eth_dev_get_port_by_name(name, port);
    return error == 0 ? EXIT_DONE : fail(name, error);
}

/* Configures and starts a port with one queue each way. */
static int port_start(const struct end *end, uint16_t port)
{
    struct rte_eth_dev_info info;
    struct rte_eth_conf configuration = {0};
    uint16_t receive = (uint16_t)end->options->ring_size, transmit = receive;
    int error = rte_eth_dev_info_get(port, &info);
    if (error != 0)
        return fail("port information", error);
    configuration.txmode.offloads = info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
    if (end->options->packet_size > RTE_ETHER_MAX_LEN - RTE_ETHER_CRC_LEN)
        /* memif states a maximum of 1518 bytes but carries whatever its buffers hold. */
        configuration.rxmode.mtu = RTE_MIN(end->options->packet_size, info.max_rx_pktlen) -
                                   RTE_ETHER_HDR_LEN - RTE_ETHER_CRC_LEN;
    if ((error = rte_eth_dev_configure(port, 1, 1, &configuration)) != 0)
        return fail("port configuration", error);
    if ((error = rte_eth_dev_adjust_nb_rx_tx_desc(port, &receive, &transmit)) != 0)
        return fail("ring sizes", error);
    struct rte_eth_txconf transmit_configuration = info.default_txconf;
    transmit_configuration.offloads = configuration.txmode.offloads;
    if ((error = rte_eth_rx_queue_setup(port, 0, receive, SOCKET_ID_ANY, NULL, end->pool)) != 0)
        return fail("receive queue", error);
    if ((error = rte_eth_tx_queue_setup(port, 0, transmit, SOCKET_ID_ANY,
                                        &transmit_configuration)) != 0)
        return fail("transmit queue", error);
    if ((error = rte_eth_dev_start(port)) != 0)
        return fail("port start", error);
    return EXIT_DONE;
}

/* Waits until both ends have met, for at most ten seconds. */
static int link_wait(const struct end *end)
{
    for (unsigned tries = 0; tries < 10000 && !terminated; tries++) {
        struct rte_eth_link link = {0};
        if (rte_eth_link_get_nowait(end->port, &link) == 0 && link.link_status == RTE_ETH_LINK_UP)
            return EXIT_DONE;
        rte_delay_us_sleep(1000);
    }
    fprintf(stderr, "loopback: the two ends did not meet\n");
    return EXIT_FAILED;
}

/* Waits for the other end, for at most a second. */
static void await_flag(atomic_int *flag)
{
    for (unsigned tries = 0; tries < 1000 && !terminated && !atomic_load(flag); tries++)
        rte_delay_us_sleep(1000);
}

static int run_two_process_end(struct end *end, const char *directory, bool is_nic)
{
    int code = device_add(end, directory, is_nic, &end->port);
    if (code == EXIT_DONE)
        code = port_start(end, end->port);
    if (code != EXIT_DONE)
        return code;
    atomic_store(&end->shared->listening, 1);
    code = link_wait(end);
    if (code == EXIT_DONE)
        code = is_nic ? nic_run(end) : application_run(end);
    /* Neither end closes its port: memif's driver tears a connection down in its control thread
     * too, and the two teardowns free the same memory. Each end leaves its data path first, then
     * the processes end and the kernel takes everything back. */
    if (is_nic) {
        atomic_store(&end->shared->nic_done, 1);
        await_flag(&end->shared->application_done);
    } else {
        atomic_store(&end->shared->stop, 1);
        await_flag(&end->shared->nic_done);
        atomic_store(&end->shared->application_done, 1);
    }
    return code;
}

typedef int (*from_rings_t)(const char *name, struct rte_ring *const rx[], const unsigned rx_count,
                            struct rte_ring *const tx[], const unsigned tx_count,
                            const unsigned numa_node);

/* The driver is a plugin that the program is not linked with, so its one function is looked up. */
static from_rings_t find_from_rings(void)
{
    char path[512];
    if (!driver_loaded("librte_net_ring", path, sizeof path))
        return NULL;
    void *driver = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    from_rings_t function = NULL;
    if (driver != NULL)
        *(void **)&function = dlsym(driver, "rte_eth_from_rings");
    return function;
}

static int launch_nic(void *end)
{
    return nic_run(end);
}

/* Both ends in one process: two ports whose rings are crossed, and one pool, so that the buffer
 * the NIC frees is the one it fills next and no buffer goes through the pool's own ring. */
static int run_ring(struct end *end)
{
    from_rings_t from_rings = find_from_rings();
    if (from_rings == NULL)
        return EXIT_MISSING;
    unsigned flags = RING_F_SP_ENQ | RING_F_SC_DEQ, size = end->options->ring_size;
    struct rte_ring *out = rte_ring_create("out", size, SOCKET_ID_ANY, flags);
    struct rte_ring *back = rte_ring_create("back", size, SOCKET_ID_ANY, flags);
    if (out == NULL || back == NULL)
        return fail("rings", rte_errno);
    int application = from_rings("application", &back, 1, &out, 1, 0);
    int nic = from_rings("nic", &out, 1, &back, 1, 0);
    if (application < 0 || nic < 0)
        return fail("ring ports", rte_errno);
    struct end other = *end;
    end->port = (uint16_t)application;
    other.port = (uint16_t)nic;
    int code = port_start(end, end->port);
    if (code == EXIT_DONE)
        code = port_start(&other, other.port);
    if (code != EXIT_DONE)
        return code;
    if (rte_eal_remote_launch(launch_nic, &other, end->options->nic_core) != 0)
        return fail("NIC thread", EBUSY);
    code = application_run(end);
    atomic_store(&end->shared->stop, 1);
    rte_eal_mp_wait_lcore();
    return code;
}

int run_end(const struct options *options, struct shared *shared, const char *directory,
            bool is_nic, bool huge_pages)
{
    int code = environment_start(options, is_nic, huge_pages);
    if (code != EXIT_DONE)
        return code;
    struct end end = {.options = options, .shared = shared, .pool = pool_create(options)};
    if (end.pool == NULL)
        code = fail("packet pool", rte_errno);
    else if (options->peer == PEER_RING)
        code = run_ring(&end);
    else
        code = run_two_process_end(&end, directory, is_nic);
    return code;
}
