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

/* Whether its device runs. */
static bool is_running(const struct region *region)
{
	return region->device != NULL && region->device->dev->data->dev_started;
}

/*
 * Its mempool is about to go: the mbufs that are free are kept for the next. What the NIC or a queue still has is not taken, nor is
 * anything while the device runs, with another mempool: it would have nothing to receive into.
 */
void conic_region_take_back(struct region *region)
{
	if (region->device != NULL && !is_running(region))
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

/* There are no mbufs in it any more; nor will there be any, if its device goes on meanwhile. */
void conic_region_clear(struct region *region)
{
	region->owner = NULL;
	region->mbufs = 0;
	if (is_running(region))
		conic_region_give_up(region);
}

/* Unmaps the regions that no device is in and of which nothing may be used. What is in the list stays there: others go through it. */
static void unmap_unused(void)
{
	for (struct region *region = regions; region != NULL; region = region->next) {
		/* Whoever gave the last buffer back is done with the memory; sequentially consistent: see `give_back`. */
		if (region->memory == NULL || region->device != NULL || region->owner != NULL ||
		    __atomic_load_n(&region->attached, __ATOMIC_SEQ_CST) != 0)
			continue;
		region->for_mbufs = false;
		/* No object is found there from now on; none was there. */
		__atomic_store_n(&region->layout.bytes, 0, __ATOMIC_RELEASE);
		region->layout.base = NULL;
		conic_memory_close(region->memory);
		region->memory = NULL;
		rte_free(region->taken);
		rte_free(region->shared);
		region->taken = NULL;
		region->shared = NULL;
	}
}

/* Whether a queue of a device is in a region. */
static bool is_used(const struct device *device, const struct region *region)
{
	for (uint32_t i = 0; i < device->queues; i++)
		if ((device->receive[i] != NULL && device->receive[i]->region == region) ||
		    (device->transmit[i] != NULL && device->transmit[i]->region == region))
			return true;
	return false;
}

/* Lets go of the regions that a device's queues are not in any more; of none but these, if there are any. */
static void leave(const struct device *device)
{
	for (struct region *region = regions; region != NULL; region = region->next)
		if (region->device == device && !is_used(device, region))
			/* Sequentially consistent: see `give_back`. */
			__atomic_store_n(&region->device, NULL, __ATOMIC_SEQ_CST);
	unmap_unused();
}

/* The device's queues are gone. */
void conic_regions_leave(const struct device *device)
{
	rte_spinlock_lock(&lock);
	leave(device);
	rte_spinlock_unlock(&lock);
}

/* A mempool is gone. */
void conic_regions_unmap(void)
{
	rte_spinlock_lock(&lock);
	unmap_unused();
	rte_spinlock_unlock(&lock);
}

/* A region of the list that was unmapped; null if there is none. */
static struct region *unmapped(void)
{
	struct region *region = regions;

	while (region != NULL && region->memory != NULL)
		region = region->next;
	return region;
}

static struct region *make(const struct device *device, struct conic_memory *memory, const struct conic_layout *layout,
			   bool for_mbufs)
{
	uint64_t large = layout->classes[CONIC_LARGE].count, jumbo = layout->classes[CONIC_JUMBO].count;
	uint8_t *taken = rte_zmalloc("conic taken", large + 1, 0);
	struct rte_mbuf_ext_shared_info *shared = rte_zmalloc("conic shared", (large + jumbo + 1) * sizeof(*shared), 0);
	struct region *old = unmapped(), *region = old != NULL ? old : rte_zmalloc("conic region", sizeof(*region), 0);

	if (taken == NULL || shared == NULL || region == NULL) {
		rte_free(taken);
		rte_free(shared);
		if (old == NULL)
			rte_free(region);
		return NULL;
	}
	region->memory = memory;
	region->device = device;
	region->layout = *layout;
	region->layout.bytes = 0;
	region->taken = taken;
	region->shared = shared;
	region->for_mbufs = for_mbufs;
	if (for_mbufs)
		take_large(region);
	/* With its bytes it is there, also for others that go through the list. */
	__atomic_store_n(&region->layout.bytes, layout->bytes, __ATOMIC_RELEASE);
	if (old == NULL) {
		region->next = regions;
		regions = region;
	}
	return region;
}

/* The region that a half is in; null if there is no memory to keep an account of it. With the lock. */
static struct region *region_of(const struct device *device, const struct conic_half *half, bool for_mbufs)
{
	struct conic_memory *memory = conic_half_memory(half);
	struct conic_layout layout;
	struct region *region;

	conic_memory_layout(memory, &layout);
	for (region = regions; region != NULL; region = region->next)
		if (region->layout.base == layout.base)
			break;
	if (region == NULL)
		region = make(device, memory, &layout, for_mbufs);
	if (region == NULL || region->memory != memory)
		conic_memory_close(memory);
	return region;
}

/* The same, of a device that has no queues yet. */
struct region *conic_region_of(const struct device *device, const struct conic_half *half, bool for_mbufs)
{
	struct region *region;

	rte_spinlock_lock(&lock);
	region = region_of(device, half, for_mbufs);
	rte_spinlock_unlock(&lock);
	return region;
}

/*
 * Enters at `place` the region that a queue's half is in, and lets go of those that no queue of the device is in any more. Where there is
 * no memory to keep an account of it, the queue stays where it was.
 */
void conic_region_follow(const struct device *device, const struct conic_half *half, struct region **place)
{
	struct region *region;

	rte_spinlock_lock(&lock);
	region = region_of(device, half, false);
	if (region != NULL && region != *place) {
		*place = region;
		leave(device);
	}
	rte_spinlock_unlock(&lock);
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
	/*
	 * The memory was used last above. Sequentially consistent, with the load behind it: who takes the device away and looks at the
	 * count does so in the other order, and so one of both sees that there is nothing left.
	 */
	if (__atomic_sub_fetch(&region->attached, 1, __ATOMIC_SEQ_CST) == 0 &&
	    __atomic_load_n(&region->device, __ATOMIC_SEQ_CST) == NULL)
		conic_regions_unmap();
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
