/* A device comes and goes, and its application goes on: mbufs that lie in its memory, or point there, are whole, and nothing is left of it. */
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

#define DEVICE "net_conic0"
#define HELD 200
#define LENGTH 600

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

static void start(const char *arguments, struct rte_mempool *pool)
{
	struct rte_eth_conf conf = { 0 };

	if (rte_eth_dev_count_avail() == 0)
		check(rte_eal_hotplug_add("vdev", DEVICE, arguments) == 0, "the device comes");
	check(rte_eth_dev_configure(0, 1, 1, &conf) == 0, "it is configured");
	check(rte_eth_rx_queue_setup(0, 0, 256, 0, NULL, pool) == 0, "it receives");
	check(rte_eth_tx_queue_setup(0, 0, 256, 0, NULL) == 0, "it sends");
	check(rte_eth_dev_start(0) == 0, "it starts");
}

static struct rte_mbuf *filled(struct rte_mempool *pool, int value)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);

	check(mbuf != NULL, "there is an mbuf");
	memset(rte_pktmbuf_append(mbuf, LENGTH), value, LENGTH);
	return mbuf;
}

static int is_whole(const struct rte_mbuf *mbuf, const struct rte_mempool *pool, int value)
{
	const uint8_t *bytes = rte_pktmbuf_mtod(mbuf, const uint8_t *);

	if (mbuf->pool != pool || mbuf->pkt_len != LENGTH)
		return 0;
	for (int i = 0; i < LENGTH; i++)
		if (bytes[i] != value)
			return 0;
	return 1;
}

/* Sends a packet and gets it back. */
static struct rte_mbuf *exchanged(struct rte_mempool *pool, int value)
{
	struct rte_mbuf *mbuf = filled(pool, value);
	uint64_t end = rte_get_timer_cycles() + 20 * rte_get_timer_hz();

	while (rte_eth_tx_burst(0, 0, &mbuf, 1) == 0)
		check(rte_get_timer_cycles() < end, "there is room");
	while (rte_eth_rx_burst(0, 0, &mbuf, 1) == 0)
		check(rte_get_timer_cycles() < end, "it comes back");
	return mbuf;
}

static void stop(void)
{
	check(rte_eth_dev_stop(0) == 0, "it stops");
	check(rte_eal_hotplug_remove("vdev", DEVICE) == 0, "it goes");
	/* The NIC does with its memory what it does. */
	rte_delay_ms(100);
}

int main(int argc, char **argv)
{
	int parsed = rte_eal_init(argc, argv);
	struct rte_mempool *pool = rte_pktmbuf_pool_create("pool", 1023, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, 0);
	struct rte_mbuf *held[HELD], *received;
	unsigned int before, available;

	check(parsed >= 0 && argc - parsed == 2 && pool != NULL, "it is called as it should be");
	start(argv[parsed + 1], pool);
	for (int i = 0; i < HELD; i++)
		held[i] = filled(pool, i);
	received = exchanged(pool, 7);
	available = rte_mempool_avail_count(pool);
	stop();
	check(is_whole(received, pool, 7), "what was received is whole");
	for (int i = 0; i < HELD; i++)
		check(is_whole(held[i], pool, i), "what was held is whole");
	check(rte_mempool_avail_count(pool) >= available, "the mempool has all that it had");
	rte_pktmbuf_free(received);
	rte_pktmbuf_free_bulk(held, HELD);
	before = descriptors();
	for (int i = 0; i < 20; i++) {
		start(argv[parsed + 1], pool);
		received = exchanged(pool, i);
		check(is_whole(received, pool, i), "what comes back is whole");
		stop();
		rte_pktmbuf_free(received);
	}
	/* One that points to a device's memory keeps it until the next goes. */
	check(descriptors() <= before + 10, "nothing is left of a device that went");
	puts("all as it should be");
	return 0;
}
