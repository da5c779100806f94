/*
 * More queues of the NIC than the application receives from: the NIC spreads flows over all that the device has, so each queue of the
 * application takes several of them, by turns. A flow stays in one, and in order.
 */
#include <rte_malloc.h>

#include "driver.h"

static uint16_t receive_by_turns(void *of, struct rte_mbuf **mbufs, uint16_t most)
{
	struct receive_queue *first = of, *lane = first->turn;
	uint16_t filled = 0;

	do {
		filled += lane->device->joins ? conic_receive_joined(lane, mbufs + filled, most - filled)
					      : conic_receive(lane, mbufs + filled, most - filled);
		lane = lane->next != NULL ? lane->next : first;
	} while (filled < most && lane != first->turn);
	/* Behind a burst that is full: a busy queue does not keep the others waiting. */
	first->turn = lane;
	return filled;
}

/* Has a queue that the application does not know of receive as one of the application's does. */
static struct receive_queue *stand_in(struct device *device, uint32_t index, struct receive_queue *first)
{
	struct receive_queue *queue = device->receive[index];

	if (queue == NULL)
		queue = rte_zmalloc("conic receive", sizeof(*queue), RTE_CACHE_LINE_SIZE);
	if (queue == NULL)
		return NULL;
	device->receive[index] = queue;
	queue->device = device;
	queue->half = device->receivers[index];
	queue->index = index;
	queue->scatter = first->scatter;
	queue->wishes = first->wishes;
	queue->pool_count = first->pool_count;
	memcpy(queue->pools, first->pools, sizeof(queue->pools));
	memcpy(queue->pool_rooms, first->pool_rooms, sizeof(queue->pool_rooms));
	return queue;
}

/* Shares the NIC's queues out among the application's. */
int conic_lanes_join(struct rte_eth_dev *dev)
{
	struct device *device = dev->data->dev_private;
	uint32_t own = dev->data->nb_rx_queues;

	dev->rx_pkt_burst = device->joins ? conic_receive_joined : conic_receive;
	if (own == 0)
		return 0;
	for (uint32_t i = 0; i < device->queues; i++) {
		struct receive_queue *first = device->receive[i % own];
		struct receive_queue *queue = i < own ? first : stand_in(device, i, first);

		if (queue == NULL)
			return -ENOMEM;
		queue->first = queue->turn = first;
		queue->next = NULL;
		if (i >= own)
			device->receive[i - own]->next = queue;
	}
	if (device->queues > own)
		dev->rx_pkt_burst = receive_by_turns;
	return 0;
}

/* Which of the application's queues gets what has an entry of the NIC's table. */
uint16_t conic_lane_of(const struct rte_eth_dev *dev, uint32_t entry)
{
	const struct device *device = dev->data->dev_private;

	return entry % device->queues % RTE_MAX(dev->data->nb_rx_queues, 1);
}
