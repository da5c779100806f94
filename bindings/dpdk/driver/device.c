/* The virtual device: its arguments, its coming and going, its link. */
#include <bus_vdev_driver.h>
#include <ethdev_vdev.h>
#include <rte_alarm.h>
#include <rte_kvargs.h>
#include <rte_malloc.h>
#include <rte_mbuf_pool_ops.h>

#include "driver.h"

#define PATH "path"
#define NETWORK "network"
#define QUEUES "queues"
#define DESCRIPTORS "descriptors"
#define BUFFERS "buffers"
#define JUMBO "jumbo"
#define MAC "mac"
#define ATTACH "attach"
#define ZERO_COPY "zero-copy"
#define LRO "lro"

/* How often the link is looked at, in microseconds. */
#define LOOK_EVERY 10000

/* Pointing an mbuf to a buffer costs as much as copying so many bytes. */
#define ATTACH_FROM 256

RTE_LOG_REGISTER_DEFAULT(conic_log, NOTICE);

static const char *const known[] = {
	PATH, NETWORK, QUEUES, DESCRIPTORS, BUFFERS, JUMBO, MAC, ATTACH, ZERO_COPY, LRO, NULL,
};

struct arguments {
	char path[108];
	char network[33];
	uint64_t queues;
	uint64_t descriptors;
	uint64_t buffers;
	uint64_t jumbo;
	uint64_t attach;
	uint64_t zero_copy;
	uint64_t lro;
	struct rte_ether_addr mac;
};

static int number(const char *key, const char *text, void *into)
{
	char *end;
	unsigned long long value;

	errno = 0;
	value = strtoull(text, &end, 0);
	if (errno != 0 || end == text || *end != '\0' || text[0] == '-') {
		CONIC_LOG(ERR, "%s=%s: a number is wanted\n", key, text);
		return -EINVAL;
	}
	*(uint64_t *)into = value;
	return 0;
}

static int path(const char *key, const char *text, void *into)
{
	struct arguments *arguments = into;

	if (strlen(text) >= sizeof(arguments->path)) {
		CONIC_LOG(ERR, "%s=%s: a socket's path has less than %zu bytes\n", key, text, sizeof(arguments->path));
		return -EINVAL;
	}
	strcpy(arguments->path, text);
	return 0;
}

static int network(const char *key, const char *text, void *into)
{
	struct arguments *arguments = into;

	if (strlen(text) >= sizeof(arguments->network)) {
		CONIC_LOG(ERR, "%s=%s: a network's name has less than %zu bytes\n", key, text,
			  sizeof(arguments->network));
		return -EINVAL;
	}
	strcpy(arguments->network, text);
	return 0;
}

static int mac(const char *key, const char *text, void *into)
{
	struct arguments *arguments = into;

	if (rte_ether_unformat_addr(text, &arguments->mac) != 0 || !rte_is_valid_assigned_ether_addr(&arguments->mac)) {
		CONIC_LOG(ERR, "%s=%s: one station's address is wanted, such as 02:00:00:00:00:01\n", key, text);
		return -EINVAL;
	}
	return 0;
}

static int parse(const char *text, struct arguments *arguments)
{
	struct rte_kvargs *list = rte_kvargs_parse(text, known);
	int failed;

	if (list == NULL) {
		CONIC_LOG(ERR, "%s: unknown argument; there are path, network, queues, descriptors, buffers, jumbo, mac, attach, "
			  "zero-copy, lro\n", text);
		return -EINVAL;
	}
	failed = rte_kvargs_process(list, PATH, path, arguments) < 0 ||
		 rte_kvargs_process(list, NETWORK, network, arguments) < 0 ||
		 rte_kvargs_process(list, MAC, mac, arguments) < 0 ||
		 rte_kvargs_process(list, QUEUES, number, &arguments->queues) < 0 ||
		 rte_kvargs_process(list, DESCRIPTORS, number, &arguments->descriptors) < 0 ||
		 rte_kvargs_process(list, BUFFERS, number, &arguments->buffers) < 0 ||
		 rte_kvargs_process(list, JUMBO, number, &arguments->jumbo) < 0 ||
		 rte_kvargs_process(list, ATTACH, number, &arguments->attach) < 0 ||
		 rte_kvargs_process(list, ZERO_COPY, number, &arguments->zero_copy) < 0 ||
		 rte_kvargs_process(list, LRO, number, &arguments->lro) < 0;
	rte_kvargs_free(list);
	if (failed)
		return -EINVAL;
	if (arguments->queues == 0 || arguments->queues > CONIC_MOST_QUEUES) {
		CONIC_LOG(ERR, "queues=%" PRIu64 ": 1 to %u\n", arguments->queues, CONIC_MOST_QUEUES);
		return -EINVAL;
	}
	return 0;
}

int conic_link_update(struct rte_eth_dev *dev, int wait)
{
	struct device *device = dev->data->dev_private;
	struct conic_port_state state;
	struct rte_eth_link link = {
		.link_speed = RTE_ETH_SPEED_NUM_100G,
		.link_duplex = RTE_ETH_LINK_FULL_DUPLEX,
		.link_autoneg = RTE_ETH_LINK_FIXED,
	};

	RTE_SET_USED(wait);
	conic_port_look(device->port, &state);
	/* Relaxed: a count alone, which goes with nothing else. */
	__atomic_store_n(&device->reconnects, state.reconnects, __ATOMIC_RELAXED);
	link.link_status = state.up && dev->data->dev_started ? RTE_ETH_LINK_UP : RTE_ETH_LINK_DOWN;
	return rte_eth_linkstatus_set(dev, &link);
}

/* Looks at the link now and then while the device runs, so that applications hear of the daemon's death. */
void conic_watch_link(void *of)
{
	struct device *device = of;
	struct rte_eth_dev *dev = device->dev;
	uint64_t reconnects;
	bool is_up;

	conic_link_update(dev, 0);
	is_up = dev->data->dev_link.link_status == RTE_ETH_LINK_UP;
	/* Once: whoever asks for the link on another thread may write it meanwhile, and what was not rung for is rung for by the next look. */
	reconnects = __atomic_load_n(&device->reconnects, __ATOMIC_RELAXED);
	/* Also where the daemon was gone for less than a look: a queue may wait for no bell. */
	if (is_up != device->was_up || reconnects != device->watched_reconnects)
		conic_interrupts_ring(device);
	device->watched_reconnects = reconnects;
	/* Not by what the update answers: an application that asks for the link may have seen the change first. */
	if (is_up != device->was_up) {
		device->was_up = is_up;
		device->link_downs += !is_up;
		CONIC_LOG(NOTICE, "port %u: the daemon is %s\n", dev->data->port_id, is_up ? "back" : "gone");
		rte_eth_dev_callback_process(dev, RTE_ETH_EVENT_INTR_LSC, NULL);
	}
	if (dev->data->dev_started)
		rte_eal_alarm_set(LOOK_EVERY, conic_watch_link, device);
}

static int open_port(struct device *device, const struct arguments *arguments, const char *name)
{
	char error[512] = "";
	char client[33];
	struct conic_wishes wishes = {
		.path = arguments->path,
		.network = arguments->network,
		.name = client,
		.queues = arguments->queues,
		.descriptors = arguments->descriptors,
		/* Where packets lie in mbufs there are no small buffers: those are for packets that are copied out. */
		.buffers = { device->zero_copy ? 0 : arguments->buffers, arguments->buffers, arguments->jumbo },
		.headroom = CONIC_HEADROOM,
		.places = CONIC_PLACES,
		.joins = device->joins,
	};
	struct region *region;

	snprintf(client, sizeof(client), "%.32s", name);
	memcpy(wishes.mac, &device->mac, sizeof(wishes.mac));
	device->port = conic_port_open(&wishes, device->senders, device->receivers, error, sizeof(error));
	if (device->port == NULL) {
		CONIC_LOG(ERR, "%s: %s\n", name, error);
		return -ENODEV;
	}
	/* Its large buffers are kept for mbufs, which a mempool will bring. */
	region = conic_region_of(device, device->receivers[0], device->zero_copy);
	if (region == NULL)
		return -ENOMEM;
	device->longest_joined = RTE_MIN(CONIC_LONGEST_LARGE, conic_region_longest(region));
	return 0;
}

static int is_zero_copy(const struct arguments *arguments)
{
	const char *wanted = rte_mbuf_user_mempool_ops();

	if (wanted != NULL && strcmp(wanted, CONIC_POOL) == 0)
		return 1;
	if (arguments->zero_copy == 0 || wanted != NULL)
		return 0;
	return rte_mbuf_set_platform_mempool_ops(CONIC_POOL) == 0 ||
	       strcmp(rte_mbuf_best_mempool_ops(), CONIC_POOL) == 0;
}

static int probe(struct rte_vdev_device *vdev)
{
	const char *name = rte_vdev_device_name(vdev);
	struct arguments arguments = {
		.path = "/run/conic/nic.sock", .queues = 1, .descriptors = 1024, .buffers = 4096, .jumbo = 64,
		.attach = ATTACH_FROM,
	};
	struct rte_eth_dev *dev;
	struct device *device;
	int failed;

	if (rte_eal_process_type() != RTE_PROC_PRIMARY) {
		CONIC_LOG(ERR, "%s: a queue has one process; give this one a device of its own\n", name);
		return -ENOTSUP;
	}
	rte_eth_random_addr(arguments.mac.addr_bytes);
	failed = parse(rte_vdev_device_args(vdev), &arguments);
	if (failed)
		return failed;
	dev = rte_eth_vdev_allocate(vdev, sizeof(*device));
	if (dev == NULL)
		return -ENOMEM;
	device = dev->data->dev_private;
	device->dev = dev;
	device->mac = arguments.mac;
	device->queues = arguments.queues;
	device->descriptors = arguments.descriptors;
	device->attach_from = RTE_MIN(arguments.attach, (uint64_t)UINT32_MAX);
	device->zero_copy = is_zero_copy(&arguments);
	device->joins = arguments.lro != 0;
	dev->data->mac_addrs = &device->mac;
	failed = open_port(device, &arguments, name);
	if (failed) {
		if (device->port != NULL)
			conic_close_queues(device);
		dev->data->mac_addrs = NULL;
		rte_eth_dev_release_port(dev);
		return failed;
	}
	dev->data->dev_link = (struct rte_eth_link){ .link_speed = RTE_ETH_SPEED_NUM_100G,
						     .link_duplex = RTE_ETH_LINK_FULL_DUPLEX };
	dev->data->dev_flags = RTE_ETH_DEV_INTR_LSC | RTE_ETH_DEV_AUTOFILL_QUEUE_XSTATS;
	dev->dev_ops = &conic_operations;
	dev->rx_pkt_burst = conic_receive;
	dev->tx_pkt_burst = conic_transmit;
	dev->tx_pkt_prepare = conic_transmit_prepare;
	conic_status_install(dev);
	rte_eth_dev_probing_finish(dev);
	return 0;
}

static int withdraw(struct rte_vdev_device *vdev)
{
	struct rte_eth_dev *dev = rte_eth_dev_allocated(rte_vdev_device_name(vdev));

	if (dev == NULL || rte_eal_process_type() != RTE_PROC_PRIMARY)
		return 0;
	return rte_eth_dev_close(dev->data->port_id);
}

static struct rte_vdev_driver driver = {
	.probe = probe,
	.remove = withdraw,
};

RTE_PMD_REGISTER_VDEV(net_conic, driver);
RTE_PMD_REGISTER_PARAM_STRING(net_conic,
	PATH "=<the daemon's socket> "
	NETWORK "=<name> "
	QUEUES "=<queue pairs> "
	DESCRIPTORS "=<descriptors of a ring> "
	BUFFERS "=<buffers of 4 KiB, a power of two> "
	JUMBO "=<buffers of 16 KiB, a power of two> "
	MAC "=<address> "
	ATTACH "=<bytes from which received packets are pointed to, not copied> "
	ZERO_COPY "=<0|1: mbufs in shared memory without --mbuf-pool-ops-name=conic> "
	LRO "=<0|1: received TCP packets are joined, for applications that want LRO>");
