//! A small application behind the interface: it answers ARP and neighbour discovery, ICMP echo, and UDP echo.

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr, Icmpv4Message,
    Icmpv4Packet, Icmpv6Message, Icmpv6Packet, Icmpv6Repr, IpAddress, IpProtocol, Ipv4Address, Ipv4Packet, Ipv6Address,
    Ipv6Packet, Ipv6Repr, NdiscNeighborFlags, NdiscRepr, UdpPacket,
};

use conic_port::MIN_FRAME;

/// The UDP port that answers with what it gets (RFC 862).
pub const ECHO_PORT: u16 = 7;

const ETHERNET_HEADER: usize = 14;

/// What an answer starts with, as hosts usually do.
const HOP_LIMIT: u8 = 64;

/// The hop limit of neighbour discovery: a packet that has it has come through no router (RFC 4861, section 7.1).
const LINK_HOP_LIMIT: u8 = 255;

/// What was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// An ARP request.
    Arp,
    /// A neighbour solicitation.
    Neighbour,
    /// An ICMP echo request, of IPv4 or IPv6.
    Echo,
    /// A datagram to the UDP echo port.
    Udp,
}

/// Why a frame was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// It is for somebody else, or for everybody.
    NotForUs,
    /// Nothing here answers such a thing.
    Unsupported,
    /// It is a part of a larger packet; nothing here puts them together.
    Fragment,
    /// It is too short for what it claims, or claims what cannot be.
    Malformed,
    /// A checksum is wrong.
    Checksum,
}

/// How many frames were answered, by what they were, and how many were not, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// ARP requests answered.
    pub arp: u64,
    /// Neighbour solicitations answered.
    pub neighbour: u64,
    /// Echo requests answered.
    pub echo: u64,
    /// Datagrams answered.
    pub udp: u64,
    /// For somebody else, or for everybody.
    pub not_for_us: u64,
    /// Of a kind that nothing here answers.
    pub unsupported: u64,
    /// Parts of larger packets.
    pub fragments: u64,
    /// Malformed.
    pub malformed: u64,
    /// With a wrong checksum.
    pub bad_checksum: u64,
}

impl Counters {
    /// Every counter with its name, for printing.
    pub fn named(&self) -> [(&'static str, u64); 9] {
        [
            ("arp", self.arp),
            ("neighbour", self.neighbour),
            ("echo", self.echo),
            ("udp", self.udp),
            ("not_for_us", self.not_for_us),
            ("unsupported", self.unsupported),
            ("fragments", self.fragments),
            ("malformed", self.malformed),
            ("bad_checksum", self.bad_checksum),
        ]
    }

    fn count(&mut self, result: Result<Answer, Unanswered>) {
        let counter = match result {
            Ok(Answer::Arp) => &mut self.arp,
            Ok(Answer::Neighbour) => &mut self.neighbour,
            Ok(Answer::Echo) => &mut self.echo,
            Ok(Answer::Udp) => &mut self.udp,
            Err(Unanswered::NotForUs) => &mut self.not_for_us,
            Err(Unanswered::Unsupported) => &mut self.unsupported,
            Err(Unanswered::Fragment) => &mut self.fragments,
            Err(Unanswered::Malformed) => &mut self.malformed,
            Err(Unanswered::Checksum) => &mut self.bad_checksum,
        };
        *counter += 1;
    }
}

/// An application with a hardware address, an IPv4 address and the link-local IPv6 address that follows from the former.
#[derive(Clone, Debug)]
pub struct Responder {
    hardware: EthernetAddress,
    ipv4: Ipv4Address,
    ipv6: Ipv6Address,
    counters: Counters,
}

type Reply = Result<(Answer, usize), Unanswered>;

impl Responder {
    /// An application at these addresses.
    pub fn new(hardware: EthernetAddress, ipv4: Ipv4Address) -> Responder {
        Responder { hardware, ipv4, ipv6: link_local(hardware), counters: Counters::default() }
    }

    /// Its IPv6 address.
    pub fn ipv6(&self) -> Ipv6Address {
        self.ipv6
    }

    /// What it has answered.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Writes the answer to a frame into `reply`, which is as long as the longest frame, and says how long it is, of at
    /// least 60 bytes; none if there is nothing to answer.
    pub fn answer(&mut self, request: &[u8], reply: &mut [u8]) -> Option<usize> {
        let result = self.reply_to(request, reply);
        self.counters.count(result.map(|(answer, _)| answer));
        let (_, length) = result.ok()?;
        if length < MIN_FRAME {
            reply[length..MIN_FRAME].fill(0);
        }
        Some(length.max(MIN_FRAME))
    }

    fn reply_to(&self, request: &[u8], reply: &mut [u8]) -> Reply {
        let frame = EthernetFrame::new_checked(request).map_err(|_| Unanswered::Malformed)?;
        let to_us = frame.dst_addr() == self.hardware;
        if !to_us && !frame.dst_addr().is_multicast() {
            return Err(Unanswered::NotForUs);
        }
        let (payload, source) = (frame.payload(), frame.src_addr());
        let kind = frame.ethertype();
        let (header, body) = reply.split_at_mut(ETHERNET_HEADER);
        let (answer, length) = match kind {
            EthernetProtocol::Arp => self.arp(payload, body)?,
            EthernetProtocol::Ipv4 if to_us => self.ipv4(payload, body)?,
            EthernetProtocol::Ipv6 => self.ipv6_packet(payload, body)?,
            EthernetProtocol::Ipv4 => return Err(Unanswered::NotForUs),
            _ => return Err(Unanswered::Unsupported),
        };
        let repr = EthernetRepr { src_addr: self.hardware, dst_addr: source, ethertype: kind };
        repr.emit(&mut EthernetFrame::new_unchecked(header));
        Ok((answer, ETHERNET_HEADER + length))
    }

    fn arp(&self, payload: &[u8], body: &mut [u8]) -> Reply {
        let packet = ArpPacket::new_checked(payload).map_err(|_| Unanswered::Malformed)?;
        let ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Request,
            source_hardware_addr,
            source_protocol_addr,
            target_protocol_addr,
            ..
        } = ArpRepr::parse(&packet).map_err(|_| Unanswered::Malformed)?
        else {
            return Err(Unanswered::Unsupported);
        };
        if target_protocol_addr != self.ipv4 {
            return Err(Unanswered::NotForUs);
        }
        let reply = ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Reply,
            source_hardware_addr: self.hardware,
            source_protocol_addr: self.ipv4,
            target_hardware_addr: source_hardware_addr,
            target_protocol_addr: source_protocol_addr,
        };
        reply.emit(&mut ArpPacket::new_unchecked(body));
        Ok((Answer::Arp, reply.buffer_len()))
    }

    fn ipv4(&self, payload: &[u8], body: &mut [u8]) -> Reply {
        let packet = Ipv4Packet::new_checked(payload).map_err(|_| Unanswered::Malformed)?;
        if packet.version() != 4 {
            return Err(Unanswered::Malformed);
        }
        if !packet.verify_checksum() {
            return Err(Unanswered::Checksum);
        }
        let source = packet.src_addr();
        if packet.dst_addr() != self.ipv4 {
            return Err(Unanswered::NotForUs);
        }
        if source.is_multicast() || source.is_broadcast() || source.is_unspecified() {
            return Err(Unanswered::Malformed);
        }
        if packet.more_frags() || packet.frag_offset() != 0 {
            return Err(Unanswered::Fragment);
        }
        let length = usize::from(packet.total_len());
        let body = body.get_mut(..length).ok_or(Unanswered::Malformed)?;
        body.copy_from_slice(&payload[..length]);
        let protocol = packet.next_header();
        let mut reply = Ipv4Packet::new_unchecked(body);
        let answer = match protocol {
            IpProtocol::Icmp => echo(reply.payload_mut())?,
            IpProtocol::Udp => udp_echo(reply.payload_mut(), self.ipv4.into(), source.into())?,
            _ => return Err(Unanswered::Unsupported),
        };
        reply.set_src_addr(self.ipv4);
        reply.set_dst_addr(source);
        reply.set_hop_limit(HOP_LIMIT);
        reply.fill_checksum();
        Ok((answer, length))
    }

    fn ipv6_packet(&self, payload: &[u8], body: &mut [u8]) -> Reply {
        let packet = Ipv6Packet::new_checked(payload).map_err(|_| Unanswered::Malformed)?;
        if packet.version() != 6 {
            return Err(Unanswered::Malformed);
        }
        let (source, destination) = (packet.src_addr(), packet.dst_addr());
        let to_us = destination == self.ipv6;
        if !to_us && destination != solicited_node(self.ipv6) {
            return Err(Unanswered::NotForUs);
        }
        if source.is_multicast() {
            return Err(Unanswered::Malformed);
        }
        let protocol = packet.next_header();
        if protocol == IpProtocol::Icmpv6 {
            let icmp = Icmpv6Packet::new_checked(packet.payload()).map_err(|_| Unanswered::Malformed)?;
            if !icmp.verify_checksum(&source, &destination) {
                return Err(Unanswered::Checksum);
            }
            if icmp.msg_type() == Icmpv6Message::NeighborSolicit {
                return self.neighbour(&icmp, packet.hop_limit(), source, body);
            }
        }
        if !to_us {
            return Err(Unanswered::NotForUs);
        }
        let length = packet.total_len();
        let body = body.get_mut(..length).ok_or(Unanswered::Malformed)?;
        body.copy_from_slice(&payload[..length]);
        let mut reply = Ipv6Packet::new_unchecked(body);
        let answer = match protocol {
            IpProtocol::Icmpv6 => echo_v6(reply.payload_mut(), self.ipv6, source)?,
            IpProtocol::Udp => udp_echo(reply.payload_mut(), self.ipv6.into(), source.into())?,
            _ => return Err(Unanswered::Unsupported),
        };
        reply.set_src_addr(self.ipv6);
        reply.set_dst_addr(source);
        reply.set_hop_limit(HOP_LIMIT);
        Ok((answer, length))
    }

    /// Answers a neighbour solicitation with our hardware address (RFC 4861, section 7.2.4).
    fn neighbour(&self, icmp: &Icmpv6Packet<&[u8]>, hop_limit: u8, source: Ipv6Address, body: &mut [u8]) -> Reply {
        if hop_limit != LINK_HOP_LIMIT || icmp.msg_code() != 0 {
            return Err(Unanswered::Malformed);
        }
        let NdiscRepr::NeighborSolicit { target_addr, .. } =
            NdiscRepr::parse(icmp).map_err(|_| Unanswered::Malformed)?
        else {
            return Err(Unanswered::Malformed);
        };
        // Without a source it asks whether the address is in use, because it wants it: that is not for an echo to settle.
        if target_addr != self.ipv6 || source.is_unspecified() {
            return Err(Unanswered::NotForUs);
        }
        let advert = Icmpv6Repr::Ndisc(NdiscRepr::NeighborAdvert {
            flags: NdiscNeighborFlags::SOLICITED | NdiscNeighborFlags::OVERRIDE,
            target_addr,
            lladdr: Some(self.hardware.into()),
        });
        let ip = Ipv6Repr {
            src_addr: self.ipv6,
            dst_addr: source,
            next_header: IpProtocol::Icmpv6,
            payload_len: advert.buffer_len(),
            hop_limit: LINK_HOP_LIMIT,
        };
        let mut reply = Ipv6Packet::new_unchecked(body);
        ip.emit(&mut reply);
        let mut message = Icmpv6Packet::new_unchecked(reply.payload_mut());
        advert.emit(&self.ipv6, &source, &mut message, &ChecksumCapabilities::default());
        Ok((Answer::Neighbour, ip.buffer_len() + ip.payload_len))
    }
}

/// Turns an ICMP echo request into its reply.
fn echo(message: &mut [u8]) -> Result<Answer, Unanswered> {
    let mut packet = Icmpv4Packet::new_checked(message).map_err(|_| Unanswered::Malformed)?;
    if !packet.verify_checksum() {
        return Err(Unanswered::Checksum);
    }
    if packet.msg_type() != Icmpv4Message::EchoRequest || packet.msg_code() != 0 {
        return Err(Unanswered::Unsupported);
    }
    packet.set_msg_type(Icmpv4Message::EchoReply);
    packet.fill_checksum();
    Ok(Answer::Echo)
}

/// Turns an ICMPv6 echo request, whose checksum has been verified, into its reply.
fn echo_v6(message: &mut [u8], ours: Ipv6Address, theirs: Ipv6Address) -> Result<Answer, Unanswered> {
    let mut packet = Icmpv6Packet::new_checked(message).map_err(|_| Unanswered::Malformed)?;
    if packet.msg_type() != Icmpv6Message::EchoRequest || packet.msg_code() != 0 {
        return Err(Unanswered::Unsupported);
    }
    packet.set_msg_type(Icmpv6Message::EchoReply);
    packet.fill_checksum(&ours, &theirs);
    Ok(Answer::Echo)
}

/// Turns a datagram to the echo port into its answer.
fn udp_echo(datagram: &mut [u8], ours: IpAddress, theirs: IpAddress) -> Result<Answer, Unanswered> {
    let mut packet = UdpPacket::new_checked(datagram).map_err(|_| Unanswered::Malformed)?;
    let over_ipv6 = matches!(ours, IpAddress::Ipv6(_));
    // Only IPv4 allows a datagram without a checksum (RFC 8200, section 8.1).
    if !packet.verify_checksum(&theirs, &ours) || over_ipv6 && packet.checksum() == 0 {
        return Err(Unanswered::Checksum);
    }
    let (from, to) = (packet.src_port(), packet.dst_port());
    // Two echo services would answer each other for ever.
    if to != ECHO_PORT || from == ECHO_PORT || from == 0 {
        return Err(Unanswered::Unsupported);
    }
    packet.set_src_port(to);
    packet.set_dst_port(from);
    packet.fill_checksum(&ours, &theirs);
    Ok(Answer::Udp)
}

/// The link-local address that follows from a hardware address (RFC 4291, appendix A).
fn link_local(hardware: EthernetAddress) -> Ipv6Address {
    let [a, b, c, d, e, f] = hardware.0;
    Ipv6Address::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// The multicast address on which a node is asked for its hardware address (RFC 4291, section 2.7.1).
fn solicited_node(address: Ipv6Address) -> Ipv6Address {
    let [.., d, e, f] = address.octets();
    Ipv6Address::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, d, e, f])
}

#[cfg(test)]
mod tests;
