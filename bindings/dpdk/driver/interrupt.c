/*
 * Interrupts of receive queues. What an application waits for is, for each queue, an epoll descriptor of two: the bell that the NIC
 * rings, which is another one after the daemon has come back, and a descriptor of the driver's own, for what has come already.
 */
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <rte_interrupts.h>

#include "driver.h"

/* Has a queue's descriptor wait for the bell of its present region. */
static void follow_bell(struct receive_queue *queue)
{
	struct epoll_event event = { .events = EPOLLIN };
	int bell = conic_half_bell(queue->half);
	int waited = queue->first->interrupt;

	if (queue->bell_of == queue->region)
		return;
	/* Where it is there already, under the number of one that is closed, it is the right one. */
	if (epoll_ctl(waited, EPOLL_CTL_ADD, bell, &event) != 0 && errno != EEXIST)
		CONIC_LOG(ERR, "queue %u: its bell cannot be waited for: %s\n", queue->index, strerror(errno));
	queue->bell_of = queue->region;
}

/* Before a queue moves on to another region, or while nobody rings: the bell of this one is waited for no more. */
void conic_interrupt_forget(struct receive_queue *queue)
{
	if (queue->bell_of != NULL)
		epoll_ctl(queue->first->interrupt, EPOLL_CTL_DEL, conic_half_bell(queue->half), NULL);
	queue->bell_of = NULL;
}

static int install_queue(struct rte_intr_handle *handle, struct receive_queue *queue, int index)
{
	struct epoll_event event = { .events = EPOLLIN };

	queue->interrupt = epoll_create1(EPOLL_CLOEXEC);
	if (queue->interrupt < 0)
		return -errno;
	queue->own_bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (queue->own_bell < 0 || epoll_ctl(queue->interrupt, EPOLL_CTL_ADD, queue->own_bell, &event) != 0)
		return -errno;
	if (rte_intr_vec_list_index_set(handle, index, RTE_INTR_VEC_RXTX_OFFSET + index) != 0 ||
	    rte_intr_efds_index_set(handle, index, queue->interrupt) != 0)
		return -rte_errno;
	return 0;
}

/* Makes what the application's queues are waited for by. They stay until the device is closed or has another number of queues. */
int conic_interrupts_install(struct rte_eth_dev *dev)
{
	struct device *device = dev->data->dev_private;
	struct rte_intr_handle *handle;
	int queues = dev->data->nb_rx_queues, failed = 0;

	if (dev->intr_handle != NULL && rte_intr_nb_efd_get(dev->intr_handle) == queues)
		return 0;
	conic_interrupts_remove(dev);
	handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
	if (handle == NULL)
		return -ENOMEM;
	dev->intr_handle = handle;
	/* Nothing is to be read from an epoll descriptor. */
	if (rte_intr_type_set(handle, RTE_INTR_HANDLE_VDEV) != 0 || rte_intr_efd_counter_size_set(handle, 0) != 0 ||
	    rte_intr_vec_list_alloc(handle, NULL, queues) != 0 || rte_intr_nb_efd_set(handle, queues) != 0 ||
	    rte_intr_max_intr_set(handle, queues + 1) != 0)
		failed = -ENOMEM;
	for (int i = 0; failed == 0 && i < queues; i++)
		failed = install_queue(handle, device->receive[i], i);
	if (failed != 0) {
		CONIC_LOG(ERR, "port %u: no interrupts: %s\n", dev->data->port_id, strerror(-failed));
		conic_interrupts_remove(dev);
	}
	return failed;
}

void conic_interrupts_remove(struct rte_eth_dev *dev)
{
	struct device *device = dev->data->dev_private;

	if (dev->intr_handle == NULL)
		return;
	for (uint32_t i = 0; i < device->queues; i++) {
		struct receive_queue *queue = device->receive[i];

		if (queue == NULL)
			continue;
		queue->bell_of = NULL;
		if (queue->interrupt <= 0)
			continue;
		close(queue->interrupt);
		if (queue->own_bell > 0)
			close(queue->own_bell);
		queue->interrupt = queue->own_bell = 0;
	}
	rte_intr_vec_list_free(dev->intr_handle);
	rte_intr_instance_free(dev->intr_handle);
	dev->intr_handle = NULL;
}

/* Wakes whoever waits for a queue: it may have to move on to another region. From any thread. */
void conic_interrupts_ring(struct device *device)
{
	for (uint32_t i = 0; i < device->queues; i++)
		if (device->receive[i] != NULL && device->receive[i]->interrupt > 0)
			/* It fails only where it is rung already. */
			eventfd_write(device->receive[i]->own_bell, 1);
}

int conic_interrupt_enable(struct rte_eth_dev *dev, uint16_t index)
{
	struct receive_queue *queue = dev->data->rx_queues[index];

	if (queue->interrupt <= 0)
		return -ENOTSUP;
	for (struct receive_queue *lane = queue; lane != NULL; lane = lane->next) {
		conic_receive_follow(lane);
		/* A bell whose other end is gone rings for ever; when the daemon is back, who waits is woken by the driver's own. */
		if (conic_half_is_up(lane->half))
			follow_bell(lane);
		else
			conic_interrupt_forget(lane);
		if (conic_half_arm(lane->half) || lane->taken < lane->held)
			eventfd_write(queue->own_bell, 1);
	}
	return 0;
}

int conic_interrupt_disable(struct rte_eth_dev *dev, uint16_t index)
{
	struct receive_queue *queue = dev->data->rx_queues[index];
	eventfd_t rung;

	if (queue->interrupt <= 0)
		return -ENOTSUP;
	for (struct receive_queue *lane = queue; lane != NULL; lane = lane->next)
		conic_half_disarm(lane->half);
	eventfd_read(queue->own_bell, &rung);
	return 0;
}
