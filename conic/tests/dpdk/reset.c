/*
 * The driver's own text sets its counters back, over a NIC that is played here and counts on: what only grows is told as of then, and what
 * was read too high, beside a queue that moved on, as nothing.
 */
#include <stdio.h>
#include <stdlib.h>

#include "../../../bindings/dpdk/driver/statistics.c"

struct conic_half {
	struct conic_half_faults faults;
};

static struct conic_half halves[2];

void conic_half_faults(const struct conic_half *half, struct conic_half_faults *faults)
{
	*faults = half->faults;
}

/* The link, which is as it was. */
void conic_port_look(const struct conic_port *port, struct conic_port_state *state)
{
	RTE_SET_USED(port);
	*state = (struct conic_port_state){ .up = true };
}

static void check(int is_so, const char *what)
{
	if (!is_so) {
		printf("this is not so: %s\n", what);
		exit(1);
	}
}

/* A counter of the device. */
static uint64_t counter(struct rte_eth_dev *dev, const char *name)
{
	struct rte_eth_xstat values[RTE_DIM(names)];

	check(conic_xstats_get(dev, values, RTE_DIM(values)) == RTE_DIM(names), "all are told");
	for (unsigned int i = 0; i < RTE_DIM(names); i++)
		if (strcmp(names[i], name) == 0)
			return values[i].value;
	check(0, "there is such a counter");
	return 0;
}

static void check_counters(struct rte_eth_dev *dev, uint64_t reconnects, uint64_t ring, uint64_t refused, const char *what)
{
	check(counter(dev, "reconnects") == reconnects && counter(dev, "ring_faults") == ring &&
	      counter(dev, "buffers_refused") == refused, what);
}

int main(void)
{
	static struct device device = { .queues = 1, .reconnects = 3, .senders = { &halves[0] }, .receivers = { &halves[1] } };
	static struct rte_eth_dev_data data = { .dev_private = &device };
	static struct rte_eth_dev dev = { .data = &data };

	halves[0].faults = (struct conic_half_faults){ .ring = 1, .not_a_buffer = 5, .freed_twice = 2 };
	halves[1].faults = (struct conic_half_faults){ .ring = 4, .not_a_buffer = 1, .freed_twice = 1 };
	check_counters(&dev, 3, 5, 9, "all are counted");
	check(conic_stats_reset(&dev) == 0, "they are set back");
	check_counters(&dev, 0, 0, 0, "nothing is left");
	check(device.reconnects == 3, "what the link is watched by is not touched");
	device.reconnects++;
	halves[0].faults.freed_twice += 2;
	halves[1].faults.ring += 3;
	check_counters(&dev, 1, 3, 2, "what came since is counted");
	halves[1].faults.ring = 0;
	check_counters(&dev, 1, 0, 2, "fewer than before are none");
	puts("all as it should be");
	return 0;
}
