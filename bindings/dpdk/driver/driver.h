/* The driver's own structures. */
#ifndef DRIVER_H
#define DRIVER_H

#include <ethdev_driver.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_spinlock.h>
#include <rte_version.h>

#include "port.h"

/* The name of the mempool operations that place mbufs in shared memory. */
#define CONIC_POOL "conic"

#define CONIC_MOST_QUEUES 256
/* Packets that one call into the client library moves at most. */
#define CONIC_BURST 64
/* Mempools of a receive queue, chosen by a packet's length. */
#define CONIC_MOST_POOLS 4
/* What mbufs that lie in shared memory need before a packet's bytes: the mempool's header, the mbuf, the usual headroom. */
#define CONIC_HEADROOM (RTE_MEMPOOL_HEADER_BYTES + sizeof(struct rte_mbuf) + RTE_PKTMBUF_HEADROOM)
#define RTE_MEMPOOL_HEADER_BYTES 64
/* Lines by which successive mbufs are apart, beside their buffers' size, so that they do not meet in one set of a cache. */
#define CONIC_PLACES 16

/* Bytes of the key of the NIC's hash, and entries of its table from hashes to queues: entry `i` is queue `i` modulo their number. */
#define CONIC_HASH_KEY_BYTES 40
#define CONIC_INDIRECTIONS RTE_ETH_RSS_RETA_SIZE_512
/* What is hashed. */
#define CONIC_HASHED (RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP)

/* What a sent packet's flags may ask for. */
#define CONIC_CHECKSUMS (RTE_MBUF_F_TX_IP_CKSUM | RTE_MBUF_F_TX_L4_MASK)
#define CONIC_REQUESTS (CONIC_CHECKSUMS | RTE_MBUF_F_TX_VLAN | RTE_MBUF_F_TX_TCP_SEG)

/* What a received packet is looked into for. */
#define CONIC_WISHES (RTE_ETH_RX_OFFLOAD_CHECKSUM | RTE_ETH_RX_OFFLOAD_RSS_HASH | RTE_ETH_RX_OFFLOAD_VLAN_STRIP)

/* The longest frame, and the longest packet that the NIC cuts: IP's longest, behind an Ethernet header. */
#define CONIC_LONGEST 9600
#define CONIC_LONGEST_LARGE ((uint32_t)UINT16_MAX + RTE_ETHER_HDR_LEN)

/* Base-two logarithm of a large buffer's bytes. */
#define CONIC_LARGE_SHIFT 12

extern int conic_log;
#define CONIC_LOG(level, ...) rte_log(RTE_LOG_##level, conic_log, "net_conic: " __VA_ARGS__)

struct device;

/* A region of shared memory. It is never unmapped while mbufs lie in it or point to it. */
struct region {
	struct region *next;
	/* None once it was unmapped: then its layout has no bytes, and this is for another. */
	struct conic_memory *memory;
	/* The device whose queues may be in it; none once that was closed, or its queues have moved on. */
	const struct device *device;
	/* Mbufs elsewhere that point to it. */
	uint32_t attached;
	struct conic_layout layout;
	/* Whether large buffers are for mbufs. */
	bool for_mbufs;
	/* A byte for each large buffer: whether it was taken out of the pool, and is nobody's until there is an mbuf in it. */
	uint8_t *taken;
	/* The mempool whose mbufs lie here, how many, where data begin in each, and how many bytes have room there. */
	const struct rte_mempool *owner;
	uint32_t mbufs;
	uint32_t placed_room;
	uint32_t placed_element;
	/* For buffers that mbufs elsewhere point to, one each, in private memory: large, then jumbo. */
	struct rte_mbuf_ext_shared_info *shared;
};

struct receive_counters {
	uint64_t packets;
	uint64_t bytes;
	uint64_t direct;
	uint64_t attached;
	uint64_t copied;
	uint64_t no_mbuf;
	uint64_t too_long;
	uint64_t bad;
};

struct transmit_counters {
	uint64_t packets;
	uint64_t bytes;
	uint64_t direct;
	uint64_t chained;
	uint64_t copied;
	uint64_t no_buffer;
	uint64_t bad;
};

struct receive_queue {
	struct conic_half *half;
	struct region *region;
	/* What an mbuf is rearmed with. */
	uint64_t rearm;
	/* Bytes from an mbuf to a packet's first byte. */
	uint32_t back;
	/* The most bytes of a packet for which an mbuf of the region needs no change. */
	uint32_t room;
	/* From this many bytes on a packet in no mbuf of the queue's mempools is pointed to rather than copied. */
	uint32_t attach_from;
	/* Where those are; none where the region's mbufs are another mempool's. */
	struct conic_class mbufs;
	uint8_t *base;
	uint32_t idle;
	/* Of `packets`, where joined packets are received: how many there are, and how many of them are the application's. */
	uint32_t held;
	uint32_t taken;
	uint16_t index;
	uint16_t pool_count;
	bool scatter;
	/* Offloads that look into each packet. */
	uint64_t wishes;
	/* What the application waits for, and of it what the driver rings; both 0 where there are no interrupts. */
	int interrupt;
	int own_bell;
	/* The region whose bell is waited for. */
	const struct region *bell_of;
	struct rte_mempool *pools[CONIC_MOST_POOLS];
	uint16_t pool_rooms[CONIC_MOST_POOLS];
	struct device *device;
	/* Which of the application's queues it is received by, the next that is, and, of the application's, whose turn it is. */
	struct receive_queue *first;
	struct receive_queue *next;
	struct receive_queue *turn;
	struct receive_counters counters;
	struct conic_packet packets[CONIC_BURST];
} __rte_cache_aligned;

struct transmit_queue {
	struct conic_half *half;
	struct region *region;
	uint8_t *base;
	struct conic_class mbufs;
	uint32_t longest;
	/* The same of packets that the NIC cuts. */
	uint32_t longest_large;
	/* Bytes that one buffer has room for at most. */
	uint32_t largest;
	uint16_t index;
	struct device *device;
	struct transmit_counters counters;
	struct conic_packet packets[CONIC_BURST];
	uint64_t buffers[CONIC_BURST];
} __rte_cache_aligned;

/* What only grows, as it stood when the counters were set back. */
struct baseline {
	uint64_t reconnects;
	uint64_t ring;
	uint64_t refused;
};

/* A device; `dev_private` of its ethdev. */
struct device {
	struct rte_eth_dev *dev;
	struct conic_port *port;
	struct rte_ether_addr mac;
	uint32_t queues;
	uint32_t descriptors;
	/* From this many bytes on a packet is pointed to rather than copied. */
	uint32_t attach_from;
	bool zero_copy;
	/* Whether the NIC joins TCP packets, and to how many bytes at most. */
	bool joins;
	uint32_t longest_joined;
	uint64_t reconnects;
	uint64_t link_downs;
	struct baseline baseline;
	/* Whether the link was up when it was watched last, and after how many reconnections. */
	bool was_up;
	uint64_t watched_reconnects;
	struct conic_half *senders[CONIC_MOST_QUEUES];
	struct conic_half *receivers[CONIC_MOST_QUEUES];
	struct receive_queue *receive[CONIC_MOST_QUEUES];
	struct transmit_queue *transmit[CONIC_MOST_QUEUES];
};

/* device.c */
int conic_link_update(struct rte_eth_dev *dev, int wait);
void conic_watch_link(void *device);

/* operations.c */
extern const struct eth_dev_ops conic_operations;
void conic_close_queues(struct device *device);

/* receive.c */
uint16_t conic_receive(void *queue, struct rte_mbuf **mbufs, uint16_t most);
struct rte_mbuf *conic_receive_segment(struct receive_queue *queue, const struct conic_packet *segment);
void conic_receive_idle(struct receive_queue *queue);
void conic_receive_follow(struct receive_queue *queue);
void conic_receive_discard(struct receive_queue *queue);

/* joined.c */
uint16_t conic_receive_joined(void *queue, struct rte_mbuf **mbufs, uint16_t most);

/* lanes.c */
int conic_lanes_join(struct rte_eth_dev *dev);
uint16_t conic_lane_of(const struct rte_eth_dev *dev, uint32_t entry);

/* transmit.c */
uint16_t conic_transmit(void *queue, struct rte_mbuf **mbufs, uint16_t count);
uint16_t conic_transmit_prepare(void *queue, struct rte_mbuf **mbufs, uint16_t count);
void conic_transmit_follow(struct transmit_queue *queue);

/* status.c */
void conic_status_install(struct rte_eth_dev *dev);
int conic_done_cleanup(void *queue, uint32_t most);
void conic_receive_information(struct rte_eth_dev *dev, uint16_t index, struct rte_eth_rxq_info *info);
void conic_transmit_information(struct rte_eth_dev *dev, uint16_t index, struct rte_eth_txq_info *info);

/* region.c */
struct region *conic_region_of(const struct device *device, const struct conic_half *half, bool for_mbufs);
void conic_region_follow(const struct device *device, const struct conic_half *half, struct region **place);
void conic_region_take_back(struct region *region);
void conic_region_clear(struct region *region);
void conic_regions_leave(const struct device *device);
void conic_regions_unmap(void);
void conic_region_give_up(struct region *region);
struct region *conic_regions(void);
uint32_t conic_region_longest(const struct region *region);
struct rte_mbuf_ext_shared_info *conic_region_share(struct region *region, uint64_t address);

/* offload.c */
extern const uint8_t conic_hash_key[CONIC_HASH_KEY_BYTES];
bool conic_offloads_are_known(uint64_t flags);
uint32_t conic_network_bytes(bool is_four, const void *network);
uint16_t conic_sum(const struct rte_mbuf *mbuf, uint32_t skip, uint32_t bytes, uint32_t sum);
bool conic_requests_prepare(const struct rte_mbuf *mbuf, uint8_t *bytes, uint32_t length, uint64_t *metadata);
void conic_examine(const struct receive_queue *queue, struct rte_mbuf *mbuf, uint64_t metadata);
int conic_vlan_offload(struct rte_eth_dev *dev, int mask);

/* interrupt.c */
int conic_interrupts_install(struct rte_eth_dev *dev);
void conic_interrupts_remove(struct rte_eth_dev *dev);
void conic_interrupts_ring(struct device *device);
void conic_interrupt_forget(struct receive_queue *queue);
int conic_interrupt_enable(struct rte_eth_dev *dev, uint16_t index);
int conic_interrupt_disable(struct rte_eth_dev *dev, uint16_t index);

/* hash.c */
int conic_hash_configure(struct rte_eth_dev *dev);
int conic_hash_update(struct rte_eth_dev *dev, struct rte_eth_rss_conf *conf);
int conic_hash_get(struct rte_eth_dev *dev, struct rte_eth_rss_conf *conf);
int conic_table_update(struct rte_eth_dev *dev, struct rte_eth_rss_reta_entry64 *table, uint16_t size);
int conic_table_get(struct rte_eth_dev *dev, struct rte_eth_rss_reta_entry64 *table, uint16_t size);

/* statistics.c */
/* DPDK 25.11 has a queue's counters in a structure of their own. */
#if RTE_VERSION >= RTE_VERSION_NUM(25, 11, 0, 0)
int conic_stats_get(struct rte_eth_dev *dev, struct rte_eth_stats *stats, struct eth_queue_stats *queues);
#else
int conic_stats_get(struct rte_eth_dev *dev, struct rte_eth_stats *stats);
#endif
int conic_stats_reset(struct rte_eth_dev *dev);
int conic_xstats_get(struct rte_eth_dev *dev, struct rte_eth_xstat *values, unsigned int count);
int conic_xstats_names(struct rte_eth_dev *dev, struct rte_eth_xstat_name *names, unsigned int count);

#endif
