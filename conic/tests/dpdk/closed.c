/*
 * A device comes and goes, and its application goes on: mbufs that lie in its memory, or point there, are whole, and nothing is left of it.
 * So do mempools, of any size. An mbuf is of the mempool that it is received into.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_bus.h>
#include <rte_cycles.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mbuf_pool_ops.h>

#define DEVICE "net_conic0"
#define HELD 200
/* Packets that are exchanged, and how many of them are held until they are freed, so that others are on their way than before. */
#define EXCHANGED (6 * AT_ONCE)
#define AT_ONCE 32
#define SHORT 60
#define LENGTH 600
/* Mbufs of a mempool that has fewer than the device's buffers are on their way, and of one that has nearly as many as there are buffers. */
#define FEW 63
#define MANY 4095
/* Mbufs that a core keeps of it, the most that it may. */
#define CACHED RTE_MEMPOOL_CACHE_MAX_SIZE

static void check(int is_so, const char *what)
{
	if (!is_so) {
		printf("this is not so: %s\n", what);
		exit(1);
	}
}

static unsigned int descriptors(void)
{
	unsigned int count = 0;
	DIR *folder = opendir("/proc/self/fd");

	check(folder != NULL, "its descriptors can be counted");
	while (readdir(folder) != NULL)
		count++;
	closedir(folder);
	return count;
}

static void come(const char *arguments)
{
	if (rte_eth_dev_count_avail() == 0)
		check(rte_eal_hotplug_add("vdev", DEVICE, arguments) == 0, "the device comes");
}

static struct rte_mempool *pool_of(unsigned int mbufs, unsigned int cached)
{
	return rte_pktmbuf_pool_create("pool", mbufs, cached, 0, RTE_MBUF_DEFAULT_BUF_SIZE, 0);
}

static void start(struct rte_mempool *pool)
{
	struct rte_eth_conf conf = { 0 };

	check(rte_eth_dev_configure(0, 1, 1, &conf) == 0, "it is configured");
	check(rte_eth_rx_queue_setup(0, 0, 256, 0, NULL, pool) == 0, "it receives");
	check(rte_eth_tx_queue_setup(0, 0, 256, 0, NULL) == 0, "it sends");
	check(rte_eth_dev_start(0) == 0, "it starts");
}

static struct rte_mbuf *filled(struct rte_mempool *pool, int length, int value)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);

	check(mbuf != NULL, "there is an mbuf");
	memset(rte_pktmbuf_append(mbuf, length), value, length);
	return mbuf;
}

static int is_whole(const struct rte_mbuf *mbuf, const struct rte_mempool *pool, int length, int value)
{
	const uint8_t *bytes = rte_pktmbuf_mtod(mbuf, const uint8_t *);

	if (mbuf->pool != pool || mbuf->pkt_len != (uint32_t)length)
		return 0;
	for (int i = 0; i < length; i++)
		if (bytes[i] != (uint8_t)value)
			return 0;
	return 1;
}

static void send_one(struct rte_mbuf *mbuf)
{
	uint64_t end = rte_get_timer_cycles() + 20 * rte_get_timer_hz();

	while (rte_eth_tx_burst(0, 0, &mbuf, 1) == 0)
		check(rte_get_timer_cycles() < end, "there is room");
}

/* Sends a packet and gets it back. */
static struct rte_mbuf *exchanged(struct rte_mempool *pool, int length, int value)
{
	struct rte_mbuf *mbuf = filled(pool, length, value);
	uint64_t end = rte_get_timer_cycles() + 20 * rte_get_timer_hz();

	send_one(mbuf);
	while (rte_eth_rx_burst(0, 0, &mbuf, 1) == 0)
		check(rte_get_timer_cycles() < end, "it comes back");
	return mbuf;
}

/* Packets of both sizes come back whole, in mbufs of the mempool. */
static void exchange(struct rte_mempool *pool)
{
	struct rte_mbuf *held[AT_ONCE];

	for (int i = 0; i < EXCHANGED; i++) {
		int length = i % 2 == 0 ? SHORT : LENGTH;
		struct rte_mbuf *received = exchanged(pool, length, i);

		check(is_whole(received, pool, length, i), "what comes back is whole, in an mbuf of the mempool");
		held[i % AT_ONCE] = received;
		if (i % AT_ONCE == AT_ONCE - 1)
			rte_pktmbuf_free_bulk(held, AT_ONCE);
	}
}

static void stop(void)
{
	check(rte_eth_dev_stop(0) == 0, "it stops");
	check(rte_eal_hotplug_remove("vdev", DEVICE) == 0, "it goes");
	/* The NIC does with its memory what it does. */
	rte_delay_ms(100);
}

static uint64_t counter(const char *name)
{
	uint64_t id, value;

	check(rte_eth_xstats_get_id_by_name(0, name, &id) == 0 && rte_eth_xstats_get_by_id(0, &id, &value, 1) == 1,
	      "the counter is there");
	return value;
}

/* A mempool that has fewer mbufs than there are buffers on their way. */
static void with_few_mbufs(const char *arguments)
{
	struct rte_mempool *pool;

	come(arguments);
	pool = pool_of(FEW, 0);
	check(pool != NULL, "there is a small mempool");
	start(pool);
	exchange(pool);
	stop();
	rte_mempool_free(pool);
}

/* One mempool goes and another comes, while the device is stopped, also behind one that cannot be. */
static void with_another_mempool(const char *arguments)
{
	struct rte_mbuf *some[CACHED];
	struct rte_mempool *pool;

	come(arguments);
	for (int round = 1; round <= 3; round++) {
		check(pool_of(1 << 19, 0) == NULL, "there is not as much memory");
		pool = pool_of(MANY, CACHED);
		check(pool != NULL && rte_mempool_avail_count(pool) > MANY - 1000, "a mempool has its mbufs");
		check(rte_mbuf_user_mempool_ops() == NULL || rte_mempool_avail_count(pool) < MANY,
		      "what the queues and the NIC have is not free");
		start(pool);
		exchange(pool);
		/* They lie in shared memory, if they are to. */
		check(rte_mbuf_user_mempool_ops() == NULL || counter("rx_direct") == (uint64_t)round * EXCHANGED,
		      "packets are received in place");
		check(counter("buffers_refused") == 0, "no buffer is free twice");
		check(rte_pktmbuf_alloc_bulk(pool, some, CACHED) == 0, "there are mbufs");
		rte_pktmbuf_free_bulk(some, CACHED);
		check(rte_eth_dev_stop(0) == 0, "it stops");
		rte_mempool_free(pool);
	}
	check(rte_eal_hotplug_remove("vdev", DEVICE) == 0, "it goes");
}

/* A call drops no more packets than it was asked for, where there are no mbufs to copy them into. */
static void without_mbufs(const char *arguments)
{
	enum { SENT = 60, ASKED = 8 };
	struct rte_mbuf *none[ASKED], *all[FEW];
	struct rte_eth_stats stats;
	uint64_t dropped = 0, end = rte_get_timer_cycles() + 20 * rte_get_timer_hz();
	struct rte_mempool *pool;
	unsigned int held = 0;

	come(arguments);
	pool = pool_of(FEW, 0);
	check(pool != NULL, "there is a small mempool");
	start(pool);
	for (int i = 0; i < SENT; i++)
		send_one(filled(pool, SHORT, i));
	/* They have come back by then. */
	rte_delay_ms(100);
	while (held < FEW && rte_pktmbuf_alloc_bulk(pool, all + held, 1) == 0)
		held++;
	while (dropped < 3 * ASKED) {
		check(rte_eth_rx_burst(0, 0, none, ASKED) == 0, "there is no mbuf");
		check(rte_eth_stats_get(0, &stats) == 0 && stats.rx_nombuf <= dropped + ASKED,
		      "no more packets are dropped than were asked for");
		dropped = stats.rx_nombuf;
		check(rte_get_timer_cycles() < end, "packets are dropped");
	}
	rte_pktmbuf_free_bulk(all, held);
	stop();
	rte_mempool_free(pool);
}

int main(int argc, char **argv)
{
	int parsed = rte_eal_init(argc, argv);
	struct rte_mempool *pool = pool_of(1023, 0);
	struct rte_mbuf *held[HELD], *received;
	unsigned int before, available, left;
	int points;

	check(parsed >= 0 && argc - parsed == 2 && pool != NULL, "it is called as it should be");
	start(pool);
	for (int i = 0; i < HELD; i++)
		held[i] = filled(pool, LENGTH, i);
	received = exchanged(pool, LENGTH, 7);
	available = rte_mempool_avail_count(pool);
	stop();
	check(is_whole(received, pool, LENGTH, 7), "what was received is whole");
	for (int i = 0; i < HELD; i++)
		check(is_whole(held[i], pool, LENGTH, i), "what was held is whole");
	check(rte_mempool_avail_count(pool) >= available, "the mempool has all that it had");
	rte_pktmbuf_free(received);
	rte_pktmbuf_free_bulk(held, HELD);
	before = descriptors();
	for (int i = 0; i < 20; i++) {
		come(argv[parsed + 1]);
		start(pool);
		received = exchanged(pool, LENGTH, i);
		check(is_whole(received, pool, LENGTH, i), "what comes back is whole");
		stop();
		points = RTE_MBUF_HAS_EXTBUF(received);
		left = descriptors();
		rte_pktmbuf_free(received);
		check(!points || descriptors() < left, "memory goes with the last mbuf that points there");
	}
	check(descriptors() <= before, "nothing is left of a device that went");
	rte_mempool_free(pool);
	with_few_mbufs(argv[parsed + 1]);
	with_another_mempool(argv[parsed + 1]);
	without_mbufs(argv[parsed + 1]);
	puts("all as it should be");
	return 0;
}
