/* What lies in the rings, for applications that ask. */
#include "driver.h"

/* Whatever DPDK's version has a count be. */
typedef __typeof__(((eth_rx_queue_count_t)NULL)(NULL)) queue_count;

/* How many packets of a queue of the application wait, or segments of such as stand for several; `most` at most. */
static uint32_t waiting(const struct receive_queue *queue, uint32_t most)
{
	uint32_t count = 0;

	for (; queue != NULL && count < most; queue = queue->next)
		count += queue->held - queue->taken + conic_half_waiting(queue->half, most - count);
	return RTE_MIN(count, most);
}

static queue_count receive_count(void *of)
{
	/* Bounded by the rings. */
	return waiting(of, UINT32_MAX);
}

static int receive_status(void *of, uint16_t offset)
{
	struct receive_queue *queue = of;

	if (offset >= queue->device->descriptors)
		return -EINVAL;
	return waiting(queue, offset + 1) > offset ? RTE_ETH_RX_DESC_DONE : RTE_ETH_RX_DESC_AVAIL;
}

/* Behind the next place to send from come those that are free, and then those that the NIC has still. */
static int transmit_status(void *of, uint16_t offset)
{
	struct transmit_queue *queue = of;

	if (offset >= queue->device->descriptors)
		return -EINVAL;
	return offset < conic_half_room(queue->half) ? RTE_ETH_TX_DESC_DONE : RTE_ETH_TX_DESC_FULL;
}

/* A packet's mbufs are the NIC's, or free, when it is sent: none is kept here. */
int conic_done_cleanup(void *queue, uint32_t most)
{
	RTE_SET_USED(queue);
	RTE_SET_USED(most);
	return 0;
}

void conic_status_install(struct rte_eth_dev *dev)
{
	dev->rx_queue_count = receive_count;
	dev->rx_descriptor_status = receive_status;
	dev->tx_descriptor_status = transmit_status;
}

void conic_receive_information(struct rte_eth_dev *dev, uint16_t index, struct rte_eth_rxq_info *info)
{
	const struct receive_queue *queue = dev->data->rx_queues[index];

	/* Of several mempools none is named. */
	info->mp = queue->pool_count == 1 ? queue->pools[0] : NULL;
	info->scattered_rx = queue->scatter;
	info->conf.offloads = queue->wishes | (queue->scatter ? RTE_ETH_RX_OFFLOAD_SCATTER : 0);
	info->conf.rx_drop_en = 1;
	info->nb_desc = RTE_MIN(queue->device->descriptors, (uint32_t)UINT16_MAX);
}

void conic_transmit_information(struct rte_eth_dev *dev, uint16_t index, struct rte_eth_txq_info *info)
{
	const struct transmit_queue *queue = dev->data->tx_queues[index];

	info->nb_desc = RTE_MIN(queue->device->descriptors, (uint32_t)UINT16_MAX);
}
