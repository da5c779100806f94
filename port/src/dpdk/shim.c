// The calls of DPDK that a port needs. Its data path is inline functions in headers, which only C can call.

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BURST 32
// The longest frame of a port (MAX_FRAME) without its Ethernet header.
#define LONGEST (9600 - RTE_ETHER_HDR_LEN)
// What there is to receive from a device that is gone.
#define GONE UINT32_MAX

// One queue of a device: what was received and not yet taken, and what is to be sent.
struct conic_dpdk_queue {
	uint16_t port;
	uint16_t queue;
	uint16_t received;
	uint16_t taken;
	uint16_t filled;
	struct rte_mempool *pool;
	struct rte_mbuf *receive[BURST];
	struct rte_mbuf *transmit[BURST];
};

// The devices that have queues here.
static bool used[RTE_MAX_ETHPORTS];
// Those that were taken off their bus, or that the system asks back. A thread of DPDK's says so.
static atomic_bool gone[RTE_MAX_ETHPORTS];

static void hear(const char *device, enum rte_dev_event_type event, void *port)
{
	(void)device;
	// Nothing else is told by it.
	if (event == RTE_DEV_EVENT_REMOVE)
		atomic_store_explicit(&gone[(uintptr_t)port], true, memory_order_relaxed);
}

// Starts DPDK. It binds the calling thread to a core, which is undone: where the thread runs is not DPDK's to say.
int conic_dpdk_start(int count, char **arguments)
{
	cpu_set_t cores;
	int saved = pthread_getaffinity_np(pthread_self(), sizeof(cores), &cores);
	int result = rte_eal_init(count, arguments);
	if (saved == 0)
		pthread_setaffinity_np(pthread_self(), sizeof(cores), &cores);
	if (result < 0)
		return -rte_errno;
	// Where the system does not tell of devices that go, they are gone without a word.
	rte_dev_event_monitor_start();
	return 0;
}

// Finds or makes the device of this description; its port, or a negative error.
int conic_dpdk_find(const char *device)
{
	struct rte_dev_iterator iterator;
	uint16_t port;
	int result = rte_dev_probe(device);
	if (result < 0 && result != -EEXIST)
		return result;
	RTE_ETH_FOREACH_MATCHING_DEV(port, device, &iterator) {
		rte_eth_iterator_cleanup(&iterator);
		return port;
	}
	return -ENODEV;
}

// Makes buffers for a device with this many queues of this many slots, as the number-th pool of this process; negative where there is
// no memory.
int conic_dpdk_pool(unsigned number, uint16_t queues, uint16_t slots, struct rte_mempool **made)
{
	char name[RTE_MEMPOOL_NAMESIZE];
	snprintf(name, sizeof(name), "conic_%u", number);
	*made = rte_pktmbuf_pool_create(name, queues * (4 * (unsigned)slots + 4 * BURST), 0, 0,
			RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	return *made == NULL ? -rte_errno : 0;
}

void conic_dpdk_free(struct rte_mempool *pool)
{
	rte_mempool_free(pool);
}

// Stops a device and takes it away, so that another process may have it, or this one with other arguments. Then it has no buffers.
static void release(uint16_t port)
{
	struct rte_device *device = NULL;
	struct rte_eth_dev_info info;
	if (rte_eth_dev_info_get(port, &info) == 0)
		device = info.device;
	if (device != NULL)
		rte_dev_event_callback_unregister(rte_dev_name(device), hear, (void *)(uintptr_t)port);
	rte_eth_dev_stop(port);
	rte_eth_dev_close(port);
	if (device != NULL)
		rte_dev_remove(device);
}

// Configures and starts a device for packets of at most so many bytes; not 0 where it refuses, at whichever step.
static int configure(uint16_t port, uint16_t queues, uint16_t slots, uint32_t mtu, struct rte_mempool *pool)
{
	struct rte_eth_conf configuration;
	struct rte_eth_dev_info info;
	uint16_t queue, receive = slots, transmit = slots;
	int result = rte_eth_dev_info_get(port, &info);
	if (result < 0)
		return result;
	if (queues > info.max_rx_queues || queues > info.max_tx_queues)
		return -ERANGE;
	memset(&configuration, 0, sizeof(configuration));
	if (queues > 1) {
		configuration.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		configuration.rx_adv_conf.rss_conf.rss_hf = info.flow_type_rss_offloads;
	}
	configuration.rxmode.offloads = info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER;
	mtu = RTE_MIN(mtu, info.max_mtu);
	if (info.max_rx_pktlen > RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN)
		mtu = RTE_MIN(mtu, info.max_rx_pktlen - RTE_ETHER_HDR_LEN - RTE_ETHER_CRC_LEN);
	configuration.rxmode.mtu = mtu;
	configuration.txmode.offloads = info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	result = rte_eth_dev_configure(port, queues, queues, &configuration);
	if (result == 0)
		result = rte_eth_dev_adjust_nb_rx_tx_desc(port, &receive, &transmit);
	for (queue = 0; result == 0 && queue < queues; queue++) {
		result = rte_eth_rx_queue_setup(port, queue, receive, rte_eth_dev_socket_id(port), NULL, pool);
		if (result == 0)
			result = rte_eth_tx_queue_setup(port, queue, transmit, rte_eth_dev_socket_id(port), NULL);
	}
	if (result == 0)
		result = rte_eth_dev_start(port);
	// Some devices have no such mode, and take everything.
	if (result == 0)
		rte_eth_promiscuous_enable(port);
	return result;
}

// Hears of it when a device goes.
static void watch(uint16_t port)
{
	struct rte_eth_dev_info info;
	atomic_store_explicit(&gone[port], false, memory_order_relaxed);
	if (rte_eth_dev_info_get(port, &info) == 0)
		rte_dev_event_callback_register(rte_dev_name(info.device), hear, (void *)(uintptr_t)port);
}

// Configures and starts a device with this many queues of this many slots, whose buffers are the pool's, which is not freed before.
// Negative where it refuses, and is released; 1 where it has queues here already, which it keeps.
int conic_dpdk_configure(uint16_t port, uint16_t queues, uint16_t slots, struct rte_mempool *pool,
		struct conic_dpdk_queue **made)
{
	uint16_t queue;
	int result;
	if (used[port])
		return 1;
	result = configure(port, queues, slots, LONGEST, pool);
	// Some say that they take longer packets than they do with buffers of this size.
	if (result != 0)
		result = configure(port, queues, slots, RTE_ETHER_MTU, pool);
	for (queue = 0; result == 0 && queue < queues; queue++) {
		made[queue] = calloc(1, sizeof(**made));
		if (made[queue] == NULL) {
			result = -ENOMEM;
			break;
		}
		made[queue]->port = port;
		made[queue]->queue = queue;
		made[queue]->pool = pool;
	}
	if (result == 0) {
		used[port] = true;
		watch(port);
		return 0;
	}
	for (queue = 0; queue < queues; queue++)
		free(made[queue]);
	release(port);
	return result;
}

// Sends what is filled; how many frames are left.
uint16_t conic_dpdk_flush(struct conic_dpdk_queue *queue)
{
	uint16_t sent = rte_eth_tx_burst(queue->port, queue->queue, queue->transmit, queue->filled);
	memmove(queue->transmit, queue->transmit + sent, (queue->filled - sent) * sizeof(queue->transmit[0]));
	queue->filled -= sent;
	return queue->filled;
}

// The length of the next frame, whose bytes are copied if there is room for all; 0 where there is none, GONE where none will come.
uint32_t conic_dpdk_receive(struct conic_dpdk_queue *queue, uint8_t *frame, uint32_t room)
{
	struct rte_mbuf *packet, *piece;
	uint32_t length, at = 0;
	if (queue->taken == queue->received) {
		// It orders nothing: sooner or later it is seen.
		if (atomic_load_explicit(&gone[queue->port], memory_order_relaxed))
			return GONE;
		// What a full ring did not take leaves now: nobody may send a frame for long.
		if (queue->filled > 0)
			conic_dpdk_flush(queue);
		queue->taken = 0;
		queue->received = rte_eth_rx_burst(queue->port, queue->queue, queue->receive, BURST);
		if (queue->received == 0)
			return 0;
	}
	packet = queue->receive[queue->taken++];
	length = rte_pktmbuf_pkt_len(packet);
	if (length <= room)
		for (piece = packet; piece != NULL; piece = piece->next) {
			memcpy(frame + at, rte_pktmbuf_mtod(piece, void *), rte_pktmbuf_data_len(piece));
			at += rte_pktmbuf_data_len(piece);
		}
	rte_pktmbuf_free(packet);
	return length;
}

// Takes a copy of a frame: 1, or 0 where there is no room now.
int conic_dpdk_transmit(struct conic_dpdk_queue *queue, const uint8_t *frame, uint32_t length)
{
	struct rte_mbuf *packet, *piece;
	if (queue->filled == BURST && conic_dpdk_flush(queue) == BURST)
		return 0;
	packet = piece = rte_pktmbuf_alloc(queue->pool);
	while (piece != NULL) {
		uint16_t part = RTE_MIN(length, (uint32_t)rte_pktmbuf_tailroom(piece));
		memcpy(rte_pktmbuf_mtod(piece, void *), frame, part);
		piece->data_len = part;
		packet->pkt_len += part;
		frame += part;
		length -= part;
		if (length == 0) {
			queue->transmit[queue->filled++] = packet;
			return 1;
		}
		piece->next = rte_pktmbuf_alloc(queue->pool);
		piece = piece->next;
		packet->nb_segs++;
	}
	// Out of buffers: with segments counted only as far as they are there.
	if (packet != NULL) {
		packet->nb_segs--;
		rte_pktmbuf_free(packet);
	}
	return 0;
}

int conic_dpdk_link(const struct conic_dpdk_queue *queue)
{
	struct rte_eth_link link;
	return rte_eth_link_get_nowait(queue->port, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

// Received, sent, missed, receive errors, transmit errors, no buffer.
int conic_dpdk_statistics(const struct conic_dpdk_queue *queue, uint64_t values[6])
{
	struct rte_eth_stats statistics;
	if (rte_eth_stats_get(queue->port, &statistics) != 0)
		return -1;
	values[0] = statistics.ipackets;
	values[1] = statistics.opackets;
	values[2] = statistics.imissed;
	values[3] = statistics.ierrors;
	values[4] = statistics.oerrors;
	values[5] = statistics.rx_nombuf;
	return 0;
}

// The driver of the queue's device, its address, and whether it takes frames for others; negative where the device does not say.
int conic_dpdk_identity(const struct conic_dpdk_queue *queue, const char **driver, uint8_t address[6])
{
	struct rte_eth_dev_info info;
	struct rte_ether_addr own;
	int result = rte_eth_dev_info_get(queue->port, &info);
	if (result == 0)
		result = rte_eth_macaddr_get(queue->port, &own);
	if (result != 0)
		return result;
	*driver = info.driver_name;
	memcpy(address, own.addr_bytes, sizeof(own.addr_bytes));
	return rte_eth_promiscuous_get(queue->port);
}

// Frees a queue.
void conic_dpdk_close(struct conic_dpdk_queue *queue)
{
	rte_pktmbuf_free_bulk(queue->receive + queue->taken, queue->received - queue->taken);
	rte_pktmbuf_free_bulk(queue->transmit, queue->filled);
	free(queue);
}

// Releases a device whose queues are all freed. Its buffers are not.
void conic_dpdk_release(uint16_t port)
{
	release(port);
	used[port] = false;
}

const char *conic_dpdk_error(int error)
{
	return rte_strerror(-error);
}
