/* Receive-side scaling. The NIC spreads flows over a device's queues by one hash and one table, which can be asked for and not changed. */
#include "driver.h"

static bool is_the_key(const struct rte_eth_rss_conf *conf)
{
	return conf->rss_key == NULL ||
	       (conf->rss_key_len == CONIC_HASH_KEY_BYTES && memcmp(conf->rss_key, conic_hash_key, CONIC_HASH_KEY_BYTES) == 0);
}

/* Says no to what the application would wrongly take for done. */
int conic_hash_configure(struct rte_eth_dev *dev)
{
	const struct rte_eth_conf *conf = &dev->data->dev_conf;

	if ((conf->rxmode.mq_mode & RTE_ETH_MQ_RX_RSS_FLAG) != 0 && !is_the_key(&conf->rx_adv_conf.rss_conf)) {
		CONIC_LOG(ERR, "port %u: the NIC's hash has a key of its own, which cannot be changed; give none\n",
			  dev->data->port_id);
		return -ENOTSUP;
	}
	return 0;
}

int conic_hash_update(struct rte_eth_dev *dev, struct rte_eth_rss_conf *conf)
{
	if (!is_the_key(conf)) {
		CONIC_LOG(ERR, "port %u: the NIC's hash has a key of its own, which cannot be changed\n", dev->data->port_id);
		return -ENOTSUP;
	}
	if (conf->rss_hf != CONIC_HASHED) {
		CONIC_LOG(ERR, "port %u: the NIC hashes IPv4 and IPv6 with TCP's and UDP's ports, types %#" PRIx64 ", and not %#" PRIx64
			  "\n", dev->data->port_id, (uint64_t)CONIC_HASHED, conf->rss_hf);
		return -ENOTSUP;
	}
	return 0;
}

int conic_hash_get(struct rte_eth_dev *dev, struct rte_eth_rss_conf *conf)
{
	RTE_SET_USED(dev);
	conf->rss_hf = CONIC_HASHED;
	if (conf->rss_key != NULL && conf->rss_key_len >= CONIC_HASH_KEY_BYTES)
		memcpy(conf->rss_key, conic_hash_key, CONIC_HASH_KEY_BYTES);
	conf->rss_key_len = CONIC_HASH_KEY_BYTES;
	return 0;
}

/* Takes what is so already. */
int conic_table_update(struct rte_eth_dev *dev, struct rte_eth_rss_reta_entry64 *table, uint16_t size)
{
	for (uint16_t i = 0; i < size; i++) {
		const struct rte_eth_rss_reta_entry64 *group = &table[i / RTE_ETH_RETA_GROUP_SIZE];

		if ((group->mask >> i % RTE_ETH_RETA_GROUP_SIZE & 1) != 0 &&
		    group->reta[i % RTE_ETH_RETA_GROUP_SIZE] != conic_lane_of(dev, i)) {
			CONIC_LOG(ERR, "port %u: the NIC's table cannot be changed: its entry %u is queue %u\n", dev->data->port_id, i,
				  conic_lane_of(dev, i));
			return -ENOTSUP;
		}
	}
	return 0;
}

int conic_table_get(struct rte_eth_dev *dev, struct rte_eth_rss_reta_entry64 *table, uint16_t size)
{
	for (uint16_t i = 0; i < size; i++) {
		struct rte_eth_rss_reta_entry64 *group = &table[i / RTE_ETH_RETA_GROUP_SIZE];

		if ((group->mask >> i % RTE_ETH_RETA_GROUP_SIZE & 1) != 0)
			group->reta[i % RTE_ETH_RETA_GROUP_SIZE] = conic_lane_of(dev, i);
	}
	return 0;
}
