/* Sending: mbufs become packets. */
#include <rte_memcpy.h>

#include "driver.h"

/* Moves on to the region of the present connection, if there is another. */
void conic_transmit_follow(struct transmit_queue *queue)
{
	uint32_t room;

	if (conic_half_is_stale(queue->half))
		conic_half_renew(queue->half);
	conic_region_follow(queue->device, queue->half, &queue->region);
	queue->base = queue->region->layout.base;
	memset(&queue->mbufs, 0, sizeof(queue->mbufs));
	if (queue->region->mbufs > 0)
		queue->mbufs = queue->region->layout.classes[CONIC_LARGE];
	room = conic_region_longest(queue->region);
	queue->largest = room / CONIC_MOST_SEGMENTS;
	queue->longest = RTE_MIN((uint32_t)CONIC_LONGEST, room);
	queue->longest_large = RTE_MIN(CONIC_LONGEST_LARGE, room);
}

/* Whether an mbuf's buffer can be handed over: it lies in this region, and nobody else refers to it. */
static __rte_always_inline bool is_own(const struct transmit_queue *queue, const struct rte_mbuf *mbuf)
{
	uint64_t at = (uint8_t *)(uintptr_t)mbuf - queue->base;

	return at - queue->mbufs.start < queue->mbufs.bytes && rte_mbuf_refcnt_read(mbuf) == 1 && RTE_MBUF_DIRECT(mbuf) &&
	       mbuf->data_len > 0;
}

static __rte_always_inline struct conic_packet packet_of(const struct transmit_queue *queue, const struct rte_mbuf *mbuf)
{
	return conic_packet_of((uint8_t *)mbuf->buf_addr - queue->base + mbuf->data_off, mbuf->data_len);
}

/* The most bytes that a packet with these flags may have. */
static __rte_always_inline uint32_t longest_of(const struct transmit_queue *queue, const struct rte_mbuf *mbuf)
{
	return (mbuf->ol_flags & RTE_MBUF_F_TX_TCP_SEG) != 0 ? queue->longest_large : queue->longest;
}

/*
 * Copies a packet, of however many segments, into `count` buffers, of which all but the last are filled with `piece` bytes each;
 * false if there are not as many.
 */
static __rte_noinline bool copy(struct transmit_queue *queue, const struct rte_mbuf *mbuf, uint64_t *addresses, uint32_t count,
				uint32_t piece)
{
	uint32_t got = conic_half_allocate(queue->half, RTE_MIN(piece, mbuf->pkt_len), addresses, count), filled = 0;

	if (got < count) {
		conic_half_free(queue->half, addresses, got);
		queue->counters.no_buffer++;
		return false;
	}
	for (; mbuf != NULL; mbuf = mbuf->next) {
		for (uint32_t done = 0, some; done < mbuf->data_len; done += some, filled += some) {
			some = RTE_MIN(mbuf->data_len - done, piece - filled % piece);
			rte_memcpy(queue->base + addresses[filled / piece] + filled % piece,
				   rte_pktmbuf_mtod_offset(mbuf, const void *, done), some);
		}
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

/* Whether a packet's segments can all be handed over as they are. */
static bool is_own_chain(const struct transmit_queue *queue, const struct rte_mbuf *mbuf)
{
	bool is_large = (mbuf->ol_flags & RTE_MBUF_F_TX_TCP_SEG) != 0;

	if (mbuf->nb_segs < 2 || mbuf->nb_segs > CONIC_MOST_SEGMENTS)
		return false;
	/* Checksums are filled in where a packet lies in one piece; of one that the NIC cuts only the headers are looked at. */
	if (is_large ? mbuf->l2_len + mbuf->l3_len + mbuf->l4_len > mbuf->data_len : (mbuf->ol_flags & CONIC_CHECKSUMS) != 0)
		return false;
	/* As many as it says, and no more than are sent at once. */
	for (uint16_t left = mbuf->nb_segs; mbuf != NULL; mbuf = mbuf->next)
		if (left-- == 0 || !is_own(queue, mbuf))
			return false;
	return true;
}

/* Counts a packet that went alone. */
static void count_alone(struct transmit_queue *queue, uint32_t bytes)
{
	queue->counters.packets++;
	queue->counters.bytes += bytes;
}

/* Sends a packet of own segments; gives how many were taken: one, or none. */
static uint16_t send_chain(struct transmit_queue *queue, struct rte_mbuf *mbuf, uint64_t metadata)
{
	uint32_t count = 0, bytes = mbuf->pkt_len;
	struct rte_mbuf *segments[CONIC_MOST_SEGMENTS];

	for (; mbuf != NULL; mbuf = mbuf->next) {
		queue->packets[count] = packet_of(queue, mbuf);
		queue->packets[count].word |= mbuf->next != NULL ? CONIC_NEXT : 0;
		segments[count++] = mbuf;
	}
	queue->packets[0].metadata = metadata;
	/* Whoever receives into a buffer or allocates it next finds an mbuf by itself, and may do so as soon as the NIC has it. */
	for (uint32_t i = 0; i < count; i++) {
		segments[i]->next = NULL;
		segments[i]->nb_segs = 1;
	}
	if (conic_half_send(queue->half, queue->packets, count) == 0) {
		segments[0]->nb_segs = count;
		for (uint32_t i = 0; i + 1 < count; i++)
			segments[i]->next = segments[i + 1];
		return 0;
	}
	count_alone(queue, bytes);
	queue->counters.chained++;
	return 1;
}

/* Sends a packet for which one buffer has no room, copied into several; gives how many were taken: one, or none. */
static uint16_t send_in_pieces(struct transmit_queue *queue, struct rte_mbuf *mbuf)
{
	uint32_t count = (mbuf->pkt_len + queue->largest - 1) / queue->largest, left = mbuf->pkt_len;
	uint64_t addresses[CONIC_MOST_SEGMENTS], metadata;

	if (!copy(queue, mbuf, addresses, count, queue->largest))
		return 0;
	if (!conic_requests_prepare(mbuf, queue->base + addresses[0], RTE_MIN(left, queue->largest), &metadata)) {
		conic_half_free(queue->half, addresses, count);
		queue->counters.bad++;
		rte_pktmbuf_free(mbuf);
		return 1;
	}
	for (uint32_t i = 0; i < count; i++, left -= RTE_MIN(left, queue->largest)) {
		queue->packets[i] = conic_packet_of(addresses[i], RTE_MIN(left, queue->largest));
		queue->packets[i].word |= i + 1 < count ? CONIC_NEXT : 0;
	}
	queue->packets[0].metadata = metadata;
	if (conic_half_send(queue->half, queue->packets, count) == 0) {
		conic_half_free(queue->half, addresses, count);
		return 0;
	}
	count_alone(queue, mbuf->pkt_len);
	queue->counters.copied++;
	rte_pktmbuf_free(mbuf);
	return 1;
}

/* What becomes of an mbuf that needs more than to be handed over. */
enum outcome {
	/* Its packet stands among those to be sent. */
	BUILT,
	/* It has to wait: no buffer is free. */
	WAITS,
	/* It goes alone, by `send_alone`. */
	ALONE,
};

static __rte_noinline enum outcome build(struct transmit_queue *queue, const struct rte_mbuf *mbuf, uint16_t index,
					 uint64_t *copied)
{
	uint64_t address, metadata;
	bool is_in_place = mbuf->nb_segs == 1 && is_own(queue, mbuf);

	if (mbuf->pkt_len == 0 || mbuf->pkt_len > longest_of(queue, mbuf) || is_own_chain(queue, mbuf) ||
	    (!is_in_place && mbuf->pkt_len > queue->largest))
		return ALONE;
	if (is_in_place) {
		queue->packets[index] = packet_of(queue, mbuf);
		address = conic_packet_address(&queue->packets[index]);
		if (!conic_requests_prepare(mbuf, queue->base + address, mbuf->data_len, &metadata))
			return ALONE;
		queue->packets[index].metadata = metadata;
		return BUILT;
	}
	if (!copy(queue, mbuf, &address, 1, mbuf->pkt_len))
		return WAITS;
	if (!conic_requests_prepare(mbuf, queue->base + address, mbuf->pkt_len, &metadata)) {
		conic_half_free(queue->half, &address, 1);
		return ALONE;
	}
	*copied |= UINT64_C(1) << index;
	queue->buffers[index] = address;
	queue->packets[index] = conic_packet_of(address, mbuf->pkt_len);
	queue->packets[index].metadata = metadata;
	return BUILT;
}

/* Sends a packet of several buffers; one that can never be sent is freed, and counts as taken. */
static __rte_noinline uint16_t send_alone(struct transmit_queue *queue, struct rte_mbuf *mbuf)
{
	uint32_t bytes = mbuf->pkt_len;
	uint64_t metadata;

	if (bytes > 0 && bytes <= longest_of(queue, mbuf)) {
		if (is_own_chain(queue, mbuf)) {
			if (conic_requests_prepare(mbuf, rte_pktmbuf_mtod(mbuf, uint8_t *), mbuf->data_len, &metadata))
				return send_chain(queue, mbuf, metadata);
		} else if (bytes > queue->largest) {
			return send_in_pieces(queue, mbuf);
		}
	}
	queue->counters.bad++;
	rte_pktmbuf_free(mbuf);
	return 1;
}

/* Sends up to CONIC_BURST packets from the front; gives how many were taken. */
static uint16_t send_some(struct transmit_queue *queue, struct rte_mbuf **mbufs, uint16_t count)
{
	uint64_t copied = 0, bytes = 0;
	uint16_t built, sent;

	for (built = 0; built < count; built++) {
		struct rte_mbuf *mbuf = mbufs[built];
		enum outcome outcome;

		if (likely(mbuf->nb_segs == 1 && (mbuf->ol_flags & CONIC_REQUESTS) == 0 && is_own(queue, mbuf))) {
			queue->packets[built] = packet_of(queue, mbuf);
			continue;
		}
		outcome = build(queue, mbuf, built, &copied);
		if (outcome == ALONE && built == 0)
			return send_alone(queue, mbuf);
		if (outcome != BUILT)
			break;
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
		if (mbufs[i]->pkt_len == 0 || mbufs[i]->pkt_len > longest_of(queue, mbufs[i])) {
			rte_errno = EINVAL;
			return i;
		}
		if (!conic_offloads_are_known(mbufs[i]->ol_flags)) {
			rte_errno = ENOTSUP;
			return i;
		}
	}
	return count;
}
