/*
 * Waits for a queue's descriptor by `poll`, as event loops do: it sleeps while the daemon is gone, and is woken when that is back, and by
 * packets then. use: asleep EAL-ARGUMENTS; the daemon is in loopback mode.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_ethdev.h>

#define LENGTH 60
/* How often it may wake up while nothing comes, in half a second. */
#define FEW 20

static int descriptor;

static void check(int is_so, const char *what)
{
	if (!is_so) {
		printf("this is not so: %s\n", what);
		exit(1);
	}
}

static void say(const char *what)
{
	puts(what);
	fflush(stdout);
}

static int is_up(void)
{
	struct rte_eth_link link;

	check(rte_eth_link_get_nowait(0, &link) == 0, "the link is known");
	return link.link_status == RTE_ETH_LINK_UP;
}

/* Whether it is woken within a time. */
static int is_woken(int milliseconds)
{
	struct pollfd waited = { .fd = descriptor, .events = POLLIN };
	int woken;

	check(rte_eth_dev_rx_intr_enable(0, 0) == 0, "it may wait");
	woken = poll(&waited, 1, milliseconds);
	check(rte_eth_dev_rx_intr_disable(0, 0) == 0, "it has waited");
	return woken == 1;
}

static void start(struct rte_mempool *pool)
{
	struct rte_eth_conf conf = { .intr_conf.rxq = 1 };

	check(rte_eth_dev_configure(0, 1, 1, &conf) == 0, "it is configured");
	check(rte_eth_rx_queue_setup(0, 0, 256, 0, NULL, pool) == 0, "it receives");
	check(rte_eth_tx_queue_setup(0, 0, 256, 0, NULL) == 0, "it sends");
	check(rte_eth_dev_start(0) == 0, "it starts");
	descriptor = rte_eth_dev_rx_intr_ctl_q_get_fd(0, 0);
	check(descriptor >= 0, "there is something to wait for");
}

/* Sends a packet, and sleeps until it comes back. */
static void exchange(struct rte_mempool *pool)
{
	uint64_t end = rte_get_timer_cycles() + 20 * rte_get_timer_hz();
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);

	check(mbuf != NULL && rte_pktmbuf_append(mbuf, LENGTH) != NULL, "there is an mbuf");
	while (rte_eth_tx_burst(0, 0, &mbuf, 1) == 0)
		check(rte_get_timer_cycles() < end, "there is room");
	while (rte_eth_rx_burst(0, 0, &mbuf, 1) == 0)
		check(is_woken(20000), "a packet wakes it");
	rte_pktmbuf_free(mbuf);
}

int main(int argc, char **argv)
{
	int parsed = rte_eal_init(argc, argv), woken = 0;
	struct rte_mempool *pool = rte_pktmbuf_pool_create("pool", 1023, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, 0);
	uint64_t end;

	check(parsed >= 0 && pool != NULL, "it is called as it should be");
	start(pool);
	exchange(pool);
	check(!is_woken(100), "nothing wakes it where nothing comes");
	say("ready");
	while (is_up())
		check(is_woken(20000), "the daemon's end wakes it");
	end = rte_get_timer_cycles() + rte_get_timer_hz() / 2;
	while (rte_get_timer_cycles() < end)
		woken += is_woken(100);
	check(woken < FEW, "it sleeps while the daemon is gone");
	say("asleep");
	while (!is_up())
		check(is_woken(20000), "the daemon's return wakes it");
	exchange(pool);
	say("all as it should be");
	return 0;
}
