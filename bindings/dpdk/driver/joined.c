/*
 * Receiving what the NIC has joined (LRO): TCP packets that stand for several, in up to four segments, and, from neighbours on the same
 * NIC, packets whose checksum is only begun.
 */
#include <rte_ip.h>
#include <rte_net.h>

#include "driver.h"

/* The next packet of those that are held, its segments chained; null if a segment found no mbuf. */
static struct rte_mbuf *next_packet(struct receive_queue *queue)
{
	struct rte_mbuf *packet = NULL;
	bool is_whole = true, goes_on;

	do {
		const struct conic_packet *segment = &queue->packets[queue->taken++];
		struct rte_mbuf *mbuf = conic_receive_segment(queue, segment);

		goes_on = (segment->word & CONIC_NEXT) != 0;
		is_whole = is_whole && mbuf != NULL;
		if (packet == NULL)
			packet = mbuf;
		else if (mbuf != NULL)
			/* It fails at more segments than are ever held. */
			rte_pktmbuf_chain(packet, mbuf);
	} while (goes_on && queue->taken < queue->held);
	if (is_whole && !goes_on)
		return packet;
	/* Without an end it is not the NIC's doing; what found no mbuf is counted there. */
	queue->counters.bad += goes_on;
	rte_pktmbuf_free(packet);
	return NULL;
}

/* Where a packet ends: where its IP header says so, if it has one; what comes behind is padding, and a peer's may be anything. */
static uint32_t end_of(const struct rte_mbuf *mbuf)
{
	struct rte_net_hdr_lens lengths = { 0 };
	uint32_t type = rte_net_get_ptype(mbuf, &lengths, RTE_PTYPE_L2_MASK | RTE_PTYPE_L3_MASK);
	bool is_four = RTE_ETH_IS_IPV4_HDR(type);
	uint32_t header = is_four ? sizeof(struct rte_ipv4_hdr) : sizeof(struct rte_ipv6_hdr);
	const void *network = rte_pktmbuf_mtod_offset(mbuf, const void *, lengths.l2_len);

	if ((!is_four && !RTE_ETH_IS_IPV6_HDR(type)) || lengths.l2_len + header > mbuf->data_len)
		return mbuf->pkt_len;
	return RTE_MIN(mbuf->pkt_len, lengths.l2_len + conic_network_bytes(is_four, network));
}

/* Completes a checksum that was begun, so that the packet can be sent on as it is; false where its place is not in the packet. */
static bool complete(struct rte_mbuf *mbuf, uint64_t metadata)
{
	uint32_t start = conic_metadata_start(metadata), at = start + conic_metadata_offset(metadata);
	uint16_t sum;

	if (at + sizeof(sum) > mbuf->data_len)
		return false;
	sum = ~conic_sum(mbuf, start, RTE_MAX(end_of(mbuf), at + (uint32_t)sizeof(sum)) - start, 0);
	/* Zero would be no checksum to UDP, and is all ones to both. */
	*rte_pktmbuf_mtod_offset(mbuf, unaligned_uint16_t *, at) = sum == 0 ? UINT16_MAX : sum;
	return true;
}

/* Says of a packet what the NIC said of it. */
static void tell(const struct receive_queue *queue, struct rte_mbuf *mbuf, uint64_t metadata)
{
	if ((metadata & CONIC_METADATA_LARGE) != 0) {
		mbuf->tx_offload = 0;
		mbuf->tso_segsz = conic_metadata_size(metadata);
		mbuf->ol_flags |= RTE_MBUF_F_RX_LRO | RTE_MBUF_F_RX_L4_CKSUM_NONE;
	} else if ((metadata & CONIC_METADATA_BEGUN) != 0 && complete(mbuf, metadata)) {
		metadata |= CONIC_METADATA_TRANSPORT_GOOD;
	}
	if ((queue->wishes | (metadata & CONIC_METADATA_VLAN)) != 0)
		conic_examine(queue, mbuf, metadata);
}

uint16_t conic_receive_joined(void *of, struct rte_mbuf **mbufs, uint16_t most)
{
	struct receive_queue *queue = of;
	uint16_t filled = 0;

	/* What finds no mbuf counts as well: a sender may be faster than it is dropped. */
	for (uint16_t seen = 0; seen < most; seen++) {
		struct rte_mbuf *mbuf;
		uint64_t metadata;

		if (queue->taken == queue->held) {
			queue->taken = 0;
			/* With room for many segments: each packet comes whole. What the application has no room for is held. */
			queue->held = conic_half_receive(queue->half, queue->packets, CONIC_BURST);
			if (queue->held == 0)
				break;
		}
		metadata = queue->packets[queue->taken].metadata;
		mbuf = next_packet(queue);
		if (mbuf == NULL)
			continue;
		queue->counters.packets++;
		/* As it came: a tag that is taken out counts, as it does where nothing is joined. */
		queue->counters.bytes += mbuf->pkt_len;
		tell(queue, mbuf, metadata);
		mbufs[filled++] = mbuf;
	}
	if (filled == 0)
		conic_receive_idle(queue);
	return filled;
}
