/*
 * Sends TCP packets that the NIC is to cut, or whose checksums are to be filled in if MSS is 0, and to tag, from mbufs of a mempool in
 * segments of a size.
 * use: large EAL-ARGUMENTS -- DESTINATION 4|6 BYTES SEGMENT MSS TAG COUNT
 *
 * BYTES are those of each packet's payload, byte `i` of which is `7 * i + i / 256 + number`; TAG is -1 for none.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_ip.h>
#include <rte_tcp.h>

#define MBUFS 512
#define ROOM 2048

static void must(int is_so, const char *what)
{
	if (!is_so) {
		fprintf(stderr, "large: %s\n", what);
		exit(1);
	}
}

static void configure(uint16_t port, struct rte_mempool *pool)
{
	struct rte_eth_conf conf = { .txmode.offloads = RTE_ETH_TX_OFFLOAD_MULTI_SEGS | RTE_ETH_TX_OFFLOAD_IPV4_CKSUM |
							RTE_ETH_TX_OFFLOAD_TCP_CKSUM | RTE_ETH_TX_OFFLOAD_TCP_TSO |
							RTE_ETH_TX_OFFLOAD_VLAN_INSERT };

	must(rte_eth_dev_configure(port, 1, 1, &conf) == 0, "the device takes the offloads");
	must(rte_eth_rx_queue_setup(port, 0, 256, 0, NULL, pool) == 0, "a receive queue");
	must(rte_eth_tx_queue_setup(port, 0, 256, 0, NULL) == 0, "a transmit queue");
	must(rte_eth_dev_start(port) == 0, "the device starts");
}

/* The headers of a packet; their length. */
static uint32_t head(uint8_t *bytes, uint16_t port, const char *destination, int version, uint32_t payload, uint32_t number)
{
	struct rte_ether_hdr *ether = (struct rte_ether_hdr *)bytes;
	struct rte_tcp_hdr *tcp;
	uint32_t network = sizeof(*ether);

	must(rte_ether_unformat_addr(destination, &ether->dst_addr) == 0, "an address");
	must(rte_eth_macaddr_get(port, &ether->src_addr) == 0, "the device's address");
	if (version == 4) {
		struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(bytes + network);

		ether->ether_type = rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4);
		*ip = (struct rte_ipv4_hdr){ .version_ihl = 0x45, .time_to_live = 64, .next_proto_id = 6,
					     .src_addr = rte_cpu_to_be_32(0xc6120001), .dst_addr = rte_cpu_to_be_32(0xc6120002) };
		ip->total_length = rte_cpu_to_be_16(sizeof(*ip) + sizeof(*tcp) + payload);
		network += sizeof(*ip);
	} else {
		struct rte_ipv6_hdr *ip = (struct rte_ipv6_hdr *)(bytes + network);

		ether->ether_type = rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV6);
		memset(ip, 0x20, sizeof(*ip));
		ip->vtc_flow = rte_cpu_to_be_32(6u << 28);
		ip->payload_len = rte_cpu_to_be_16(sizeof(*tcp) + payload);
		ip->proto = 6;
		network += sizeof(*ip);
	}
	tcp = (struct rte_tcp_hdr *)(bytes + network);
	*tcp = (struct rte_tcp_hdr){ .src_port = rte_cpu_to_be_16(1024), .dst_port = rte_cpu_to_be_16(80), .data_off = 0x50,
				     .sent_seq = rte_cpu_to_be_32(number * 1000000), .tcp_flags = RTE_TCP_ACK_FLAG,
				     .cksum = rte_cpu_to_be_16(0x1234) };
	return network + sizeof(*tcp);
}

static struct rte_mbuf *packet(struct rte_mempool *pool, const uint8_t *bytes, uint32_t length, uint32_t segment)
{
	struct rte_mbuf *first = NULL, **link = &first;

	for (uint32_t done = 0; done < length;) {
		uint32_t some = RTE_MIN(segment, length - done);
		struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);

		must(mbuf != NULL, "an mbuf");
		memcpy(rte_pktmbuf_mtod(mbuf, uint8_t *), bytes + done, some);
		mbuf->data_len = some;
		*link = mbuf;
		link = &mbuf->next;
		first->nb_segs += mbuf != first;
		done += some;
	}
	first->pkt_len = length;
	return first;
}

int main(int count, char **arguments)
{
	int parsed = rte_eal_init(count, arguments), tag, version;
	struct rte_mempool *pool;
	static uint8_t bytes[1 << 16];
	uint32_t payload, segment, packets;
	uint16_t port = 0, mss;

	must(parsed >= 0, "DPDK starts");
	arguments += parsed;
	must(count - parsed == 8, "seven arguments");
	version = atoi(arguments[2]);
	payload = atoi(arguments[3]);
	segment = atoi(arguments[4]);
	mss = atoi(arguments[5]);
	tag = atoi(arguments[6]);
	packets = atoi(arguments[7]);
	pool = rte_pktmbuf_pool_create("large", MBUFS, 0, 0, ROOM + RTE_PKTMBUF_HEADROOM, 0);
	must(pool != NULL, "a mempool");
	configure(port, pool);
	for (uint32_t number = 0; number < packets; number++) {
		uint32_t length = head(bytes, port, arguments[1], version, payload, number), headers = length;
		struct rte_mbuf *mbuf;

		for (uint32_t i = 0; i < payload; i++)
			bytes[length++] = 7 * i + i / 256 + number;
		mbuf = packet(pool, bytes, length, segment);
		mbuf->l2_len = sizeof(struct rte_ether_hdr);
		mbuf->l4_len = sizeof(struct rte_tcp_hdr);
		mbuf->l3_len = headers - mbuf->l2_len - mbuf->l4_len;
		mbuf->tso_segsz = mss;
		mbuf->ol_flags = RTE_MBUF_F_TX_TCP_CKSUM | (mss > 0 ? RTE_MBUF_F_TX_TCP_SEG : 0);
		mbuf->ol_flags |= version == 4 ? RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM : RTE_MBUF_F_TX_IPV6;
		if (tag >= 0) {
			mbuf->ol_flags |= RTE_MBUF_F_TX_VLAN;
			mbuf->vlan_tci = tag;
		}
		must(rte_eth_tx_prepare(port, 0, &mbuf, 1) == 1, "the packet can be sent");
		for (int tries = 0; rte_eth_tx_burst(port, 0, &mbuf, 1) == 0; tries++) {
			must(tries < 10000, "the packet is taken");
			rte_delay_us(1000);
		}
		rte_delay_us(5000);
	}
	struct rte_eth_stats stats;

	must(rte_eth_stats_get(port, &stats) == 0 && stats.opackets == packets && stats.oerrors == 0, "all were sent");
	rte_delay_us(200000);
	rte_eth_dev_stop(port);
	rte_eth_dev_close(port);
	return 0;
}
