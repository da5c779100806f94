/* Receiving: packets become mbufs. */
#include <rte_memcpy.h>

#include "driver.h"

/* Empty polls after which a queue looks whether it has to move on to another region. */
#define POLLS_BETWEEN_LOOKS 1024

/* Whether the mbufs of a queue's region are of a mempool that it receives into. */
static bool is_of_its_pools(const struct receive_queue *queue, const struct region *region)
{
	for (uint16_t i = 0; i < queue->pool_count; i++)
		if (queue->pools[i] == region->owner)
			return true;
	return false;
}

/* Whether a mempool's mbufs have buffers outside that are theirs for good. */
static bool is_pinned(struct rte_mempool *pool)
{
	return (rte_pktmbuf_priv_flags(pool) & RTE_PKTMBUF_POOL_F_PINNED_EXT_BUF) != 0;
}

/* Says where the mbufs are that the queue receives into in place, and what they are rearmed with. */
static void settle(struct receive_queue *queue)
{
	struct region *region = queue->region;
	struct rte_mbuf sample = { .port = queue->device->dev->data->port_id, .nb_segs = 1 };

	queue->base = region->layout.base;
	memset(&queue->mbufs, 0, sizeof(queue->mbufs));
	/* A packet that comes into another mempool's mbuf is copied or pointed to: that mempool may be freed under this queue. */
	if (region->mbufs > 0 && is_of_its_pools(queue, region))
		queue->mbufs = region->layout.classes[CONIC_LARGE];
	queue->back = CONIC_HEADROOM - RTE_MEMPOOL_HEADER_BYTES;
	queue->room = region->placed_room;
	rte_mbuf_refcnt_set(&sample, 1);
	sample.data_off = region->placed_element;
	memcpy(&queue->rearm, &sample.rearm_data, sizeof(queue->rearm));
	queue->attach_from = queue->device->attach_from;
	/* An mbuf with a buffer of its own outside points nowhere else: freed, it would not come back to its mempool. */
	if (queue->pool_count > 0 && is_pinned(queue->pools[queue->pool_count - 1]))
		queue->attach_from = UINT32_MAX;
}

/* Frees what was received and not handed out. */
static void free_held(struct receive_queue *queue)
{
	for (; queue->taken < queue->held; queue->taken++) {
		uint64_t address = conic_packet_address(&queue->packets[queue->taken]);

		conic_half_free(queue->half, &address, 1);
	}
}

/* Moves on to the region of the present connection, if there is another. */
void conic_receive_follow(struct receive_queue *queue)
{
	queue->idle = 0;
	if (conic_half_is_stale(queue->half)) {
		conic_interrupt_forget(queue);
		/* It lies in the region that is left, to which renewing gives it back. */
		free_held(queue);
		queue->taken = queue->held = 0;
		conic_half_renew(queue->half);
	}
	conic_region_follow(queue->device, queue->half, &queue->region);
	settle(queue);
}

/* There was nothing: looks now and then whether the queue has to move on. */
void conic_receive_idle(struct receive_queue *queue)
{
	if (unlikely(++queue->idle == POLLS_BETWEEN_LOOKS))
		conic_receive_follow(queue);
}

/* The mbuf whose buffer the packet is in; null if there is none there. */
static __rte_always_inline struct rte_mbuf *mbuf_of(const struct receive_queue *queue, uint64_t address)
{
	const struct conic_class *class = &queue->mbufs;
	uint64_t offset = address & ((UINT64_C(1) << class->shift) - 1);

	if (unlikely(address - class->start >= class->bytes ||
		     offset != class->headroom + (address >> class->shift & class->places) * RTE_CACHE_LINE_SIZE))
		return NULL;
	return (struct rte_mbuf *)(queue->base + address - queue->back);
}

static __rte_always_inline void fill(const struct receive_queue *queue, struct rte_mbuf *mbuf, uint16_t length)
{
	memcpy(&mbuf->rearm_data, &queue->rearm, sizeof(queue->rearm));
	mbuf->ol_flags = 0;
	mbuf->packet_type = 0;
	mbuf->pkt_len = length;
	mbuf->data_len = length;
	mbuf->vlan_tci = 0;
	mbuf->hash.rss = 0;
}

/* The mempool for a packet: the first with room for it, or the last. */
static unsigned int pool_for(const struct receive_queue *queue, uint16_t length)
{
	unsigned int i;

	for (i = 0; i + 1 < queue->pool_count; i++)
		if (length <= queue->pool_rooms[i])
			break;
	return i;
}

/* A packet copied into an mbuf, or into a chain of them. */
static struct rte_mbuf *copy(struct receive_queue *queue, uint64_t address, uint16_t length)
{
	unsigned int pool = pool_for(queue, length);
	uint16_t room = queue->pool_rooms[pool], done = 0;
	struct rte_mbuf *first = NULL, **link = &first;

	if (length > room && !queue->scatter) {
		queue->counters.too_long++;
		return NULL;
	}
	while (done < length) {
		uint16_t piece = RTE_MIN(length - done, room);
		struct rte_mbuf *mbuf = rte_pktmbuf_alloc(queue->pools[pool]);

		if (mbuf == NULL) {
			rte_pktmbuf_free(first);
			queue->counters.no_mbuf++;
			return NULL;
		}
		rte_memcpy(rte_pktmbuf_mtod(mbuf, void *), queue->base + address + done, piece);
		mbuf->data_len = piece;
		*link = mbuf;
		link = &mbuf->next;
		if (mbuf != first)
			first->nb_segs++;
		done += piece;
	}
	first->pkt_len = length;
	first->port = queue->device->dev->data->port_id;
	queue->counters.copied++;
	return first;
}

/* A packet that an mbuf from elsewhere points to; null if that cannot be. */
static struct rte_mbuf *attach(struct receive_queue *queue, uint64_t address, uint16_t length)
{
	struct region *region = queue->region;
	struct rte_mbuf_ext_shared_info *shared = conic_region_share(region, address);
	const struct conic_class *class;
	struct rte_mbuf *mbuf;
	uint64_t before;

	if (shared == NULL)
		return NULL;
	mbuf = rte_pktmbuf_alloc(queue->pools[queue->pool_count - 1]);
	if (mbuf == NULL)
		return NULL;
	class = &region->layout.classes[CONIC_LARGE];
	if (address - class->start >= class->bytes)
		class = &region->layout.classes[CONIC_JUMBO];
	/* In front of it may lie another mempool's mbuf, whose private bytes are kept. */
	before = RTE_MIN(address & ((UINT64_C(1) << class->shift) - 1),
			 (uint64_t)(region->mbufs > 0 ? region->placed_element : RTE_PKTMBUF_HEADROOM));
	rte_pktmbuf_attach_extbuf(mbuf, queue->base + address - before, RTE_BAD_IOVA,
				  RTE_MIN(before + class->room, (uint64_t)UINT16_MAX), shared);
	/* None of its own: the region stays for as long as it points there. */
	__atomic_fetch_add(&region->attached, 1, __ATOMIC_RELAXED);
	mbuf->data_off = before;
	mbuf->data_len = mbuf->pkt_len = length;
	mbuf->port = queue->device->dev->data->port_id;
	queue->counters.attached++;
	return mbuf;
}

/* A packet that lies in no mbuf. */
static __rte_noinline struct rte_mbuf *bring(struct receive_queue *queue, const struct conic_packet *packet)
{
	uint64_t address = conic_packet_address(packet);
	uint16_t length = conic_packet_length(packet);
	struct rte_mbuf *mbuf;

	if (((packet->word & CONIC_NEXT) != 0 && !queue->device->joins) || length == 0 || address + length > queue->region->layout.bytes) {
		queue->counters.bad++;
		return NULL;
	}
	if (length >= queue->attach_from) {
		mbuf = attach(queue, address, length);
		if (mbuf != NULL)
			return mbuf;
	}
	mbuf = copy(queue, address, length);
	conic_half_free(queue->half, &address, 1);
	return mbuf;
}

/* The mbuf of a packet, or of a segment of one; null if there is none for it, which is counted. */
static __rte_always_inline struct rte_mbuf *take(struct receive_queue *queue, const struct conic_packet *packet)
{
	struct rte_mbuf *mbuf = mbuf_of(queue, conic_packet_address(packet));
	uint16_t length = conic_packet_length(packet);

	if (unlikely(mbuf == NULL))
		return bring(queue, packet);
	fill(queue, mbuf, length);
	if (unlikely(length > queue->room))
		/* The buffer has more room than the mempool was made for. */
		mbuf->buf_len = mbuf->data_off + queue->mbufs.room;
	queue->counters.direct++;
	return mbuf;
}

struct rte_mbuf *conic_receive_segment(struct receive_queue *queue, const struct conic_packet *segment)
{
	return take(queue, segment);
}

/* Asks for the first lines of packets that the driver itself will read, all before the first of them. */
static __rte_noinline void ask_for_payloads(const struct receive_queue *queue, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		rte_prefetch0(queue->base + conic_packet_address(&queue->packets[i]));
}

uint16_t conic_receive(void *of, struct rte_mbuf **mbufs, uint16_t most)
{
	struct receive_queue *queue = of;
	uint16_t filled = 0, seen = 0;

	/* What finds no mbuf counts as well: a sender may be faster than it is dropped. */
	while (seen < most) {
		uint32_t want = RTE_MIN(most - seen, CONIC_BURST);
		uint32_t count = conic_half_receive(queue->half, queue->packets, want);
		uint64_t bytes = 0;
		uint16_t before = filled;

		if (unlikely(queue->wishes != 0 || queue->mbufs.bytes == 0))
			ask_for_payloads(queue, count);
		for (uint32_t i = 0; i < count; i++) {
			const struct conic_packet *packet = &queue->packets[i];
			uint16_t length = conic_packet_length(packet);
			struct rte_mbuf *mbuf = take(queue, packet);

			if (unlikely(mbuf == NULL))
				continue;
			if (unlikely((queue->wishes | (packet->metadata & CONIC_METADATA_VLAN)) != 0))
				conic_examine(queue, mbuf, packet->metadata);
			bytes += length;
			mbufs[filled++] = mbuf;
		}
		queue->counters.packets += filled - before;
		queue->counters.bytes += bytes;
		seen += count;
		if (count < want)
			break;
	}
	if (filled == 0)
		conic_receive_idle(queue);
	return filled;
}

/* Frees what has come. */
void conic_receive_discard(struct receive_queue *queue)
{
	uint32_t count, rounds = 2 * queue->device->descriptors / CONIC_BURST + 1;

	free_held(queue);
	/* Bounded: a sender may be faster than this. */
	for (; rounds > 0 && (count = conic_half_receive(queue->half, queue->packets, CONIC_BURST)) > 0; rounds--) {
		for (uint32_t i = 0; i < count; i++) {
			uint64_t address = conic_packet_address(&queue->packets[i]);

			conic_half_free(queue->half, &address, 1);
		}
	}
}
