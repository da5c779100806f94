/*
 * Mempool operations that place mbufs in the shared memory of the devices: an mbuf of such a mempool is a buffer that device and
 * NIC pass to each other, and its free set is the one that the NIC allocates from. What finds no place there lies in ordinary
 * memory, and is copied when it is sent.
 */
#include <rte_malloc.h>

#include "driver.h"

/* What is in ordinary memory, as a stack; `pool_data` of the mempool. */
struct pool {
	rte_spinlock_t lock;
	/* Mbufs in shared memory are this mempool's. */
	bool is_placed;
	uint32_t height;
	/* Where each region's free set was looked at last: a hint, which every lcore reads and writes in no order. */
	uint64_t from;
	void *stack[];
};

/*
 * Takes what is free out of the regions that a mempool's mbufs lie in, where their device does not run. From then on the mempool has none of
 * theirs to give.
 */
static void take_back(const struct rte_mempool *mempool, struct pool *pool)
{
	pool->is_placed = false;
	for (struct region *region = conic_regions(); region != NULL; region = region->next)
		if (region->owner == mempool)
			conic_region_take_back(region);
}

/*
 * A mempool is about to be freed: it will take all its objects, one by one, and drop them before it says so to its operations. Those in
 * shared memory are kept for the next mempool.
 */
static void on_event(enum rte_mempool_event event, struct rte_mempool *mempool, void *opaque)
{
	RTE_SET_USED(opaque);
	if (event != RTE_MEMPOOL_EVENT_DESTROY || mempool->pool_data == NULL ||
	    strcmp(rte_mempool_get_ops(mempool->ops_index)->name, CONIC_POOL) != 0)
		return;
	for (unsigned int lcore = 0; lcore < RTE_MAX_LCORE; lcore++)
		rte_mempool_cache_flush(rte_mempool_default_cache(mempool, lcore), mempool);
	take_back(mempool, mempool->pool_data);
}

static int allocate(struct rte_mempool *mempool)
{
	struct pool *pool = rte_zmalloc("conic pool", sizeof(*pool) + mempool->size * sizeof(void *), RTE_CACHE_LINE_SIZE);

	if (pool == NULL)
		return -ENOMEM;
	if (rte_mempool_event_callback_register(on_event, NULL) != 0 && rte_errno != EEXIST) {
		rte_free(pool);
		return -rte_errno;
	}
	rte_spinlock_init(&pool->lock);
	mempool->pool_data = pool;
	return 0;
}

static void release(struct rte_mempool *mempool)
{
	for (struct region *region = conic_regions(); region != NULL; region = region->next)
		if (region->owner == mempool)
			conic_region_clear(region);
	conic_regions_unmap();
	rte_free(mempool->pool_data);
}

/* The region that an object lies in; null for ordinary memory. */
static struct region *region_of(const void *object)
{
	for (struct region *region = conic_regions(); region != NULL; region = region->next)
		if ((uint64_t)((const uint8_t *)object - region->layout.base) < region->layout.bytes)
			return region;
	return NULL;
}

static uint64_t address_of(const struct region *region, const void *object)
{
	return (const uint8_t *)object - region->layout.base;
}

/*
 * Whether a mempool has fewer objects than it was made for. One for which there is too little memory is emptied without a word to its
 * operations, by taking objects: so each is entered as taken as long as it is out, for the next mempool.
 */
static bool is_partial(const struct rte_mempool *mempool)
{
	return unlikely(mempool->populated_size < mempool->size);
}

/* Whether the large buffer at an address is entered as taken. */
static uint8_t *taken_of(const struct region *region, uint64_t at)
{
	const struct conic_class *large = &region->layout.classes[CONIC_LARGE];

	return &region->taken[(at - large->start) >> large->shift];
}

static void enqueue_one(struct rte_mempool *mempool, void *object, uint64_t *batch, uint32_t *count, struct region **batch_of)
{
	struct pool *pool = mempool->pool_data;
	struct region *region = region_of(object);

	if (region == NULL) {
		rte_spinlock_lock(&pool->lock);
		pool->stack[pool->height++] = object;
		rte_spinlock_unlock(&pool->lock);
		return;
	}
	if (*count == CONIC_BURST || region != *batch_of) {
		if (*count > 0)
			conic_memory_give((*batch_of)->memory, batch, *count);
		*count = 0;
		*batch_of = region;
	}
	if (is_partial(mempool))
		*taken_of(region, address_of(region, object)) = 0;
	batch[(*count)++] = address_of(region, object);
}

static int enqueue(struct rte_mempool *mempool, void *const *objects, unsigned int count)
{
	struct region *region = NULL;
	uint64_t batch[CONIC_BURST];
	uint32_t batched = 0;

	for (unsigned int i = 0; i < count; i++)
		enqueue_one(mempool, objects[i], batch, &batched, &region);
	if (batched > 0)
		conic_memory_give(region->memory, batch, batched);
	return 0;
}

/* Takes mbufs from a region, and gives how many. */
static unsigned int take(struct rte_mempool *mempool, struct region *region, void **objects, unsigned int count)
{
	struct pool *pool = mempool->pool_data;
	uint64_t some[CONIC_BURST];
	uint64_t from = __atomic_load_n(&pool->from, __ATOMIC_RELAXED);
	unsigned int taken = 0;

	while (taken < count) {
		uint32_t want = RTE_MIN(count - taken, (unsigned int)CONIC_BURST);
		uint32_t got = conic_memory_take(region->memory, CONIC_LARGE, &from, some, want);

		for (uint32_t i = 0; is_partial(mempool) && i < got; i++)
			*taken_of(region, some[i]) = 1;
		for (uint32_t i = 0; i < got; i++)
			objects[taken++] = region->layout.base + some[i] - CONIC_HEADROOM + RTE_MEMPOOL_HEADER_BYTES;
		if (got < want)
			break;
	}
	__atomic_store_n(&pool->from, from, __ATOMIC_RELAXED);
	return taken;
}

static int dequeue(struct rte_mempool *mempool, void **objects, unsigned int count)
{
	struct pool *pool = mempool->pool_data;
	unsigned int taken = 0;

	if (pool->is_placed)
		for (struct region *region = conic_regions(); region != NULL && taken < count; region = region->next)
			if (region->owner == mempool)
				taken += take(mempool, region, objects + taken, count - taken);
	if (taken < count) {
		rte_spinlock_lock(&pool->lock);
		while (taken < count && pool->height > 0)
			objects[taken++] = pool->stack[--pool->height];
		rte_spinlock_unlock(&pool->lock);
	}
	if (taken == count)
		return 0;
	if (taken > 0)
		enqueue(mempool, objects, taken);
	return -ENOBUFS;
}

static unsigned int available(const struct rte_mempool *mempool)
{
	struct pool *pool = mempool->pool_data;
	unsigned int count;

	rte_spinlock_lock(&pool->lock);
	count = pool->height;
	rte_spinlock_unlock(&pool->lock);
	if (pool->is_placed)
		for (struct region *region = conic_regions(); region != NULL; region = region->next)
			if (region->owner == mempool)
				count += conic_memory_free(region->memory, CONIC_LARGE);
	return count;
}

/* Whether a mempool's objects are mbufs of which each fits before and into a buffer. Those whose data lie elsewhere for good do not. */
static bool is_of_mbufs(const struct rte_mempool *mempool)
{
	const struct rte_pktmbuf_pool_private *private = rte_mempool_get_priv((struct rte_mempool *)(uintptr_t)mempool);
	uint32_t before = (CONIC_PLACES - 1) * RTE_CACHE_LINE_SIZE + RTE_MEMPOOL_HEADER_BYTES;

	return mempool->header_size == RTE_MEMPOOL_HEADER_BYTES && mempool->private_data_size >= sizeof(*private) &&
	       (private->flags & RTE_PKTMBUF_POOL_F_PINNED_EXT_BUF) == 0 && private->mbuf_priv_size <= RTE_PKTMBUF_HEADROOM && private->mbuf_data_room_size >= RTE_PKTMBUF_HEADROOM &&
	       before + mempool->elt_size + mempool->trailer_size <= 1u << CONIC_LARGE_SHIFT;
}

/* Whether a region has room for a mempool's mbufs: it has those of one mempool at most. */
static bool is_free(const struct region *region, const struct rte_mempool *mempool)
{
	return region->for_mbufs && (region->owner == NULL || region->owner == mempool);
}

/* How many of a mempool's objects may lie in shared memory. A region has mbufs of one mempool. */
static uint32_t places(const struct rte_mempool *mempool)
{
	uint32_t count = 0;

	if (!is_of_mbufs(mempool))
		return 0;
	for (struct region *region = conic_regions(); region != NULL; region = region->next)
		count += is_free(region, mempool) ? region->layout.classes[CONIC_LARGE].count : 0;
	return count;
}

static ssize_t memory_size(const struct rte_mempool *mempool, uint32_t count, uint32_t page_shift, size_t *least_chunk,
			   size_t *alignment)
{
	const struct pool *pool = mempool->pool_data;
	uint32_t in_shared = pool->is_placed ? 0 : RTE_MIN(places(mempool), count);

	/* With nothing left to place elsewhere a page is asked for all the same, because none would be an error. */
	return rte_mempool_op_calc_mem_size_default(mempool, RTE_MAX(count - in_shared, 1u), page_shift, least_chunk,
						    alignment);
}

/* How many large buffers of a region lie on queues' stacks, or are with the NIC: each may be received into at any time. */
static uint32_t on_their_way(const struct region *region)
{
	uint32_t count = 0;

	for (uint64_t i = 0; i < region->layout.classes[CONIC_LARGE].count; i++)
		count += region->taken[i] == 0;
	return count;
}

/*
 * Makes up to `most` objects in a region, those first that nobody had taken out of the pool; gives how many. None, where they are fewer
 * than those: a packet would be received where there is no mbuf. The region has none then, and its packets are copied.
 */
static uint32_t populate_region(struct rte_mempool *mempool, struct region *region, uint32_t most,
				rte_mempool_populate_obj_cb_t *make, void *argument)
{
	const struct conic_class *large = &region->layout.classes[CONIC_LARGE];
	struct rte_pktmbuf_pool_private *private = rte_mempool_get_priv(mempool);
	uint32_t made = 0;

	if (most < on_their_way(region))
		return 0;
	for (int taken = 0; taken < 2; taken++) {
		for (uint64_t i = 0; i < large->count && made < most; i++) {
			uint64_t at = large->start + (i << large->shift) +
				      (((large->start >> large->shift) + i) & large->places) * RTE_CACHE_LINE_SIZE;
			uint8_t *object = region->layout.base + at + RTE_MEMPOOL_HEADER_BYTES;

			if (region->taken[i] != taken)
				continue;
			make(mempool, argument, object, (rte_iova_t)(uintptr_t)object);
			made++;
			/* What nobody had taken is free already, in the pool or on somebody's stack. */
			region->taken[i] = 0;
			if (taken)
				conic_memory_give(region->memory, &at, 1);
		}
	}
	region->mbufs = made;
	region->owner = mempool;
	region->placed_element = RTE_PKTMBUF_HEADROOM - private->mbuf_priv_size;
	region->placed_room = private->mbuf_data_room_size - region->placed_element;
	return made;
}

static int populate(struct rte_mempool *mempool, unsigned int most, void *memory, rte_iova_t iova, size_t bytes,
		    rte_mempool_populate_obj_cb_t *make, void *argument)
{
	struct pool *pool = mempool->pool_data;
	uint32_t made = 0, regions = 0;
	int more = 0;

	if (!pool->is_placed && places(mempool) > 0) {
		for (struct region *region = conic_regions(); region != NULL; region = region->next)
			regions += is_free(region, mempool);
		for (struct region *region = conic_regions(); region != NULL; region = region->next)
			if (is_free(region, mempool))
				/* Shared out evenly: each device receives into its own. */
				made += populate_region(mempool, region, (most - made) / regions--, make, argument);
		pool->is_placed = true;
	}
	if (made < most)
		more = rte_mempool_op_populate_helper(mempool, 0, most - made, memory, iova, bytes, make, argument);
	if (more < 0)
		return more;
	CONIC_LOG(INFO, "mempool %s: %u objects in shared memory, %d in ordinary\n", mempool->name, made, more);
	return made + more;
}

static const struct rte_mempool_ops operations = {
	.name = CONIC_POOL,
	.alloc = allocate,
	.free = release,
	.enqueue = enqueue,
	.dequeue = dequeue,
	.get_count = available,
	.calc_mem_size = memory_size,
	.populate = populate,
};

RTE_MEMPOOL_REGISTER_OPS(operations);
