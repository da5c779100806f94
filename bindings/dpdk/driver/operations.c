/* What applications ask of the device. */
#include <rte_alarm.h>
#include <rte_malloc.h>

#include "driver.h"

/* What a frame's header and tag take beside its payload. */
#define OVERHEAD (RTE_ETHER_HDR_LEN + RTE_VLAN_HLEN)

static struct device *device_of(struct rte_eth_dev *dev)
{
	return dev->data->dev_private;
}

/* Has the NIC join no more than the application takes; where that names nothing, the ethdev layer has put in a frame's length. */
static int limit_joined(struct rte_eth_dev *dev)
{
	uint32_t longest = dev->data->dev_conf.rxmode.max_lro_pkt_size;
	char error[512] = "";

	if (conic_port_limit(device_of(dev)->port, longest, error, sizeof(error)))
		return 0;
	CONIC_LOG(ERR, "port %u: max_lro_pkt_size=%u: %s\n", dev->data->port_id, longest, error);
	return -EIO;
}

static int configure(struct rte_eth_dev *dev)
{
	bool wants_joined = (dev->data->dev_conf.rxmode.offloads & RTE_ETH_RX_OFFLOAD_TCP_LRO) != 0;
	int failed = 0;

	/* That it is not there without the argument, the ethdev layer sees. */
	if (device_of(dev)->joins && !wants_joined) {
		CONIC_LOG(ERR, "port %u: with lro=1 the application must want LRO: it gets packets that stand for several\n",
			  dev->data->port_id);
		return -EINVAL;
	}
	if (device_of(dev)->joins)
		failed = limit_joined(dev);
	return failed != 0 ? failed : conic_hash_configure(dev);
}

static int information(struct rte_eth_dev *dev, struct rte_eth_dev_info *info)
{
	struct device *device = device_of(dev);
	/* As many as can be told. */
	uint16_t descriptors = RTE_MIN(device->descriptors, (uint32_t)UINT16_MAX);

	info->max_rx_queues = device->queues;
	info->max_tx_queues = device->queues;
	info->max_mac_addrs = 1;
	info->min_rx_bufsize = RTE_ETHER_MIN_LEN;
	info->max_rx_pktlen = CONIC_LONGEST;
	info->min_mtu = RTE_ETHER_MIN_MTU;
	info->max_mtu = CONIC_LONGEST - OVERHEAD;
	info->max_rx_mempools = CONIC_MOST_POOLS;
	info->rx_desc_lim = (struct rte_eth_desc_lim){ .nb_max = descriptors, .nb_min = 4, .nb_align = 1 };
	info->tx_desc_lim = (struct rte_eth_desc_lim){ .nb_max = descriptors, .nb_min = 4, .nb_align = 1,
						       .nb_seg_max = UINT16_MAX, .nb_mtu_seg_max = UINT16_MAX };
	info->rx_offload_capa = RTE_ETH_RX_OFFLOAD_SCATTER | CONIC_WISHES;
	if (device->joins) {
		info->rx_offload_capa |= RTE_ETH_RX_OFFLOAD_TCP_LRO;
		info->max_lro_pkt_size = device->longest_joined;
	}
	info->tx_offload_capa = RTE_ETH_TX_OFFLOAD_MULTI_SEGS | RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE |
				RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_TCP_CKSUM |
				RTE_ETH_TX_OFFLOAD_UDP_CKSUM | RTE_ETH_TX_OFFLOAD_TCP_TSO |
				RTE_ETH_TX_OFFLOAD_VLAN_INSERT;
	info->flow_type_rss_offloads = CONIC_HASHED;
	info->hash_key_size = CONIC_HASH_KEY_BYTES;
	info->reta_size = CONIC_INDIRECTIONS;
	info->rx_queue_offload_capa = info->rx_offload_capa;
	info->tx_queue_offload_capa = info->tx_offload_capa;
	info->default_rxportconf = (struct rte_eth_dev_portconf){ .burst_size = 32, .ring_size = descriptors, .nb_queues = 1 };
	info->default_txportconf = info->default_rxportconf;
	info->dev_capa &= ~(RTE_ETH_DEV_CAPA_RUNTIME_RX_QUEUE_SETUP | RTE_ETH_DEV_CAPA_RUNTIME_TX_QUEUE_SETUP);
	return 0;
}

/* Whether each of these queues was set up; says which was not. */
static bool are_set_up(const struct rte_eth_dev *dev, void *const *queues, uint16_t count, const char *what)
{
	for (uint16_t i = 0; i < count; i++)
		if (queues[i] == NULL) {
			CONIC_LOG(ERR, "port %u: %s queue %u was configured and not set up\n", dev->data->port_id, what, i);
			return false;
		}
	return true;
}

static int start(struct rte_eth_dev *dev)
{
	struct device *device = device_of(dev);
	int unjoined;

	if (!are_set_up(dev, dev->data->rx_queues, dev->data->nb_rx_queues, "receive") ||
	    !are_set_up(dev, dev->data->tx_queues, dev->data->nb_tx_queues, "transmit"))
		return -EINVAL;
	unjoined = conic_lanes_join(dev);
	if (unjoined != 0)
		return unjoined;
	for (uint32_t i = 0; dev->data->nb_rx_queues > 0 && i < device->queues; i++) {
		struct receive_queue *queue = device->receive[i];

		/* What came while there was nobody to receive it is not of this run. */
		conic_receive_follow(queue);
		conic_region_give_up(queue->region);
		conic_receive_discard(queue);
	}
	for (uint16_t i = 0; i < dev->data->nb_rx_queues; i++)
		dev->data->rx_queue_state[i] = RTE_ETH_QUEUE_STATE_STARTED;
	for (uint16_t i = 0; i < dev->data->nb_tx_queues; i++) {
		conic_transmit_follow(device->transmit[i]);
		dev->data->tx_queue_state[i] = RTE_ETH_QUEUE_STATE_STARTED;
	}
	if (dev->data->dev_conf.intr_conf.rxq != 0) {
		int failed = conic_interrupts_install(dev);

		if (failed != 0)
			return failed;
	}
	dev->data->dev_started = 1;
	conic_link_update(dev, 0);
	device->was_up = dev->data->dev_link.link_status == RTE_ETH_LINK_UP;
	device->watched_reconnects = device->reconnects;
	return rte_eal_alarm_set(1, conic_watch_link, device);
}

static int stop(struct rte_eth_dev *dev)
{
	dev->data->dev_started = 0;
	rte_eal_alarm_cancel(conic_watch_link, device_of(dev));
	for (uint16_t i = 0; i < dev->data->nb_rx_queues; i++)
		dev->data->rx_queue_state[i] = RTE_ETH_QUEUE_STATE_STOPPED;
	for (uint16_t i = 0; i < dev->data->nb_tx_queues; i++)
		dev->data->tx_queue_state[i] = RTE_ETH_QUEUE_STATE_STOPPED;
	conic_link_update(dev, 0);
	return 0;
}

void conic_close_queues(struct device *device)
{
	for (uint32_t i = 0; i < device->queues; i++) {
		if (device->senders[i] != NULL)
			conic_half_close(device->senders[i]);
		if (device->receivers[i] != NULL)
			conic_half_close(device->receivers[i]);
		rte_free(device->receive[i]);
		rte_free(device->transmit[i]);
		device->senders[i] = device->receivers[i] = NULL;
		device->receive[i] = NULL;
		device->transmit[i] = NULL;
	}
	if (device->port != NULL)
		conic_port_close(device->port);
	device->port = NULL;
	conic_regions_leave(device);
}

static int close_device(struct rte_eth_dev *dev)
{
	if (rte_eal_process_type() != RTE_PROC_PRIMARY)
		return 0;
	conic_interrupts_remove(dev);
	conic_close_queues(device_of(dev));
	/* It lies within the private data. */
	dev->data->mac_addrs = NULL;
	return 0;
}

static bool is_enough(const struct rte_mempool *pool)
{
	return rte_pktmbuf_data_room_size((struct rte_mempool *)(uintptr_t)pool) > RTE_PKTMBUF_HEADROOM;
}

static int receive_setup(struct rte_eth_dev *dev, uint16_t index, uint16_t descriptors, unsigned int socket,
			 const struct rte_eth_rxconf *conf, struct rte_mempool *pool)
{
	struct device *device = device_of(dev);
	struct receive_queue *queue = device->receive[index];
	uint64_t offloads;

	RTE_SET_USED(descriptors);
	if (conf->rx_deferred_start) {
		CONIC_LOG(ERR, "port %u: receive queue %u: queues start with their device alone, not later (rx_deferred_start)\n",
			  dev->data->port_id, index);
		return -ENOTSUP;
	}
	if (queue == NULL)
		queue = rte_zmalloc_socket("conic receive", sizeof(*queue), RTE_CACHE_LINE_SIZE, socket);
	if (queue == NULL)
		return -ENOMEM;
	device->receive[index] = queue;
	queue->device = device;
	queue->half = device->receivers[index];
	queue->index = index;
	queue->first = queue->turn = queue;
	queue->next = NULL;
	offloads = conf->offloads | dev->data->dev_conf.rxmode.offloads;
	/* A packet that stands for several is in several mbufs anyway. */
	queue->scatter = device->joins || (offloads & RTE_ETH_RX_OFFLOAD_SCATTER) != 0;
	queue->wishes = offloads & CONIC_WISHES;
	queue->pool_count = 0;
	if (pool != NULL)
		queue->pools[queue->pool_count++] = pool;
	for (uint16_t i = 0; pool == NULL && i < RTE_MIN(conf->rx_nmempool, CONIC_MOST_POOLS); i++)
		queue->pools[queue->pool_count++] = conf->rx_mempools[i];
	for (uint16_t i = 0; i < queue->pool_count; i++) {
		if (!is_enough(queue->pools[i])) {
			CONIC_LOG(ERR, "mempool %s: an mbuf has no room behind its headroom\n", queue->pools[i]->name);
			return -EINVAL;
		}
		queue->pool_rooms[i] = rte_pktmbuf_data_room_size(queue->pools[i]) - RTE_PKTMBUF_HEADROOM;
	}
	if (queue->pool_count == 0)
		return -EINVAL;
	dev->data->rx_queues[index] = queue;
	return 0;
}

static int transmit_setup(struct rte_eth_dev *dev, uint16_t index, uint16_t descriptors, unsigned int socket,
			  const struct rte_eth_txconf *conf)
{
	struct device *device = device_of(dev);
	struct transmit_queue *queue = device->transmit[index];

	RTE_SET_USED(descriptors);
	if (conf->tx_deferred_start) {
		CONIC_LOG(ERR, "port %u: transmit queue %u: queues start with their device alone, not later (tx_deferred_start)\n",
			  dev->data->port_id, index);
		return -ENOTSUP;
	}
	if (queue == NULL)
		queue = rte_zmalloc_socket("conic transmit", sizeof(*queue), RTE_CACHE_LINE_SIZE, socket);
	if (queue == NULL)
		return -ENOMEM;
	device->transmit[index] = queue;
	queue->device = device;
	queue->half = device->senders[index];
	queue->index = index;
	dev->data->tx_queues[index] = queue;
	return 0;
}

/* Queues live as long as the device; the ethdev layer lets go of them whenever it is configured anew. */
static void release(struct rte_eth_dev *dev, uint16_t index)
{
	RTE_SET_USED(dev);
	RTE_SET_USED(index);
}

/* Frames for groups of stations come in any case: no application misses one, and those that want less leave out the others. */
static int all_comes(struct rte_eth_dev *dev)
{
	RTE_SET_USED(dev);
	return 0;
}

static int all_groups_come(struct rte_eth_dev *dev, struct rte_ether_addr *groups, uint32_t count)
{
	RTE_SET_USED(dev);
	RTE_SET_USED(groups);
	RTE_SET_USED(count);
	return 0;
}

/*
 * Frames for stations that nobody is known to have come to who asks, where the NIC's operator allows it. Where not, the application is told
 * in the log alone, as one on a virtual function that is not trusted: stock programs end where this fails, whether or not they need it.
 */
static int become_promiscuous(struct rte_eth_dev *dev)
{
	struct device *device = device_of(dev);
	char error[512] = "";

	switch (conic_port_set_promiscuous(device->port, true, error, sizeof(error))) {
	case CONIC_GRANTED:
		return 0;
	case CONIC_NOT_GRANTED:
		CONIC_LOG(NOTICE, "port %u: promiscuous mode gives no more frames than before: %s\n", dev->data->port_id, error);
		return 0;
	default:
		CONIC_LOG(ERR, "port %u: promiscuous mode: %s\n", dev->data->port_id, error);
		return -EAGAIN;
	}
}

static int be_promiscuous_no_more(struct rte_eth_dev *dev)
{
	char error[512] = "";

	if (conic_port_set_promiscuous(device_of(dev)->port, false, error, sizeof(error)) == CONIC_GRANTED)
		return 0;
	CONIC_LOG(ERR, "port %u: promiscuous mode: %s\n", dev->data->port_id, error);
	return -EAGAIN;
}

/*
 * To what it was before it was configured, after the ethdev layer has stopped it. The connection stays: mbufs of the application's mempools
 * lie in its memory. One that is gone is looked after, as always.
 */
static int reset(struct rte_eth_dev *dev)
{
	struct device *device = device_of(dev);

	if (be_promiscuous_no_more(dev) != 0)
		return -EAGAIN;
	dev->data->promiscuous = 0;
	dev->data->all_multicast = 0;
	dev->data->dev_configured = 0;
	conic_interrupts_remove(dev);
	for (uint16_t i = 0; i < dev->data->nb_rx_queues; i++)
		dev->data->rx_queues[i] = NULL;
	for (uint16_t i = 0; i < dev->data->nb_tx_queues; i++)
		dev->data->tx_queues[i] = NULL;
	dev->data->nb_rx_queues = dev->data->nb_tx_queues = 0;
	conic_link_update(dev, 0);
	device->was_up = false;
	return conic_stats_reset(dev);
}

/* The ethdev layer writes the address down when it is so. */
static int set_mac(struct rte_eth_dev *dev, struct rte_ether_addr *mac)
{
	char error[512] = "";

	if (conic_port_set_mac(device_of(dev)->port, (const uint8_t(*)[6])mac->addr_bytes, error, sizeof(error)))
		return 0;
	CONIC_LOG(ERR, "port %u: " RTE_ETHER_ADDR_PRT_FMT ": %s\n", dev->data->port_id, RTE_ETHER_ADDR_BYTES(mac), error);
	return -EADDRNOTAVAIL;
}

static int set_mtu(struct rte_eth_dev *dev, uint16_t mtu)
{
	RTE_SET_USED(dev);
	return mtu + OVERHEAD <= CONIC_LONGEST ? 0 : -EINVAL;
}

/* Packet types are known where checksums or hashes are asked for: packets are looked into then. */
static const uint32_t *packet_types_of(struct rte_eth_dev *dev, size_t *count)
{
	static const uint32_t none[] = { RTE_PTYPE_UNKNOWN };
	static const uint32_t all[] = {
		RTE_PTYPE_L2_ETHER, RTE_PTYPE_L2_ETHER_VLAN, RTE_PTYPE_L2_ETHER_QINQ, RTE_PTYPE_L3_IPV4, RTE_PTYPE_L3_IPV4_EXT,
		RTE_PTYPE_L3_IPV6, RTE_PTYPE_L3_IPV6_EXT, RTE_PTYPE_L4_FRAG, RTE_PTYPE_L4_SCTP, RTE_PTYPE_L4_TCP,
		RTE_PTYPE_L4_UDP, RTE_PTYPE_UNKNOWN,
	};
	uint64_t wishes = dev->data->dev_conf.rxmode.offloads;
	bool is_looked_into = (wishes & (RTE_ETH_RX_OFFLOAD_CHECKSUM | RTE_ETH_RX_OFFLOAD_RSS_HASH)) != 0;

	*count = is_looked_into ? RTE_DIM(all) - 1 : 0;
	return is_looked_into ? all : none;
}

/* Since DPDK 24.03 their number is told. */
#if RTE_VERSION >= RTE_VERSION_NUM(24, 3, 0, 0)
static const uint32_t *packet_types(struct rte_eth_dev *dev, size_t *count)
{
	return packet_types_of(dev, count);
}
#else
static const uint32_t *packet_types(struct rte_eth_dev *dev)
{
	size_t count;

	return packet_types_of(dev, &count);
}
#endif

static int is_removed(struct rte_eth_dev *dev)
{
	RTE_SET_USED(dev);
	return 0;
}

const struct eth_dev_ops conic_operations = {
	.dev_configure = configure,
	.dev_infos_get = information,
	.dev_start = start,
	.dev_stop = stop,
	.dev_close = close_device,
	.dev_reset = reset,
	.rx_queue_setup = receive_setup,
	.tx_queue_setup = transmit_setup,
	.rx_queue_release = release,
	.tx_queue_release = release,
	.tx_done_cleanup = conic_done_cleanup,
	.rxq_info_get = conic_receive_information,
	.txq_info_get = conic_transmit_information,
	.link_update = conic_link_update,
	.promiscuous_enable = become_promiscuous,
	.promiscuous_disable = be_promiscuous_no_more,
	.allmulticast_enable = all_comes,
	.allmulticast_disable = all_comes,
	.set_mc_addr_list = all_groups_come,
	.mac_addr_set = set_mac,
	.mtu_set = set_mtu,
	.vlan_offload_set = conic_vlan_offload,
	.rss_hash_update = conic_hash_update,
	.rss_hash_conf_get = conic_hash_get,
	.reta_update = conic_table_update,
	.reta_query = conic_table_get,
	.rx_queue_intr_enable = conic_interrupt_enable,
	.rx_queue_intr_disable = conic_interrupt_disable,
	.stats_get = conic_stats_get,
	.stats_reset = conic_stats_reset,
	.xstats_get = conic_xstats_get,
	.xstats_reset = conic_stats_reset,
	.xstats_get_names = conic_xstats_names,
	.dev_supported_ptypes_get = packet_types,
	.is_removed = is_removed,
};
