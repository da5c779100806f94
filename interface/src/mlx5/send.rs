//! The send queue as the device sees it: entries fetched by blocks, taken apart into packets, and these read.

use std::collections::VecDeque;

use conic_fabric::{Address, Device, LINE_BYTES, Line, ReadTag, StateHint};

use super::QueuePair;
use super::device::{READ, Refusals};
use super::entry::{BLOCK, Completion, Control, Data, MOST_BLOCKS, Read};
use crate::ccnic::MAX_SEGMENTS;
use crate::ring::{Refused, Sources};
use crate::work;

/// Batches of blocks that are on the device, or on their way to it, at most.
const BATCHES: u64 = 2;

/// Blocks under way.
#[derive(Debug)]
struct Fetch {
    tag: ReadTag,
    first: u16,
    count: u16,
}

/// A part of a packet that is read where it is.
#[derive(Debug, Default)]
struct Part {
    address: u64,
    length: u64,
    tag: Option<ReadTag>,
}

/// A packet that was found in an entry.
#[derive(Debug, Default)]
struct Outgoing {
    /// Those of its bytes that were in the entry.
    head: Vec<u8>,
    /// And those behind them.
    parts: [Part; MAX_SEGMENTS],
    count: usize,
    /// It is none: there was nothing good in the entry.
    nothing: bool,
    /// It is the last one of an entry, whose first block this is, that is to be reported.
    reports: Option<u16>,
}

impl Outgoing {
    fn length(&self) -> u64 {
        self.head.len() as u64 + self.parts[..self.count].iter().map(|part| part.length).sum::<u64>()
    }
}

/// The device's side of a send queue.
#[derive(Debug)]
pub(super) struct Send {
    queues: QueuePair,
    sources: Sources,
    /// Blocks that the host has announced, ever; that were asked for, are here, and were taken apart.
    announced: u16,
    asked: u16,
    here: u16,
    parsed: u16,
    fetches: VecDeque<Fetch>,
    /// Blocks that are here, each at its number's place, and one entry of them in a row.
    blocks: Box<[[u8; BLOCK]]>,
    row: Box<[u8]>,
    scratch: Vec<u8>,
    packets: VecDeque<Outgoing>,
    spare: Vec<Outgoing>,
    /// Bytes of payload that were asked for and not taken.
    reading: u64,
    /// Entries to be reported, by their first blocks, and how many were reported.
    done: VecDeque<u16>,
    reported: u32,
}

impl Send {
    pub fn new(queues: QueuePair) -> Send {
        let window = (BATCHES * queues.shape.fetch_batch).max(MOST_BLOCKS).next_power_of_two();
        Send {
            queues,
            sources: queues.sources(),
            announced: 0,
            asked: 0,
            here: 0,
            parsed: 0,
            fetches: VecDeque::new(),
            blocks: (0..window).map(|_| [0; BLOCK]).collect(),
            row: vec![0; MOST_BLOCKS as usize * BLOCK].into(),
            scratch: Vec::new(),
            packets: VecDeque::new(),
            spare: Vec::new(),
            reading: 0,
            done: VecDeque::new(),
            reported: 0,
        }
    }

    /// Looks at the doorbell, and does what it says.
    pub fn look(&mut self, device: &impl Device, refusals: &mut Refusals) {
        // Acquire (natively): the host's writes of entries and payloads before this side reads them.
        self.look_at(device, device.own_register(self.queues.doorbell), refusals);
    }

    /// Takes what has come, and asks for what the doorbell announces.
    pub fn look_at(&mut self, device: &impl Device, doorbell: u64, refusals: &mut Refusals) {
        self.hear(doorbell, refusals);
        self.take_blocks(device);
        self.parse(device, refusals);
        self.fetch(device);
    }

    /// Takes what the doorbell says: the first word of the last entry that there is.
    fn hear(&mut self, word: u64, refusals: &mut Refusals) {
        if word == 0 {
            return;
        }
        let end = Control::of(word).map(|control| control.index.wrapping_add(control.blocks()));
        match end {
            Some(end) if u64::from(end.wrapping_sub(self.parsed)) <= self.queues.blocks => {
                // An older one than is known is what was heard before.
                if end.wrapping_sub(self.parsed) > self.announced.wrapping_sub(self.parsed) {
                    self.announced = end;
                }
            }
            _ => refusals.doorbell += 1,
        }
    }

    fn place(&self, number: u16) -> usize {
        usize::from(number) & (self.blocks.len() - 1)
    }

    /// Takes blocks that have come.
    fn take_blocks(&mut self, device: &impl Device) {
        while let Some(fetch) = self.fetches.front().filter(|fetch| device.is_ready(&fetch.tag)) {
            let (first, count) = (fetch.first, fetch.count);
            let Some(Fetch { tag, .. }) = self.fetches.pop_front() else { return };
            let at = self.queues.block(first);
            self.scratch.resize(usize::from(count) * BLOCK, 0);
            device.finish_read(tag, at, &mut self.scratch);
            device.work(work::CALL + work::DESCRIPTOR * u32::from(count));
            for (number, block) in (0..).zip(self.scratch.chunks_exact(BLOCK)) {
                // Payloads' addresses may stand in any of them.
                device.depends_on(at.lines(number));
                let place = usize::from(first.wrapping_add(number as u16)) & (self.blocks.len() - 1);
                self.blocks[place].copy_from_slice(block);
            }
            self.here = first.wrapping_add(count);
        }
    }

    /// Asks for blocks that are announced, as far as there is room for them.
    fn fetch(&mut self, device: &impl Device) {
        loop {
            let first = self.asked;
            let room = self.blocks.len() as u64 - u64::from(first.wrapping_sub(self.parsed));
            let there = u64::from(self.announced.wrapping_sub(first));
            let to_end = self.queues.blocks - (u64::from(first) & (self.queues.blocks - 1));
            let count = there.min(room).min(to_end).min(self.queues.shape.fetch_batch);
            if count == 0 {
                return;
            }
            let tag = device.start_read(self.queues.block(first), count * LINE_BYTES, READ);
            self.fetches.push_back(Fetch { tag, first, count: count as u16 });
            self.asked = first.wrapping_add(count as u16);
        }
    }

    /// Takes entries apart that are all here, as far as there is room for their payloads.
    fn parse(&mut self, device: &impl Device, refusals: &mut Refusals) {
        while self.parsed != self.here && self.reading < self.queues.shape.common.read_ahead_bytes {
            let first = self.place(self.parsed);
            let word = u64::from_ne_bytes(self.blocks[first][..8].try_into().expect("eight bytes"));
            let control = Control::of(word).filter(|control| {
                control.index == self.parsed
                    && u64::from(control.blocks()) <= MOST_BLOCKS
                    && control.blocks() <= self.announced.wrapping_sub(self.parsed)
            });
            // A block that begins no entry is passed over: so a host that writes nonsense does not stop here.
            let blocks = control.map_or(1, Control::blocks);
            if blocks > self.here.wrapping_sub(self.parsed) {
                return;
            }
            match control {
                Some(_) => self.take_apart(device, blocks, refusals),
                None => refusals.entry += 1,
            }
            self.parsed = self.parsed.wrapping_add(blocks);
        }
    }

    /// Makes packets of the next entry, which has so many blocks.
    fn take_apart(&mut self, device: &impl Device, blocks: u16, refusals: &mut Refusals) {
        for number in 0..blocks {
            let place = self.place(self.parsed.wrapping_add(number));
            self.row[usize::from(number) * BLOCK..][..BLOCK].copy_from_slice(&self.blocks[place]);
        }
        let row = std::mem::take(&mut self.row);
        if let Some(read) = Read::of(&row[..usize::from(blocks) * BLOCK]) {
            let before = self.packets.len();
            if read.control.multi_packet {
                self.add_packets(device, read, refusals);
            } else {
                self.add_packet(device, read, refusals);
            }
            if read.control.asks {
                if self.packets.len() == before {
                    let mut nothing = self.blank();
                    nothing.nothing = true;
                    self.packets.push_back(nothing);
                }
                if let Some(last) = self.packets.back_mut() {
                    last.reports = Some(read.control.index);
                }
            }
        }
        self.row = row;
    }

    fn blank(&mut self) -> Outgoing {
        let mut blank = self.spare.pop().unwrap_or_default();
        blank.head.clear();
        (blank.count, blank.nothing, blank.reports) = (0, false, None);
        blank
    }

    /// Adds a packet for each data segment.
    fn add_packets(&mut self, device: &impl Device, mut read: Read<'_>, refusals: &mut Refusals) {
        while let Some(data) = read.next() {
            let mut packet = self.blank();
            let judged = match data {
                Ok(Data::Inline(from, length)) => self.add_head(&mut packet, &read, from, length),
                Ok(Data::At(address, length)) => self.add_part(device, &mut packet, address, length),
                Err(()) => Err(Refused::Length),
            };
            self.add(packet, judged, refusals);
        }
    }

    /// Adds the packet that an entry is.
    fn add_packet(&mut self, device: &impl Device, mut read: Read<'_>, refusals: &mut Refusals) {
        let mut packet = self.blank();
        let judged = self.judge(&mut packet, &mut read).map(|()| {
            // Nothing is asked for before all of it is known to be good.
            for part in &mut packet.parts[..packet.count] {
                part.tag = Some(device.start_read(Address(part.address), part.length, READ));
                self.reading += part.length;
            }
        });
        self.add(packet, judged, refusals);
    }

    /// Finds out what a packet is made of.
    fn judge(&self, packet: &mut Outgoing, read: &mut Read<'_>) -> Result<(), Refused> {
        match read.head().ok_or(Refused::Length)? {
            Data::Inline(_, 0) => {}
            Data::Inline(from, length) => self.add_head(packet, read, from, length)?,
            Data::At(..) => return Err(Refused::Length),
        }
        while let Some(data) = read.next() {
            let Ok(Data::At(address, length)) = data else { return Err(Refused::Length) };
            self.sources.may_send(address, length)?;
            let part = packet.parts.get_mut(packet.count).ok_or(Refused::Length)?;
            *part = Part { address, length, tag: None };
            packet.count += 1;
        }
        let length = packet.length();
        if length == 0 || length > self.sources.longest { Err(Refused::Length) } else { Ok(()) }
    }

    /// Adds bytes that are in an entry.
    fn add_head(&self, packet: &mut Outgoing, read: &Read<'_>, from: usize, length: usize) -> Result<(), Refused> {
        if length == 0 {
            return Err(Refused::Length);
        }
        packet.head.extend_from_slice(&read.bytes()[from..from + length]);
        Ok(())
    }

    /// Adds what is somewhere else, and asks for it.
    fn add_part(
        &mut self,
        device: &impl Device,
        packet: &mut Outgoing,
        address: u64,
        length: u64,
    ) -> Result<(), Refused> {
        self.sources.may_send(address, length)?;
        let tag = device.start_read(Address(address), length, READ);
        packet.parts[0] = Part { address, length, tag: Some(tag) };
        packet.count = 1;
        self.reading += length;
        Ok(())
    }

    fn add(&mut self, packet: Outgoing, judged: Result<(), Refused>, refusals: &mut Refusals) {
        match judged {
            Ok(()) => self.packets.push_back(packet),
            Err(refused) => {
                self.spare.push(packet);
                match refused {
                    Refused::Length => refusals.tx_length += 1,
                    Refused::Address => refusals.tx_address += 1,
                }
            }
        }
    }

    /// Passes over what is no packet, and returns how many packets there are.
    pub fn waiting(&mut self) -> usize {
        while self.packets.front().is_some_and(|packet| packet.nothing) {
            self.retire();
        }
        self.packets.len()
    }

    /// The length of the next packet, if all of it is here.
    pub fn next_length(&self, device: &impl Device) -> Option<u64> {
        let packet = self.packets.iter().find(|packet| !packet.nothing)?;
        let here = |part: &Part| part.tag.as_ref().is_none_or(|tag| device.is_ready(tag));
        packet.parts[..packet.count].iter().all(here).then(|| packet.length())
    }

    /// Takes the next packet, if all of it is here.
    pub fn take(&mut self, device: &impl Device, into: &mut [u8]) -> Option<usize> {
        self.waiting();
        let length = self.next_length(device)? as usize;
        let packet = self.packets.front_mut()?;
        let mut at = packet.head.len();
        into[..at].copy_from_slice(&packet.head);
        for part in &mut packet.parts[..packet.count] {
            let tag = part.tag.take()?;
            device.finish_read(tag, Address(part.address), &mut into[at..at + part.length as usize]);
            at += part.length as usize;
            self.reading -= part.length;
        }
        self.retire();
        Some(length)
    }

    /// Is done with the first packet.
    fn retire(&mut self) {
        if let Some(packet) = self.packets.pop_front() {
            self.done.extend(packet.reports);
            self.spare.push(packet);
        }
    }

    /// Reports entries that are done.
    pub fn report(&mut self, device: &impl Device) {
        self.waiting();
        while let Some(index) = self.done.pop_front() {
            let word = Completion::Sent(index).word(self.reported, self.queues.send_slots);
            // Release (natively): the reads of entries and payloads before the host overwrites them.
            device.publish_line(
                self.queues.send_completion(self.reported),
                &Line([word, 0, 0, 0, 0, 0, 0, 0]),
                StateHint::NonCacheablePush,
            );
            self.reported = self.reported.wrapping_add(1);
        }
    }
}
