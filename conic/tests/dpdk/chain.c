/*
 * The driver's own text sends a chain of mbufs, over a NIC that is played here and has passed its buffers on before the driver has the
 * answer: the driver has not touched them since. What the NIC does not take is the chain that it was.
 */
#include <stdio.h>
#include <stdlib.h>

#include "../../../bindings/dpdk/driver/transmit.c"

#define SEGMENTS 3
#define LENGTH 100
/* What whoever has the buffers next makes of them. */
#define OTHERS_SEGMENTS 7

struct conic_half {
	bool takes;
};

static uint8_t memory[SEGMENTS << CONIC_LARGE_SHIFT] __rte_cache_aligned;
static struct rte_mbuf others;

static void check(int is_so, const char *what)
{
	if (!is_so) {
		printf("this is not so: %s\n", what);
		exit(1);
	}
}

static struct rte_mbuf *segment(unsigned int index)
{
	return (struct rte_mbuf *)(memory + (index << CONIC_LARGE_SHIFT));
}

uint32_t conic_half_send(struct conic_half *half, const struct conic_packet *packets, uint32_t count)
{
	check(count == SEGMENTS, "all segments are sent at once");
	if (!half->takes)
		return 0;
	for (unsigned int i = 0; i < SEGMENTS; i++) {
		check(conic_packet_address(&packets[i]) == (i << CONIC_LARGE_SHIFT) + sizeof(struct rte_mbuf) &&
		      conic_packet_length(&packets[i]) == LENGTH, "each in its turn");
		check(segment(i)->next == NULL && segment(i)->nb_segs == 1, "each is an mbuf by itself");
		segment(i)->next = &others;
		segment(i)->nb_segs = OTHERS_SEGMENTS;
	}
	return count;
}

bool conic_half_is_stale(const struct conic_half *half)
{
	RTE_SET_USED(half);
	return false;
}

bool conic_requests_prepare(const struct rte_mbuf *mbuf, uint8_t *bytes, uint32_t length, uint64_t *metadata)
{
	RTE_SET_USED(mbuf);
	RTE_SET_USED(bytes);
	RTE_SET_USED(length);
	*metadata = 0;
	return true;
}

/* None of these is needed for a chain of the region's own mbufs. */
uint32_t conic_half_allocate(struct conic_half *half, uint64_t bytes, uint64_t *out, uint32_t count)
{
	RTE_SET_USED(half);
	RTE_SET_USED(bytes);
	RTE_SET_USED(out);
	RTE_SET_USED(count);
	abort();
}

void conic_half_free(struct conic_half *half, const uint64_t *buffers, uint32_t count)
{
	RTE_SET_USED(half);
	RTE_SET_USED(buffers);
	RTE_SET_USED(count);
	abort();
}

bool conic_half_renew(struct conic_half *half)
{
	RTE_SET_USED(half);
	abort();
}

void conic_region_follow(const struct device *device, const struct conic_half *half, struct region **place)
{
	RTE_SET_USED(device);
	RTE_SET_USED(half);
	RTE_SET_USED(place);
	abort();
}

uint32_t conic_region_longest(const struct region *region)
{
	RTE_SET_USED(region);
	abort();
}

bool conic_offloads_are_known(uint64_t flags)
{
	RTE_SET_USED(flags);
	abort();
}

int main(void)
{
	static struct conic_half half;
	static struct transmit_queue queue = {
		.half = &half,
		.base = memory,
		.mbufs = { .bytes = sizeof(memory), .count = SEGMENTS, .shift = CONIC_LARGE_SHIFT },
		.longest = CONIC_LONGEST,
		.longest_large = CONIC_LONGEST_LARGE,
		.largest = 1 << CONIC_LARGE_SHIFT,
	};
	struct rte_mbuf *first = segment(0);

	for (unsigned int i = 0; i < SEGMENTS; i++) {
		segment(i)->buf_addr = segment(i) + 1;
		segment(i)->nb_segs = i == 0 ? SEGMENTS : 1;
		segment(i)->next = i + 1 < SEGMENTS ? segment(i + 1) : NULL;
		segment(i)->data_len = LENGTH;
		rte_mbuf_refcnt_set(segment(i), 1);
	}
	first->pkt_len = SEGMENTS * LENGTH;
	check(conic_transmit(&queue, &first, 1) == 0, "nothing is taken");
	for (unsigned int i = 0; i < SEGMENTS; i++)
		check(segment(i)->nb_segs == (i == 0 ? SEGMENTS : 1) &&
		      segment(i)->next == (i + 1 < SEGMENTS ? segment(i + 1) : NULL), "what was not taken is a chain still");
	half.takes = true;
	check(conic_transmit(&queue, &first, 1) == 1, "all is taken");
	for (unsigned int i = 0; i < SEGMENTS; i++)
		check(segment(i)->next == &others && segment(i)->nb_segs == OTHERS_SEGMENTS, "nobody touches what another has");
	check(queue.counters.packets == 1 && queue.counters.bytes == SEGMENTS * LENGTH && queue.counters.chained == 1,
	      "it is counted");
	puts("all as it should be");
	return 0;
}
