/* Counters. */
#include "driver.h"

static void add_receive(const struct receive_queue *queue, struct receive_counters *sum)
{
	const struct receive_counters *own = &queue->counters;

	sum->packets += own->packets;
	sum->bytes += own->bytes;
	sum->direct += own->direct;
	sum->attached += own->attached;
	sum->copied += own->copied;
	sum->no_mbuf += own->no_mbuf;
	sum->too_long += own->too_long;
	sum->bad += own->bad;
}

static void add_transmit(const struct transmit_queue *queue, struct transmit_counters *sum)
{
	const struct transmit_counters *own = &queue->counters;

	sum->packets += own->packets;
	sum->bytes += own->bytes;
	sum->direct += own->direct;
	sum->chained += own->chained;
	sum->copied += own->copied;
	sum->no_buffer += own->no_buffer;
	sum->bad += own->bad;
}

static void sums(struct rte_eth_dev *dev, struct receive_counters *receive, struct transmit_counters *transmit)
{
	struct device *device = dev->data->dev_private;

	memset(receive, 0, sizeof(*receive));
	memset(transmit, 0, sizeof(*transmit));
	for (uint32_t i = 0; i < device->queues; i++) {
		if (device->receive[i] != NULL)
			add_receive(device->receive[i], receive);
		if (device->transmit[i] != NULL)
			add_transmit(device->transmit[i], transmit);
	}
}

static void totals(struct rte_eth_dev *dev, struct rte_eth_stats *stats)
{
	struct receive_counters receive;
	struct transmit_counters transmit;

	sums(dev, &receive, &transmit);
	stats->ipackets = receive.packets;
	stats->ibytes = receive.bytes;
	stats->ierrors = receive.too_long + receive.bad;
	stats->rx_nombuf = receive.no_mbuf;
	stats->opackets = transmit.packets;
	stats->obytes = transmit.bytes;
	stats->oerrors = transmit.bad;
}

/* What a queue of the application has received. */
static struct receive_counters received_by(const struct receive_queue *queue)
{
	struct receive_counters sum = { 0 };

	/* One that the application does not know of counts with the one that receives from it. */
	if (queue != NULL && queue->first == queue)
		for (; queue != NULL; queue = queue->next)
			add_receive(queue, &sum);
	return sum;
}

/* Each queue's, into a structure that has them: which one depends on DPDK's version. */
#define QUEUE_COUNTERS(device, into)                                                                                 \
	for (uint32_t i = 0; i < RTE_MIN((device)->queues, (uint32_t)RTE_ETHDEV_QUEUE_STAT_CNTRS); i++) {             \
		const struct receive_counters receive = received_by((device)->receive[i]);                              \
		const struct transmit_queue *transmit = (device)->transmit[i];                                          \
                                                                                                                     \
		(into)->q_ipackets[i] = receive.packets;                                                                \
		(into)->q_ibytes[i] = receive.bytes;                                                                    \
		(into)->q_errors[i] = receive.too_long + receive.bad;                                                   \
		(into)->q_opackets[i] = transmit != NULL ? transmit->counters.packets : 0;                              \
		(into)->q_obytes[i] = transmit != NULL ? transmit->counters.bytes : 0;                                  \
	}

#if RTE_VERSION >= RTE_VERSION_NUM(25, 11, 0, 0)
int conic_stats_get(struct rte_eth_dev *dev, struct rte_eth_stats *stats, struct eth_queue_stats *queues)
{
	struct device *device = dev->data->dev_private;

	totals(dev, stats);
	if (queues != NULL)
		QUEUE_COUNTERS(device, queues)
	return 0;
}
#else
int conic_stats_get(struct rte_eth_dev *dev, struct rte_eth_stats *stats)
{
	struct device *device = dev->data->dev_private;

	totals(dev, stats);
	QUEUE_COUNTERS(device, stats)
	return 0;
}
#endif

/* What only grows: reconnections, and what was found wrong on all halves. */
static struct baseline grown(const struct device *device)
{
	/* Relaxed: a count alone, which goes with nothing else. */
	struct baseline all = { .reconnects = __atomic_load_n(&device->reconnects, __ATOMIC_RELAXED) };
	struct conic_half_faults faults;

	for (uint32_t i = 0; i < device->queues; i++) {
		const struct conic_half *halves[] = { device->senders[i], device->receivers[i] };

		for (unsigned int each = 0; each < RTE_DIM(halves); each++) {
			conic_half_faults(halves[each], &faults);
			all.ring += faults.ring;
			all.refused += faults.not_a_buffer + faults.freed_twice;
		}
	}
	return all;
}

/* A count since it stood at `before`; what was read beside a queue that moved on may have been too much. */
static uint64_t since(uint64_t count, uint64_t before)
{
	return count > before ? count - before : 0;
}

int conic_stats_reset(struct rte_eth_dev *dev)
{
	struct device *device = dev->data->dev_private;

	for (uint32_t i = 0; i < device->queues; i++) {
		if (device->receive[i] != NULL)
			memset(&device->receive[i]->counters, 0, sizeof(device->receive[i]->counters));
		if (device->transmit[i] != NULL)
			memset(&device->transmit[i]->counters, 0, sizeof(device->transmit[i]->counters));
	}
	device->link_downs = 0;
	device->baseline = grown(device);
	return 0;
}

static const char *const names[] = {
	"rx_direct", "rx_attached", "rx_copied", "rx_too_long", "rx_bad", "tx_direct", "tx_chained", "tx_copied", "tx_no_buffer", "tx_bad",
	"link_downs", "reconnects", "ring_faults", "buffers_refused", "promiscuous",
};

int conic_xstats_names(struct rte_eth_dev *dev, struct rte_eth_xstat_name *into, unsigned int count)
{
	RTE_SET_USED(dev);
	for (unsigned int i = 0; into != NULL && i < RTE_MIN(count, RTE_DIM(names)); i++)
		strlcpy(into[i].name, names[i], sizeof(into[i].name));
	return RTE_DIM(names);
}

int conic_xstats_get(struct rte_eth_dev *dev, struct rte_eth_xstat *into, unsigned int count)
{
	struct device *device = dev->data->dev_private;
	struct receive_counters receive;
	struct transmit_counters transmit;
	struct conic_port_state state;
	struct baseline all;

	if (count < RTE_DIM(names) || into == NULL)
		return RTE_DIM(names);
	sums(dev, &receive, &transmit);
	conic_port_look(device->port, &state);
	all = grown(device);
	const uint64_t values[] = {
		receive.direct, receive.attached, receive.copied, receive.too_long, receive.bad, transmit.direct,
		transmit.chained, transmit.copied, transmit.no_buffer, transmit.bad, device->link_downs,
		since(all.reconnects, device->baseline.reconnects), since(all.ring, device->baseline.ring),
		since(all.refused, device->baseline.refused), state.promiscuous,
	};
	RTE_BUILD_BUG_ON(RTE_DIM(values) != RTE_DIM(names));
	for (unsigned int i = 0; i < RTE_DIM(values); i++)
		into[i] = (struct rte_eth_xstat){ .id = i, .value = values[i] };
	return RTE_DIM(names);
}
