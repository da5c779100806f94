/* Regions of shared memory, as long as something in them may be used. */
#include <rte_malloc.h>

#include "driver.h"

static struct region *regions;
static rte_spinlock_t lock = RTE_SPINLOCK_INITIALIZER;

struct region *conic_regions(void)
{
	return regions;
}

/* Takes every large buffer that nobody has out of the pool: none is given to the NIC before there is an mbuf in it. */
static void take_large(struct region *region)
{
	const struct conic_class *large = &region->layout.classes[CONIC_LARGE];
	uint64_t from = 0, some[64];
	uint32_t count;

	while ((count = conic_memory_take(region->memory, CONIC_LARGE, &from, some, RTE_DIM(some))) > 0)
		for (uint32_t i = 0; i < count; i++)
			region->taken[(some[i] - large->start) >> large->shift] = 1;
}

/* There are no mbufs in it any more. What the NIC or a queue still has is not taken. */
void conic_region_clear(struct region *region)
{
	region->owner = NULL;
	region->mbufs = 0;
	memset(region->taken, 0, region->layout.classes[CONIC_LARGE].count);
	take_large(region);
}

/* No mbufs come into it: its large buffers are for packets alone. */
void conic_region_give_up(struct region *region)
{
	const struct conic_class *large = &region->layout.classes[CONIC_LARGE];

	if (!region->for_mbufs || region->owner != NULL)
		return;
	region->for_mbufs = false;
	for (uint64_t i = 0; i < large->count; i++) {
		uint64_t at = large->start + (i << large->shift);

		if (region->taken[i] != 0)
			conic_memory_give(region->memory, &at, 1);
		region->taken[i] = 0;
	}
}

static struct region *make(struct conic_memory *memory, const struct conic_layout *layout, bool for_mbufs)
{
	uint64_t large = layout->classes[CONIC_LARGE].count, jumbo = layout->classes[CONIC_JUMBO].count;
	struct region *region = rte_zmalloc("conic region", sizeof(*region), 0);

	if (region == NULL)
		return NULL;
	region->taken = rte_zmalloc("conic taken", large + 1, 0);
	region->shared = rte_zmalloc("conic shared", (large + jumbo + 1) * sizeof(*region->shared), 0);
	if (region->taken == NULL || region->shared == NULL) {
		rte_free(region->taken);
		rte_free(region->shared);
		rte_free(region);
		return NULL;
	}
	region->memory = memory;
	region->layout = *layout;
	region->for_mbufs = for_mbufs;
	if (for_mbufs)
		take_large(region);
	region->next = regions;
	regions = region;
	return region;
}

/* The region that a half is in; null if there is no memory to keep an account of it. */
struct region *conic_region_of(const struct conic_half *half, bool for_mbufs)
{
	struct conic_memory *memory = conic_half_memory(half);
	struct conic_layout layout;
	struct region *region;

	conic_memory_layout(memory, &layout);
	rte_spinlock_lock(&lock);
	for (region = regions; region != NULL; region = region->next)
		if (region->layout.base == layout.base)
			break;
	if (region != NULL)
		conic_memory_close(memory);
	else
		region = make(memory, &layout, for_mbufs);
	rte_spinlock_unlock(&lock);
	return region;
}

/* Bytes that a packet has room for in a region, in as many of its longest buffers as it may have segments. */
uint32_t conic_region_longest(const struct region *region)
{
	uint64_t largest = 0;

	for (int i = 0; i < CONIC_CLASSES; i++)
		if (region->layout.classes[i].count > 0)
			largest = region->layout.classes[i].room;
	return CONIC_MOST_SEGMENTS * largest;
}

static void give_back(void *address, void *opaque)
{
	struct region *region = opaque;
	uint64_t at = (uint8_t *)address - region->layout.base;

	conic_memory_give(region->memory, &at, 1);
}

/* What an mbuf elsewhere needs that points to a large or jumbo buffer; null for others. */
struct rte_mbuf_ext_shared_info *conic_region_share(struct region *region, uint64_t address)
{
	const struct conic_class *large = &region->layout.classes[CONIC_LARGE];
	const struct conic_class *jumbo = &region->layout.classes[CONIC_JUMBO];
	struct rte_mbuf_ext_shared_info *shared;

	if (address - large->start < large->bytes)
		shared = &region->shared[(address - large->start) >> large->shift];
	else if (address - jumbo->start < jumbo->bytes)
		shared = &region->shared[large->count + ((address - jumbo->start) >> jumbo->shift)];
	else
		return NULL;
	shared->free_cb = give_back;
	shared->fcb_opaque = region;
	rte_mbuf_ext_refcnt_set(shared, 1);
	return shared;
}
