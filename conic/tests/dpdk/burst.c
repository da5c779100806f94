/*
 * Sends back what comes, with its addresses swapped, in bursts of 1 to 1024 packets.
 * use: burst EAL-ARGUMENTS -- RECEIVERS SENDERS [hash]
 *
 * It waits a moment for each burst to become full: what has come until then, by all queues that receive, is sent at once by one queue,
 * which are taken in turn. With `hash` it asks for each packet's, and says it with the last byte of the station it came from.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_ethdev.h>

#define MBUFS 8192
#define MOST 1024

static volatile sig_atomic_t is_over;

static void end(int signal)
{
	(void)signal;
	is_over = 1;
}

static void must(int is_so, const char *what)
{
	if (!is_so) {
		fprintf(stderr, "burst: %s\n", what);
		exit(1);
	}
}

static void configure(int receivers, int senders, bool is_hashed, struct rte_mempool *pool)
{
	struct rte_eth_conf conf = { .rxmode = { .offloads = RTE_ETH_RX_OFFLOAD_SCATTER, .mtu = 9500 },
				     .txmode.offloads = RTE_ETH_TX_OFFLOAD_MULTI_SEGS };

	if (is_hashed) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_RSS_HASH;
		conf.rx_adv_conf.rss_conf.rss_hf = RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP;
	}
	must(receivers > 0 && senders > 0 && rte_eth_dev_configure(0, receivers, senders, &conf) == 0,
	     "the device can be configured");
	for (int i = 0; i < receivers; i++)
		must(rte_eth_rx_queue_setup(0, i, 2048, 0, NULL, pool) == 0, "a receive queue");
	for (int i = 0; i < senders; i++)
		must(rte_eth_tx_queue_setup(0, i, 2048, 0, NULL) == 0, "a transmit queue");
	must(rte_eth_dev_start(0) == 0, "the device starts");
}

static void tell(const struct rte_mbuf *mbuf)
{
	uint8_t station = rte_pktmbuf_mtod(mbuf, const struct rte_ether_hdr *)->src_addr.addr_bytes[5];

	if ((mbuf->ol_flags & RTE_MBUF_F_RX_RSS_HASH) != 0)
		printf("%u: %08x\n", station, mbuf->hash.rss);
	else
		printf("%u: none\n", station);
	fflush(stdout);
}

static void swap(struct rte_mbuf *mbuf)
{
	struct rte_ether_hdr *header = rte_pktmbuf_mtod(mbuf, struct rte_ether_hdr *);
	struct rte_ether_addr address = header->dst_addr;

	header->dst_addr = header->src_addr;
	header->src_addr = address;
}

int main(int count, char **arguments)
{
	static struct rte_mbuf *mbufs[MOST];
	unsigned int want = 1, largest = 0, receivers, senders, sender = 0;
	struct rte_mempool *pool;
	bool is_hashed;
	int parsed = rte_eal_init(count, arguments);

	must(parsed >= 0, "DPDK starts");
	must(count - parsed == 3 || count - parsed == 4, "two or three arguments");
	is_hashed = count - parsed == 4;
	receivers = atoi(arguments[parsed + 1]);
	senders = atoi(arguments[parsed + 2]);
	signal(SIGTERM, end);
	pool = rte_pktmbuf_pool_create("burst", MBUFS, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, 0);
	must(pool != NULL, "a mempool");
	configure(receivers, senders, is_hashed, pool);
	printf("ready\n");
	fflush(stdout);
	while (!is_over) {
		unsigned int got = 0, sent = 0, queue = 0;
		uint64_t until = rte_get_timer_cycles() + rte_get_timer_hz() / 2000;

		do
			got += rte_eth_rx_burst(0, queue++ % receivers, mbufs + got, want - got);
		while (got < want && rte_get_timer_cycles() < until);
		if (got == 0)
			continue;
		for (unsigned int i = 0; i < got; i++) {
			if (is_hashed)
				tell(mbufs[i]);
			swap(mbufs[i]);
		}
		while (sent < got && !is_over)
			sent += rte_eth_tx_burst(0, sender % senders, mbufs + sent, got - sent);
		sender++;
		largest = RTE_MAX(largest, got);
		/* All from 1 to MOST come in turn: 389 is prime to 1024. */
		want = (want + 389 - 1) % MOST + 1;
	}
	printf("largest burst: %u\n", largest);
	rte_eth_dev_stop(0);
	rte_eth_dev_close(0);
	return 0;
}
