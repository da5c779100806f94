/*
 * Offloads. On the application's core: checksums of packets that are sent, and of packets that are received checksums, packet type,
 * RSS hash where the NIC does not tell it, and VLAN tags taken out. Left to the NIC by metadata: VLAN tags put in, and TCP packets cut.
 * What nobody asked for costs nothing: a queue's wishes are looked at once a packet, together with what the NIC said of it.
 */
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_net.h>
#include <rte_tcp.h>
#include <rte_thash.h>
#include <rte_udp.h>

#include "driver.h"

/* The key of the NIC's hash: that of Microsoft's verification suite ("Verifying the RSS hash calculation"). */
const uint8_t conic_hash_key[CONIC_HASH_KEY_BYTES] = {
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
	0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
};

/* Whether a packet's flags ask for something that is not done here. */
bool conic_offloads_are_known(uint64_t flags)
{
	/* The flags without work say what the packet is. */
	const uint64_t without_work = RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IPV6;
	uint64_t asked = flags & RTE_MBUF_F_TX_OFFLOAD_MASK & ~without_work;

	if ((flags & RTE_MBUF_F_TX_L4_MASK) == RTE_MBUF_F_TX_SCTP_CKSUM)
		return false;
	return (asked & ~CONIC_REQUESTS) == 0;
}

/* Bytes of an IP packet, as its header says them: padding of its frame comes behind them. */
uint32_t conic_network_bytes(bool is_four, const void *network)
{
	if (is_four)
		return rte_be_to_cpu_16(((const struct rte_ipv4_hdr *)network)->total_length);
	return sizeof(struct rte_ipv6_hdr) + rte_be_to_cpu_16(((const struct rte_ipv6_hdr *)network)->payload_len);
}

/* Ones' complement sum, folded to 16 bits, of `bytes` behind the first `skip` in a packet's mbufs, which have as many, and of `sum`. */
uint16_t conic_sum(const struct rte_mbuf *mbuf, uint32_t skip, uint32_t bytes, uint32_t sum)
{
	uint32_t done = 0;

	/* Not by `rte_raw_cksum_mbuf`, which in DPDK 22.11 loses carries behind a segment of an odd length. */
	for (; mbuf != NULL && done < bytes; mbuf = mbuf->next) {
		uint32_t before = RTE_MIN(skip, mbuf->data_len), some = RTE_MIN(mbuf->data_len - before, bytes - done);
		uint16_t part = rte_raw_cksum(rte_pktmbuf_mtod_offset(mbuf, const void *, before), some);

		sum += (done & 1) != 0 ? rte_bswap16(part) : part;
		skip -= before;
		done += some;
	}
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* The sum of the pseudo-header of a packet with this IP header, which has no extensions. */
static uint16_t pseudo_sum(bool is_four, const void *network)
{
	return is_four ? rte_ipv4_phdr_cksum(network, 0) : rte_ipv6_phdr_cksum(network, 0);
}

static uint16_t checksum_of(bool is_four, const void *network, const void *transport)
{
	return is_four ? rte_ipv4_udptcp_cksum(network, transport) : rte_ipv6_udptcp_cksum(network, transport);
}

/*
 * The same of a packet that lies in pieces, of whose transport part its mbufs have all `bytes`, with `stale` where the checksum is to be.
 */
static uint16_t checksum_in_pieces(const struct rte_mbuf *mbuf, const void *network, uint32_t bytes, uint16_t stale)
{
	bool is_four = (mbuf->ol_flags & RTE_MBUF_F_TX_IPV6) == 0;
	uint32_t begun = (uint16_t)~stale + pseudo_sum(is_four, network);
	uint16_t sum = ~conic_sum(mbuf, mbuf->l2_len + mbuf->l3_len, bytes, begun);

	/* No checksum is sent as none: all ones are zero too. */
	return sum == 0 ? 0xffff : sum;
}

/*
 * Fills in a TCP or UDP checksum in a packet's first `length` bytes behind its IP header's beginning; where that is not all of it, the rest
 * is looked up in its mbufs.
 */
static bool fill_transport(const struct rte_mbuf *mbuf, uint8_t *network, uint32_t length)
{
	uint64_t flags = mbuf->ol_flags;
	bool is_four = (flags & RTE_MBUF_F_TX_IPV6) == 0, is_tcp = (flags & RTE_MBUF_F_TX_L4_MASK) == RTE_MBUF_F_TX_TCP_CKSUM;
	uint32_t end = conic_network_bytes(is_four, network), header = mbuf->l3_len, room = mbuf->pkt_len - mbuf->l2_len;
	uint32_t least = header + (is_tcp ? sizeof(struct rte_tcp_hdr) : sizeof(struct rte_udp_hdr));
	uint8_t *transport = network + header;
	bool is_whole = length == room;

	if (end < least || end > room || least > length)
		return false;
	if (is_tcp) {
		struct rte_tcp_hdr *tcp = (struct rte_tcp_hdr *)transport;
		uint16_t stale = tcp->cksum;

		tcp->cksum = 0;
		tcp->cksum = is_whole ? checksum_of(is_four, network, tcp) : checksum_in_pieces(mbuf, network, end - header, stale);
	} else {
		struct rte_udp_hdr *udp = (struct rte_udp_hdr *)transport;
		uint16_t stale = udp->dgram_cksum;

		udp->dgram_cksum = 0;
		udp->dgram_cksum = is_whole ? checksum_of(is_four, network, udp)
					    : checksum_in_pieces(mbuf, network, end - header, stale);
	}
	return true;
}

static void fill_network(uint8_t *network)
{
	struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)network;

	ip->hdr_checksum = 0;
	ip->hdr_checksum = rte_ipv4_cksum(ip);
}

/* Whether the network's header, of which `room` bytes and more behind it are there, is as long as the mbuf says. */
static bool is_as_long(const struct rte_mbuf *mbuf, const uint8_t *network, uint32_t room)
{
	uint32_t header = mbuf->l3_len;

	/* DPDK's functions go by what the headers say. */
	if ((mbuf->ol_flags & RTE_MBUF_F_TX_IPV6) != 0)
		return header <= room && header == sizeof(struct rte_ipv6_hdr);
	return header <= room && header >= sizeof(struct rte_ipv4_hdr) &&
	       rte_ipv4_hdr_len((const struct rte_ipv4_hdr *)network) == header;
}

/* Fills in the checksums that an mbuf's flags ask for, in its packet's first `length` bytes. */
static bool fill_checksums(const struct rte_mbuf *mbuf, uint8_t *bytes, uint32_t length)
{
	uint64_t flags = mbuf->ol_flags;
	uint32_t room = length - mbuf->l2_len;
	uint8_t *network = bytes + mbuf->l2_len;

	if (mbuf->l2_len > length || !is_as_long(mbuf, network, room))
		return false;
	if ((flags & RTE_MBUF_F_TX_L4_MASK) != 0 && !fill_transport(mbuf, network, room))
		return false;
	if ((flags & RTE_MBUF_F_TX_IPV6) == 0 && (flags & RTE_MBUF_F_TX_IP_CKSUM) != 0)
		fill_network(network);
	return true;
}

/* Begins the checksum of a TCP packet that the NIC is to cut, of which at least the headers lie in the `length` bytes. */
static bool begin_large(const struct rte_mbuf *mbuf, uint8_t *bytes, uint32_t length, uint64_t *metadata)
{
	bool is_four = (mbuf->ol_flags & RTE_MBUF_F_TX_IPV6) == 0;
	uint32_t start = mbuf->l2_len + mbuf->l3_len, headers = start + mbuf->l4_len, end;
	uint8_t *network = bytes + mbuf->l2_len;
	struct rte_tcp_hdr *tcp = (struct rte_tcp_hdr *)(bytes + start);

	if (headers > length || start > UINT8_MAX || mbuf->tso_segsz == 0 || !is_as_long(mbuf, network, length - mbuf->l2_len))
		return false;
	if (mbuf->l4_len < sizeof(*tcp) || (tcp->data_off >> 4) * 4 != mbuf->l4_len)
		return false;
	end = mbuf->l2_len + conic_network_bytes(is_four, network);
	if (end <= headers || end > mbuf->pkt_len)
		return false;
	/* The sum of the pseudo-header with the whole length, whatever the application has left there. */
	tcp->cksum = is_four ? rte_ipv4_phdr_cksum((struct rte_ipv4_hdr *)network, 0)
			     : rte_ipv6_phdr_cksum((struct rte_ipv6_hdr *)network, 0);
	if (is_four)
		fill_network(network);
	*metadata |= conic_metadata_of_large(start, offsetof(struct rte_tcp_hdr, cksum), mbuf->tso_segsz);
	return true;
}

/*
 * Does what an mbuf's flags ask for, in its packet's first `length` bytes, or says in `metadata` what is left to the NIC. The bytes are
 * all of the packet, or at least its headers, and then the mbufs have what the packet had. False, and nothing is done, if the mbuf's lengths are not
 * those of the packet.
 */
bool conic_requests_prepare(const struct rte_mbuf *mbuf, uint8_t *bytes, uint32_t length, uint64_t *metadata)
{
	uint64_t flags = mbuf->ol_flags;

	*metadata = 0;
	if (!conic_offloads_are_known(flags))
		return false;
	if ((flags & RTE_MBUF_F_TX_VLAN) != 0)
		*metadata = conic_metadata_with_vlan(0, mbuf->vlan_tci);
	if ((flags & RTE_MBUF_F_TX_TCP_SEG) != 0)
		return begin_large(mbuf, bytes, length, metadata);
	return (flags & CONIC_CHECKSUMS) == 0 || fill_checksums(mbuf, bytes, length);
}

/* What is known of a TCP or UDP checksum: whether it is right, or nothing where there is none. */
static uint64_t transport_flags(const struct rte_mbuf *mbuf, const struct rte_net_hdr_lens *lengths)
{
	uint32_t network = lengths->l2_len, transport = network + lengths->l3_len;
	bool is_four = RTE_ETH_IS_IPV4_HDR(mbuf->packet_type), is_udp = (mbuf->packet_type & RTE_PTYPE_L4_MASK) == RTE_PTYPE_L4_UDP;
	const uint8_t *header = rte_pktmbuf_mtod_offset(mbuf, const uint8_t *, network);
	uint32_t bytes;
	bool is_right;

	/* Headers of a packet in several mbufs lie in the first: received pieces are filled. */
	if (transport + lengths->l4_len > mbuf->data_len)
		return 0;
	bytes = conic_network_bytes(is_four, header) - lengths->l3_len;
	if (bytes < lengths->l4_len || bytes > mbuf->pkt_len - transport)
		return RTE_MBUF_F_RX_L4_CKSUM_BAD;
	if (is_udp && ((const struct rte_udp_hdr *)(header + lengths->l3_len))->dgram_cksum == 0)
		return 0;
	if (!is_four && lengths->l3_len != sizeof(struct rte_ipv6_hdr))
		/* Behind extension headers: the pseudo header's length is not the header's. */
		return 0;
	is_right = conic_sum(mbuf, transport, bytes, pseudo_sum(is_four, header)) == 0xffff;
	return is_right ? RTE_MBUF_F_RX_L4_CKSUM_GOOD : RTE_MBUF_F_RX_L4_CKSUM_BAD;
}

static uint64_t checksum_flags(const struct rte_mbuf *mbuf, const struct rte_net_hdr_lens *lengths, uint64_t metadata)
{
	uint32_t transport = mbuf->packet_type & RTE_PTYPE_L4_MASK;
	uint64_t flags = 0;

	if (RTE_ETH_IS_IPV4_HDR(mbuf->packet_type) && lengths->l2_len + lengths->l3_len <= mbuf->data_len) {
		const void *header = rte_pktmbuf_mtod_offset(mbuf, const void *, lengths->l2_len);

		flags |= rte_raw_cksum(header, lengths->l3_len) == 0xffff ? RTE_MBUF_F_RX_IP_CKSUM_GOOD
									   : RTE_MBUF_F_RX_IP_CKSUM_BAD;
	}
	if ((mbuf->ol_flags & RTE_MBUF_F_RX_LRO) != 0)
		/* It is begun, which was said. */
		return flags;
	if ((metadata & CONIC_METADATA_TRANSPORT_GOOD) != 0)
		flags |= RTE_MBUF_F_RX_L4_CKSUM_GOOD;
	else if (transport == RTE_PTYPE_L4_TCP || transport == RTE_PTYPE_L4_UDP)
		flags |= transport_flags(mbuf, lengths);
	return flags;
}

/* The NIC's hash of a packet's flow: of its addresses, and of its ports if it is a whole TCP or UDP packet; false for others. */
static bool hash(const struct rte_mbuf *mbuf, const struct rte_net_hdr_lens *lengths, uint32_t *value)
{
	uint32_t words[9], count, transport = mbuf->packet_type & RTE_PTYPE_L4_MASK;
	bool is_four = RTE_ETH_IS_IPV4_HDR(mbuf->packet_type);
	uint32_t addresses = lengths->l2_len + (is_four ? offsetof(struct rte_ipv4_hdr, src_addr)
							: offsetof(struct rte_ipv6_hdr, src_addr));
	uint32_t ports = lengths->l2_len + lengths->l3_len;

	if (!is_four && !RTE_ETH_IS_IPV6_HDR(mbuf->packet_type))
		return false;
	count = is_four ? 2 : 8;
	if (addresses + count * sizeof(words[0]) > mbuf->data_len)
		return false;
	memcpy(words, rte_pktmbuf_mtod_offset(mbuf, const uint8_t *, addresses), count * sizeof(words[0]));
	if ((transport == RTE_PTYPE_L4_TCP || transport == RTE_PTYPE_L4_UDP) && ports + sizeof(words[0]) <= mbuf->data_len)
		memcpy(&words[count++], rte_pktmbuf_mtod_offset(mbuf, const uint8_t *, ports), sizeof(words[0]));
	for (uint32_t i = 0; i < count; i++)
		words[i] = rte_be_to_cpu_32(words[i]);
	*value = rte_softrss(words, count, conic_hash_key);
	return true;
}

/* Takes a VLAN tag out, or takes it over from where the NIC says it. */
static void take_tag(const struct receive_queue *queue, struct rte_mbuf *mbuf, uint64_t metadata)
{
	if ((metadata & CONIC_METADATA_VLAN) != 0) {
		mbuf->vlan_tci = conic_metadata_vlan(metadata);
		mbuf->ol_flags |= RTE_MBUF_F_RX_VLAN | RTE_MBUF_F_RX_VLAN_STRIPPED;
	} else if ((queue->wishes & RTE_ETH_RX_OFFLOAD_VLAN_STRIP) != 0 && mbuf->data_len >= RTE_ETHER_HDR_LEN + RTE_VLAN_HLEN) {
		/* Without a tag it says no, and nothing is done. */
		rte_vlan_strip(mbuf);
	}
}

/* Looks into a received packet for what its queue was asked to say of it; `metadata` is what the NIC said. */
void conic_examine(const struct receive_queue *queue, struct rte_mbuf *mbuf, uint64_t metadata)
{
	struct rte_net_hdr_lens lengths = { 0 };
	uint32_t value;

	take_tag(queue, mbuf, metadata);
	if ((queue->wishes & (RTE_ETH_RX_OFFLOAD_CHECKSUM | RTE_ETH_RX_OFFLOAD_RSS_HASH)) == 0)
		return;
	mbuf->packet_type = rte_net_get_ptype(mbuf, &lengths, RTE_PTYPE_L2_MASK | RTE_PTYPE_L3_MASK | RTE_PTYPE_L4_MASK);
	if ((queue->wishes & RTE_ETH_RX_OFFLOAD_CHECKSUM) != 0)
		mbuf->ol_flags |= checksum_flags(mbuf, &lengths, metadata);
	if ((queue->wishes & RTE_ETH_RX_OFFLOAD_RSS_HASH) == 0)
		return;
	if ((metadata & CONIC_METADATA_HASH) != 0)
		value = metadata;
	else if (!hash(mbuf, &lengths, &value))
		return;
	mbuf->hash.rss = value;
	mbuf->ol_flags |= RTE_MBUF_F_RX_RSS_HASH;
}

/* Takes over whether tags are taken out, of all queues, from the device's configuration; also while it runs. */
int conic_vlan_offload(struct rte_eth_dev *dev, int mask)
{
	struct device *device = dev->data->dev_private;
	uint64_t strip = dev->data->dev_conf.rxmode.offloads & RTE_ETH_RX_OFFLOAD_VLAN_STRIP;

	for (uint16_t i = 0; (mask & RTE_ETH_VLAN_STRIP_MASK) != 0 && i < device->queues; i++) {
		struct receive_queue *queue = device->receive[i];

		if (queue != NULL)
			queue->wishes = (queue->wishes & ~RTE_ETH_RX_OFFLOAD_VLAN_STRIP) | strip;
	}
	return 0;
}
