/*
 * What applications ask of a queue and of the device, beside bursts: how much has come, how much room there is, what the hash is; and what
 * becomes of it all when the device is reset. use: asked EAL-ARGUMENTS; the daemon is in loopback mode, a ring has DESCRIPTORS.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_ethdev.h>

#define LENGTH 200
#define DESCRIPTORS 64
#define KEY_BYTES 40
#define FEW 40

static struct rte_mempool *pool;
/* Packets that were sent and have not been received: the loopback loses none. */
static int under_way;

static void check(int is_so, const char *what)
{
	if (!is_so) {
		printf("this is not so: %s\n", what);
		exit(1);
	}
}

static void start(void)
{
	struct rte_eth_conf conf = { .rxmode.mq_mode = RTE_ETH_MQ_RX_RSS };

	check(rte_eth_dev_configure(0, 1, 1, &conf) == 0, "it is configured");
	check(rte_eth_dev_start(0) == -EINVAL, "no queue was set up");
	check(rte_eth_rx_queue_setup(0, 0, DESCRIPTORS, 0, NULL, pool) == 0, "it receives");
	check(rte_eth_dev_start(0) == -EINVAL, "that it sends with was not");
	check(rte_eth_tx_queue_setup(0, 0, DESCRIPTORS, 0, NULL) == 0, "it sends");
	check(rte_eth_dev_start(0) == 0, "it starts");
}

static struct rte_mbuf *filled(void)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);

	check(mbuf != NULL, "there is an mbuf");
	memset(rte_pktmbuf_append(mbuf, LENGTH), 2, LENGTH);
	return mbuf;
}

/* Sends packets of a burst; how many were taken. */
static int send_some(int count)
{
	struct rte_mbuf *mbufs[FEW];
	int sent;

	for (int i = 0; i < count; i++)
		mbufs[i] = filled();
	sent = rte_eth_tx_burst(0, 0, mbufs, count);
	under_way += sent;
	for (int i = sent; i < count; i++)
		rte_pktmbuf_free(mbufs[i]);
	return sent;
}

static int receive_some(int most)
{
	struct rte_mbuf *mbufs[FEW];
	int count = rte_eth_rx_burst(0, 0, mbufs, most);

	under_way -= count;
	for (int i = 0; i < count; i++)
		rte_pktmbuf_free(mbufs[i]);
	return count;
}

static void wait_for(int count, const char *what)
{
	uint64_t end = rte_get_timer_cycles() + 20 * rte_get_timer_hz();

	while (rte_eth_rx_queue_count(0, 0) != count)
		check(rte_get_timer_cycles() < end, what);
}

static void what_has_come_is_told(void)
{
	check(rte_eth_rx_queue_count(0, 0) == 0, "nothing has come");
	check(rte_eth_rx_descriptor_status(0, 0, 0) == RTE_ETH_RX_DESC_AVAIL, "its place is free");
	check(rte_eth_rx_descriptor_status(0, 0, DESCRIPTORS) == -EINVAL, "a ring has no more places");
	check(send_some(FEW) == FEW, "all are sent");
	wait_for(FEW, "all have come");
	check(rte_eth_rx_descriptor_status(0, 0, FEW - 1) == RTE_ETH_RX_DESC_DONE, "the last has come");
	check(rte_eth_rx_descriptor_status(0, 0, FEW) == RTE_ETH_RX_DESC_AVAIL, "and none behind it");
	/* A burst may have fewer than there is room for: a slot of several is taken whole. */
	for (int left = FEW; left > 0;) {
		int count = receive_some(7);

		check(count > 0 && count <= left, "what was told of comes");
		left -= count;
		check(rte_eth_rx_queue_count(0, 0) == left, "so many are left");
	}
	check(rte_eth_rx_queue_count(0, 0) == 0, "none is left");
}

static void room_is_told(void)
{
	uint64_t end = rte_get_timer_cycles() + 20 * rte_get_timer_hz();

	check(rte_eth_tx_descriptor_status(0, 0, 0) == RTE_ETH_TX_DESC_DONE, "there is room");
	check(rte_eth_tx_descriptor_status(0, 0, DESCRIPTORS) == -EINVAL, "a ring has no more places");
	/* Nobody receives: the NIC has no place for them, and reads no more. Burst after burst is full. */
	for (int tries = 0; tries < 1000; tries++)
		while (send_some(4) > 0)
			check(rte_get_timer_cycles() < end, "it is full at some time");
	check(rte_eth_tx_descriptor_status(0, 0, DESCRIPTORS - 1) == RTE_ETH_TX_DESC_FULL, "not all of it is free");
	check(rte_eth_tx_descriptor_status(0, 0, 0) == RTE_ETH_TX_DESC_FULL, "nothing is free");
	check(rte_eth_tx_done_cleanup(0, 0, 0) == 0, "the driver keeps none that is sent");
	while (rte_eth_tx_descriptor_status(0, 0, 31) != RTE_ETH_TX_DESC_DONE) {
		check(rte_get_timer_cycles() < end, "there is room again");
		receive_some(FEW);
	}
	check(send_some(32) == 32, "there is as much room as was told");
	/* A ring that is empty says nothing of what the NIC has still. */
	while (under_way > 0) {
		check(rte_get_timer_cycles() < end, "all comes");
		receive_some(FEW);
	}
	check(rte_eth_rx_queue_count(0, 0) == 0, "and no more");
}

static void the_hash_is_told(void)
{
	uint8_t key[KEY_BYTES] = { 0 }, other[KEY_BYTES] = { 1 };
	struct rte_eth_rss_conf conf = { .rss_key = key, .rss_key_len = sizeof(key) };
	uint64_t types;

	check(rte_eth_dev_rss_hash_conf_get(0, &conf) == 0 && conf.rss_key_len == KEY_BYTES, "the key is told");
	types = conf.rss_hf;
	check(types == (RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP), "so is what is hashed");
	for (int i = 0; i < KEY_BYTES; i++)
		printf("%02x", key[i]);
	puts("");
	check(rte_eth_dev_rss_hash_update(0, &conf) == 0, "what is so may be said");
	conf.rss_key = other;
	check(rte_eth_dev_rss_hash_update(0, &conf) == -ENOTSUP, "no other key");
	conf = (struct rte_eth_rss_conf){ .rss_hf = RTE_ETH_RSS_IP };
	check(rte_eth_dev_rss_hash_update(0, &conf) == -ENOTSUP, "nothing else is hashed");
}

static void queues_are_described(void)
{
	struct rte_eth_rxq_info receive;
	struct rte_eth_txq_info transmit;
	struct rte_ether_addr group = { { 1, 0, 0x5e, 0, 0, 7 } };

	check(rte_eth_rx_queue_info_get(0, 0, &receive) == 0 && rte_eth_tx_queue_info_get(0, 0, &transmit) == 0, "it tells of queues");
	check(receive.nb_desc == DESCRIPTORS && transmit.nb_desc == DESCRIPTORS && receive.mp == pool, "they are as they are");
	check(rte_eth_dev_set_mc_addr_list(0, &group, 1) == 0, "a group's frames come");
	check(rte_eth_allmulticast_enable(0) == 0 && rte_eth_allmulticast_get(0) == 1, "all groups' frames come");
	/* In loopback mode nobody else has frames; the operator lets nobody have them. */
	check(rte_eth_promiscuous_enable(0) == 0 && rte_eth_promiscuous_get(0) == 1, "a stock program goes on");
}

static void a_reset_brings_it_back_to_its_beginning(void)
{
	struct rte_eth_stats stats;
	struct rte_eth_dev_info info;

	check(send_some(4) == 4, "something is on its way");
	/* What came later would be of the next run. */
	wait_for(4, "it comes while nobody receives");
	check(rte_eth_dev_reset(0) == 0, "it is reset");
	check(rte_eth_dev_info_get(0, &info) == 0 && info.nb_rx_queues == 0 && info.nb_tx_queues == 0, "it has no queues");
	check(rte_eth_promiscuous_get(0) == 0 && rte_eth_allmulticast_get(0) == 0, "no mode is on");
	check(rte_eth_stats_get(0, &stats) == 0 && stats.ipackets == 0 && stats.opackets == 0, "nothing is counted");
	check(rte_eth_dev_start(0) != 0, "it wants to be configured");
	start();
	check(rte_eth_rx_queue_count(0, 0) == 0, "nothing of before has come");
	what_has_come_is_told();
}

int main(int argc, char **argv)
{
	int parsed = rte_eal_init(argc, argv);

	pool = rte_pktmbuf_pool_create("pool", 2047, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, 0);
	check(parsed >= 0 && pool != NULL, "it is called as it should be");
	start();
	what_has_come_is_told();
	room_is_told();
	the_hash_is_told();
	queues_are_described();
	a_reset_brings_it_back_to_its_beginning();
	puts("all as it should be");
	return 0;
}
