/*
 * Two devices on a loopback network, and mempools of which the first has its mbufs in the memory of both: each queue receives into its own
 * mempools, whoever's mbufs lie where a packet comes, and goes on when the mempool that it does not know is freed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#define MBUFS 4095
/* Packets that are held at once: half of them are long, and those are more than queues and NIC keep buffers for. */
#define HELD 1200
#define SHORT 60
#define LENGTH 600
/* The private bytes of the mempools' mbufs, and what those of the first are filled with. */
#define PRIVATE_OF_FIRST 32
#define PRIVATE 64
#define MARK 0x5a

static void check(int is_so, const char *what)
{
	if (!is_so) {
		printf("this is not so: %s\n", what);
		exit(1);
	}
}

static struct rte_mempool *pool_of(const char *name, uint16_t private)
{
	struct rte_mempool *pool = rte_pktmbuf_pool_create(name, MBUFS, 0, private, RTE_MBUF_DEFAULT_BUF_SIZE, 0);

	check(pool != NULL, "there is a mempool");
	return pool;
}

/* Starts a device with a mempool for each of its queues, of which there are `queues`. */
static void start(uint16_t port, struct rte_mempool **pools, uint16_t queues)
{
	struct rte_eth_conf conf = { 0 };

	check(rte_eth_dev_configure(port, queues, queues, &conf) == 0, "it is configured");
	for (uint16_t i = 0; i < queues; i++) {
		check(rte_eth_rx_queue_setup(port, i, 256, 0, NULL, pools[i]) == 0, "it receives");
		check(rte_eth_tx_queue_setup(port, i, 256, 0, NULL) == 0, "it sends");
	}
	check(rte_eth_dev_start(port) == 0, "it starts");
}

static struct rte_mbuf *exchanged(uint16_t port, uint16_t queue, struct rte_mempool *pool, int length, int value)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);
	uint64_t end = rte_get_timer_cycles() + 20 * rte_get_timer_hz();

	check(mbuf != NULL, "there is an mbuf");
	memset(rte_pktmbuf_append(mbuf, length), value, length);
	while (rte_eth_tx_burst(port, queue, &mbuf, 1) == 0)
		check(rte_get_timer_cycles() < end, "there is room");
	while (rte_eth_rx_burst(port, queue, &mbuf, 1) == 0)
		check(rte_get_timer_cycles() < end, "it comes back");
	return mbuf;
}

static void check_whole(const struct rte_mbuf *mbuf, int length, int value)
{
	const uint8_t *bytes = rte_pktmbuf_mtod(mbuf, const uint8_t *);

	check(mbuf->pkt_len == (uint32_t)length, "a packet is as long as it was");
	for (int i = 0; i < length; i++)
		check(bytes[i] == (uint8_t)value, "a packet is whole");
}

/* Packets of both sizes come back whole through a queue, sent from one mempool, and received into another. */
static void exchange(uint16_t port, uint16_t queue, struct rte_mempool *from, struct rte_mempool *into)
{
	static struct rte_mbuf *held[HELD];

	for (int i = 0; i < HELD; i++) {
		held[i] = exchanged(port, queue, from, i % 2 == 0 ? SHORT : LENGTH, i);
		check(held[i]->pool == into, "an mbuf is of the queue's mempool");
		check(rte_pktmbuf_priv_size(into) == held[i]->priv_size, "and as that makes them");
	}
	for (int i = 0; i < HELD; i++) {
		uint16_t room = rte_pktmbuf_headroom(held[i]);

		check_whole(held[i], i % 2 == 0 ? SHORT : LENGTH, i);
		/* Room in front of a packet may be used. */
		memset(rte_pktmbuf_prepend(held[i], room), 0xee, room);
	}
	rte_pktmbuf_free_bulk(held, HELD);
}

static void mark(struct rte_mempool *pool, void *opaque, void *object, unsigned int index)
{
	RTE_SET_USED(pool);
	RTE_SET_USED(opaque);
	RTE_SET_USED(index);
	memset(rte_mbuf_to_priv(object), MARK, PRIVATE_OF_FIRST);
}

static void check_mark(struct rte_mempool *pool, void *opaque, void *object, unsigned int index)
{
	const uint8_t *bytes = rte_mbuf_to_priv(object);

	RTE_SET_USED(pool);
	RTE_SET_USED(opaque);
	RTE_SET_USED(index);
	for (int i = 0; i < PRIVATE_OF_FIRST; i++)
		check(bytes[i] == MARK, "an mbuf's private bytes are its own");
}

static uint64_t counter(uint16_t port, const char *name)
{
	uint64_t id, value;

	check(rte_eth_xstats_get_id_by_name(port, name, &id) == 0 && rte_eth_xstats_get_by_id(port, &id, &value, 1) == 1,
	      "the counter is there");
	return value;
}

/* While a mempool goes, of which the driver has heard already, the other device goes on. */
static void on_event(enum rte_mempool_event event, struct rte_mempool *mempool, void *opaque)
{
	RTE_SET_USED(mempool);
	if (event == RTE_MEMPOOL_EVENT_DESTROY)
		exchange(1, 0, opaque, opaque);
}

int main(int argc, char **argv)
{
	struct rte_mempool *first, *second;

	check(rte_eal_init(argc, argv) >= 0, "it is called as it should be");
	first = pool_of("first", PRIVATE_OF_FIRST);
	rte_mempool_obj_iter(first, mark, NULL);
	second = pool_of("second", PRIVATE);
	start(0, (struct rte_mempool *[]){ first, second }, 2);
	start(1, &second, 1);
	exchange(0, 0, first, first);
	check(counter(0, "rx_direct") == HELD, "in place where the mbufs are the queue's");
	exchange(0, 1, second, second);
	exchange(1, 0, second, second);
	/* Mbufs of the first that lie in the second device's memory. */
	exchange(1, 0, first, second);
	rte_mempool_obj_iter(first, check_mark, NULL);
	check(rte_eth_dev_stop(0) == 0 && rte_eth_dev_close(0) == 0, "the first device goes");
	check(rte_mempool_event_callback_register(on_event, second) == 0, "it can be told");
	rte_mempool_free(first);
	check(rte_mempool_event_callback_unregister(on_event, second) == 0, "and not any more");
	for (int round = 0; round < 4; round++)
		exchange(1, 0, second, second);
	/* What comes now has no place in the memory of a device that runs. */
	first = pool_of("third", 0);
	check(rte_mempool_avail_count(first) == MBUFS, "none of its mbufs is with a queue or the NIC");
	exchange(1, 0, first, second);
	check(rte_eth_dev_stop(1) == 0, "the second device stops");
	start(1, &first, 1);
	exchange(1, 0, first, first);
	check(counter(1, "buffers_refused") == 0 && counter(1, "ring_faults") == 0, "nobody did what is impossible");
	check(rte_eth_dev_stop(1) == 0 && rte_eth_dev_close(1) == 0, "the second device goes");
	puts("all as it should be");
	return 0;
}
