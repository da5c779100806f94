/* Sending: mbufs become packets. */
#include <rte_memcpy.h>

#include "driver.h"

/* Moves on to the region of the present connection, if there is another. */
void conic_transmit_follow(struct transmit_queue *queue)
{
	struct region *region;

	if (conic_half_is_stale(queue->half))
		conic_half_renew(queue->half);
	region = conic_region_of(queue->half, false);
	if (region != NULL)
		queue->region = region;
	queue->base = queue->region->layout.base;
	memset(&queue->mbufs, 0, sizeof(queue->mbufs));
	if (queue->region->mbufs > 0)
		queue->mbufs = queue->region->layout.classes[CONIC_LARGE];
}

/* Whether the mbuf can be handed over as it is: it lies in this region, nobody else refers to it, and it is whole. */
static __rte_always_inline bool is_direct(const struct transmit_queue *queue, const struct rte_mbuf *mbuf)
{
	uint64_t at = (uint8_t *)(uintptr_t)mbuf - queue->base;

	return at - queue->mbufs.start < queue->mbufs.bytes && mbuf->nb_segs == 1 && rte_mbuf_refcnt_read(mbuf) == 1 &&
	       RTE_MBUF_DIRECT(mbuf) && mbuf->data_len > 0;
}

/* Copies a packet, of however many segments, into a buffer; false if there is none. */
static __rte_noinline bool copy(struct transmit_queue *queue, const struct rte_mbuf *mbuf, uint64_t *address)
{
	uint8_t *to;

	if (conic_half_allocate(queue->half, mbuf->pkt_len, address, 1) == 0) {
		queue->counters.no_buffer++;
		return false;
	}
	to = queue->base + *address;
	for (; mbuf != NULL; mbuf = mbuf->next) {
		rte_memcpy(to, rte_pktmbuf_mtod(mbuf, const void *), mbuf->data_len);
		to += mbuf->data_len;
	}
	return true;
}

/* What was taken of a burst in which some were copied: those mbufs are free, and the buffers of those not taken. */
static __rte_noinline void settle(struct transmit_queue *queue, struct rte_mbuf **mbufs, uint16_t built, uint16_t sent,
				  uint64_t copied)
{
	for (uint16_t i = 0; i < built; i++) {
		if ((copied >> i & 1) == 0)
			continue;
		if (i < sent) {
			queue->counters.copied++;
			queue->counters.direct--;
			rte_pktmbuf_free(mbufs[i]);
		} else {
			conic_half_free(queue->half, &queue->buffers[i], 1);
		}
	}
}

/* Sends up to CONIC_BURST packets from the front; gives how many were taken. One that can never be sent is freed, and counts. */
static uint16_t send_some(struct transmit_queue *queue, struct rte_mbuf **mbufs, uint16_t count)
{
	uint64_t copied = 0, bytes = 0;
	uint16_t built, sent;

	for (built = 0; built < count; built++) {
		struct rte_mbuf *mbuf = mbufs[built];
		uint64_t address;

		if (likely(is_direct(queue, mbuf))) {
			address = (uint8_t *)mbuf->buf_addr - queue->base + mbuf->data_off;
			queue->packets[built] = conic_packet_of(address, mbuf->data_len);
			continue;
		}
		if (unlikely(mbuf->pkt_len == 0 || mbuf->pkt_len > queue->longest)) {
			if (built > 0)
				break;
			queue->counters.bad++;
			rte_pktmbuf_free(mbuf);
			return 1;
		}
		if (!copy(queue, mbuf, &queue->buffers[built]))
			break;
		copied |= UINT64_C(1) << built;
		queue->packets[built] = conic_packet_of(queue->buffers[built], mbuf->pkt_len);
	}
	if (built == 0)
		return 0;
	sent = conic_half_send(queue->half, queue->packets, built);
	for (uint16_t i = 0; i < sent; i++)
		bytes += conic_packet_length(&queue->packets[i]);
	queue->counters.packets += sent;
	queue->counters.bytes += bytes;
	queue->counters.direct += sent;
	if (unlikely(copied != 0))
		settle(queue, mbufs, built, sent, copied);
	return sent;
}

uint16_t conic_transmit(void *of, struct rte_mbuf **mbufs, uint16_t count)
{
	struct transmit_queue *queue = of;
	uint16_t done = 0;

	while (done < count) {
		uint16_t taken = send_some(queue, mbufs + done, RTE_MIN(count - done, CONIC_BURST));

		if (taken == 0) {
			/* The ring is full, or is that of a daemon that is gone. */
			if (likely(!conic_half_is_stale(queue->half)))
				break;
			conic_transmit_follow(queue);
		}
		done += taken;
	}
	return done;
}

/* Says which packets cannot be sent. */
uint16_t conic_transmit_prepare(void *of, struct rte_mbuf **mbufs, uint16_t count)
{
	const struct transmit_queue *queue = of;

	for (uint16_t i = 0; i < count; i++) {
		if (mbufs[i]->pkt_len == 0 || mbufs[i]->pkt_len > queue->longest) {
			rte_errno = EINVAL;
			return i;
		}
	}
	return count;
}
