//! Requests as a kernel sends them, and what must come back.

use smoltcp::wire::{Icmpv4Repr, Ipv4Repr, UdpRepr};

use super::*;

const OURS: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 2]);
const THEIRS: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 1]);
const US: Ipv4Address = Ipv4Address::new(10, 9, 0, 2);
const THEM: Ipv4Address = Ipv4Address::new(10, 9, 0, 1);

fn responder() -> Responder {
    Responder::new(OURS, US)
}

fn ethernet(destination: EthernetAddress, kind: EthernetProtocol, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; ETHERNET_HEADER];
    let repr = EthernetRepr { src_addr: THEIRS, dst_addr: destination, ethertype: kind };
    repr.emit(&mut EthernetFrame::new_unchecked(&mut frame[..]));
    frame.extend_from_slice(payload);
    frame.resize(frame.len().max(MIN_FRAME), 0);
    frame
}

fn ipv4(protocol: IpProtocol, payload_len: usize, emit: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let ip = Ipv4Repr { src_addr: THEM, dst_addr: US, next_header: protocol, payload_len, hop_limit: 9 };
    let mut bytes = vec![0; ip.buffer_len() + payload_len];
    let mut packet = Ipv4Packet::new_unchecked(&mut bytes[..]);
    ip.emit(&mut packet, &ChecksumCapabilities::default());
    emit(packet.payload_mut());
    ethernet(OURS, EthernetProtocol::Ipv4, &bytes)
}

fn ping(data: &[u8]) -> Vec<u8> {
    let echo = Icmpv4Repr::EchoRequest { ident: 5, seq_no: 6, data };
    ipv4(IpProtocol::Icmp, echo.buffer_len(), |payload| {
        echo.emit(&mut Icmpv4Packet::new_unchecked(payload), &ChecksumCapabilities::default());
    })
}

fn udp(from: u16, to: u16, data: &[u8]) -> Vec<u8> {
    let repr = UdpRepr { src_port: from, dst_port: to };
    ipv4(IpProtocol::Udp, repr.header_len() + data.len(), |payload| {
        let fill = |space: &mut [u8]| space.copy_from_slice(data);
        let packet = &mut UdpPacket::new_unchecked(payload);
        repr.emit(packet, &THEM.into(), &US.into(), data.len(), fill, &ChecksumCapabilities::default());
    })
}

fn icmpv6(destination: Ipv6Address, hop_limit: u8, message: &Icmpv6Repr<'_>) -> Vec<u8> {
    let source = link_local(THEIRS);
    let payload_len = message.buffer_len();
    let ip =
        Ipv6Repr { src_addr: source, dst_addr: destination, next_header: IpProtocol::Icmpv6, payload_len, hop_limit };
    let mut bytes = vec![0; ip.buffer_len() + payload_len];
    let mut packet = Ipv6Packet::new_unchecked(&mut bytes[..]);
    ip.emit(&mut packet);
    let mut icmp = Icmpv6Packet::new_unchecked(packet.payload_mut());
    message.emit(&source, &destination, &mut icmp, &ChecksumCapabilities::default());
    ethernet(EthernetAddress([0x33, 0x33, 0xff, 0, 0, 2]), EthernetProtocol::Ipv6, &bytes)
}

fn answer(request: &[u8]) -> Option<Vec<u8>> {
    let mut reply = vec![0xee; 9600];
    let length = responder().answer(request, &mut reply)?;
    reply.truncate(length);
    Some(reply)
}

fn why_not(request: &[u8]) -> Option<Unanswered> {
    responder().reply_to(request, &mut vec![0; 9600]).err()
}

#[test]
fn a_ping_of_every_size_comes_back_with_its_data() {
    for size in [0, 1, 17, 18, 56, 1472, 9000, 9558] {
        let data: Vec<u8> = (0..size).map(|index| (index * 7) as u8).collect();
        let reply = answer(&ping(&data)).expect("an answer");
        let frame = EthernetFrame::new_checked(&reply[..]).expect("a frame");
        assert_eq!((frame.src_addr(), frame.dst_addr(), reply.len() >= MIN_FRAME), (OURS, THEIRS, true));
        let packet = Ipv4Packet::new_checked(frame.payload()).expect("a packet");
        assert!(packet.verify_checksum());
        assert_eq!((packet.src_addr(), packet.dst_addr(), packet.hop_limit()), (US, THEM, HOP_LIMIT));
        let icmp = Icmpv4Packet::new_checked(packet.payload()).expect("a message");
        let repr = Icmpv4Repr::parse(&icmp, &ChecksumCapabilities::default()).expect("a sound message");
        assert_eq!(repr, Icmpv4Repr::EchoReply { ident: 5, seq_no: 6, data: &data });
    }
}

#[test]
fn a_datagram_to_the_echo_port_comes_back() {
    let reply = answer(&udp(4000, ECHO_PORT, b"hello")).expect("an answer");
    let packet = Ipv4Packet::new_checked(&reply[ETHERNET_HEADER..]).expect("a packet");
    let datagram = UdpPacket::new_checked(packet.payload()).expect("a datagram");
    assert!(datagram.verify_checksum(&US.into(), &THEM.into()));
    assert_eq!((datagram.src_port(), datagram.dst_port(), datagram.payload()), (ECHO_PORT, 4000, &b"hello"[..]));
    assert_eq!(why_not(&udp(ECHO_PORT, ECHO_PORT, b"hello")), Some(Unanswered::Unsupported));
    assert_eq!(why_not(&udp(4000, 8, b"hello")), Some(Unanswered::Unsupported));
}

#[test]
fn an_arp_request_for_our_address_is_answered() {
    let request = |target| {
        let repr = ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Request,
            source_hardware_addr: THEIRS,
            source_protocol_addr: THEM,
            target_hardware_addr: EthernetAddress([0; 6]),
            target_protocol_addr: target,
        };
        let mut bytes = vec![0; repr.buffer_len()];
        repr.emit(&mut ArpPacket::new_unchecked(&mut bytes[..]));
        ethernet(EthernetAddress::BROADCAST, EthernetProtocol::Arp, &bytes)
    };
    let reply = answer(&request(US)).expect("an answer");
    let repr = ArpRepr::parse(&ArpPacket::new_checked(&reply[ETHERNET_HEADER..]).expect("a packet"));
    let expected = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Reply,
        source_hardware_addr: OURS,
        source_protocol_addr: US,
        target_hardware_addr: THEIRS,
        target_protocol_addr: THEM,
    };
    assert_eq!(repr, Ok(expected));
    assert_eq!(why_not(&request(THEM)), Some(Unanswered::NotForUs));
}

#[test]
fn neighbour_discovery_and_ping_work_over_ipv6() {
    let ours = responder().ipv6();
    let solicit = Icmpv6Repr::Ndisc(NdiscRepr::NeighborSolicit { target_addr: ours, lladdr: Some(THEIRS.into()) });
    let reply = answer(&icmpv6(solicited_node(ours), 255, &solicit)).expect("an answer");
    let packet = Ipv6Packet::new_checked(&reply[ETHERNET_HEADER..]).expect("a packet");
    let icmp = Icmpv6Packet::new_checked(packet.payload()).expect("a message");
    assert!(icmp.verify_checksum(&ours, &link_local(THEIRS)));
    let Ok(NdiscRepr::NeighborAdvert { target_addr, lladdr, .. }) = NdiscRepr::parse(&icmp) else {
        panic!("the reply is no advertisement");
    };
    assert_eq!((target_addr, lladdr, packet.hop_limit()), (ours, Some(OURS.into()), 255));
    assert_eq!(why_not(&icmpv6(solicited_node(ours), 64, &solicit)), Some(Unanswered::Malformed));

    let echo = Icmpv6Repr::EchoRequest { ident: 1, seq_no: 2, data: b"over six" };
    let reply = answer(&icmpv6(ours, 64, &echo)).expect("an answer");
    let packet = Ipv6Packet::new_checked(&reply[ETHERNET_HEADER..]).expect("a packet");
    let icmp = Icmpv6Packet::new_checked(packet.payload()).expect("a message");
    let repr = Icmpv6Repr::parse(&ours, &link_local(THEIRS), &icmp, &ChecksumCapabilities::default());
    assert_eq!(repr, Ok(Icmpv6Repr::EchoReply { ident: 1, seq_no: 2, data: b"over six" }));
}

#[test]
fn a_changed_byte_anywhere_behind_the_ethernet_header_is_noticed() {
    for request in
        [ping(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18]), udp(4000, ECHO_PORT, &[7; 18])]
    {
        for at in ETHERNET_HEADER..MIN_FRAME {
            let mut changed = request.clone();
            changed[at] ^= 0x10;
            assert_eq!(answer(&changed), None, "byte {at} was changed");
        }
    }
}

#[test]
fn a_frame_cut_short_anywhere_is_refused() {
    let frames = [ping(&[9; 400]), udp(4000, ECHO_PORT, &[9; 400])];
    for whole in frames {
        for length in 0..whole.len() {
            assert_eq!(why_not(&whole[..length]), Some(Unanswered::Malformed), "{length} bytes");
        }
    }
}

#[test]
fn what_is_for_others_and_fragments_are_counted() {
    let mut other = ping(&[0; 20]);
    other[5] ^= 1;
    let mut fragment = ping(&[0; 20]);
    let mut packet = Ipv4Packet::new_unchecked(&mut fragment[ETHERNET_HEADER..]);
    packet.set_more_frags(true);
    packet.fill_checksum();
    let mut responder = responder();
    let mut reply = vec![0; 9600];
    for frame in [other, fragment, ethernet(OURS, EthernetProtocol::Unknown(0x88cc), &[0; 50])] {
        assert_eq!(responder.answer(&frame, &mut reply), None);
    }
    let expected = Counters { not_for_us: 1, fragments: 1, unsupported: 1, ..Counters::default() };
    assert_eq!(responder.counters(), expected);
}
