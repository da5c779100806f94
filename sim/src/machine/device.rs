//! What a device behind the PCIe link does: reads with tags, posted writes, and looks at its own registers.
//!
//! A device is an agent without caches. It acts only when everything before its time has happened, since what it uses, the
//! link, others use too; so it always finds what has come by then. It waits for news: a register that it looks at was
//! written, or a read of its own has all its data.

use conic_fabric::LINE_BYTES;

use crate::parameters::{CacheParameters, Parameters};

use super::access::{Step, merge};
use super::agent::Agent;
use super::pcie::{PcieEvent, Read, Tlp, Withheld};
use super::queues::Queue;
use super::recorder::Held;
use super::{Machine, Wait as W};
use crate::bytes::parts;
use crate::probe::queues::Probed;

impl Machine {
    /// Adds a device behind the PCIe link of node 0 and returns its number as an agent.
    ///
    /// # Panics
    ///
    /// If the machine has no PCIe link.
    pub fn add_device(&mut self) -> usize {
        assert!(self.port.is_some(), "{} has no PCIe link: a device needs a platform with one", self.parameters.name);
        let line = LINE_BYTES;
        let none = CacheParameters { l1_bytes: line, l1_ways: 1, l2_bytes: line, l2_ways: 1, ..self.parameters.cache };
        let parameters = Parameters { cache: none, ..self.parameters.clone() };
        let agent = self.agents.len();
        self.agents.push(Agent::new(&mut self.room, &parameters, 0, 0));
        self.sequences.push(0);
        agent
    }

    /// Something has come for a device.
    pub(crate) fn tell_device(&mut self, id: usize) {
        self.agents[id].past.news = true;
        if self.agents[id].wait == W::News {
            self.make_ready(id);
        }
    }

    /// Waits for news: done if there is any that the device has not seen, or if it is `until`.
    pub(crate) fn news(&mut self, id: usize, until: u64) -> Step<()> {
        if !self.is_present(id) {
            return Err(W::Time);
        }
        let agent = &mut self.agents[id];
        let done = std::mem::take(&mut agent.past.news) || agent.time >= until;
        if done { Ok(()) } else { Err(W::News) }
    }

    /// Starts a read and gives its number. Pieces for which there is no tag wait for one.
    pub(crate) fn start_device_read(&mut self, id: usize, at: u64, length: u64) -> Step<u64> {
        if !self.is_present(id) {
            return Err(W::Time);
        }
        self.agents[id].operations += 1;
        let now = self.now;
        let pieces = self.port().link.tlps().reads(at, length);
        let pieces_left = pieces.clone().count() as u32;
        let read = Read { agent: id as u16, at, pieces_left, data: vec![0; length as usize] };
        let read = self.port().reads.insert(read) as u32;
        self.enters(Queue::DeviceReads, read, now);
        for (at, length) in pieces {
            let lines_left = ((at + length).div_ceil(LINE_BYTES) - at / LINE_BYTES) as u32;
            let port = self.port();
            let tlp = port.tlps.insert(Tlp::Read { read, at, length, lines_left }) as u32;
            let has_tag = port.link.tags().take(tlp, now);
            self.enters(if has_tag { Queue::Tags } else { Queue::WithoutTag }, tlp, now);
            if has_tag {
                let port = self.port();
                let sent = port.link.request_read(tlp, now);
                self.sent(tlp, sent);
            } else {
                self.holds_back(Held::Tlp(tlp));
            }
        }
        Ok(read.into())
    }

    /// Whether a read has all its data.
    pub(crate) fn is_device_read_done(&mut self, id: usize, read: u64) -> Step<bool> {
        if !self.is_present(id) {
            return Err(W::Time);
        }
        Ok(self.port().reads[read as usize].pieces_left == 0)
    }

    /// Takes the data of a read when they are there.
    pub(crate) fn finish_device_read(&mut self, id: usize, read: u64) -> Step<Vec<u8>> {
        if !self.is_device_read_done(id, read)? {
            return Err(W::News);
        }
        let data = self.port().reads.remove(read as usize).data;
        self.leaves(Queue::DeviceReads, read as u32, self.now);
        Ok(data)
    }

    /// Writes: posted, in order.
    pub(crate) fn device_write(&mut self, id: usize, at: u64, bytes: &[u8]) -> Step<()> {
        if !self.is_present(id) {
            return Err(W::Time);
        }
        self.agents[id].operations += 1;
        let now = self.now;
        let pieces = self.port().link.tlps().writes(at, bytes.len() as u64);
        for (piece, length) in pieces {
            let data = &bytes[(piece - at) as usize..][..length as usize];
            let lines_left = ((piece + length).div_ceil(LINE_BYTES) - piece / LINE_BYTES) as u32;
            let port = self.port();
            let tlp = port.tlps.insert(Tlp::Write { at: piece, data: data.into(), lines_left }) as u32;
            let sent = port.link.post_write(crate::pcie::Tlps::data_bytes(piece, length), tlp, now);
            self.sent(tlp, sent);
        }
        Ok(())
    }

    /// What cores' writes to one of the device's registers have brought by now. Whoever looks is told of later ones.
    pub(crate) fn own_register(&mut self, id: usize, at: u64) -> Step<u64> {
        if !self.is_present(id) {
            return Err(W::Time);
        }
        let line = (at / LINE_BYTES) as u32;
        self.port().watchers.insert(line, id as u16);
        Ok(self.data[line as usize].0[(at % LINE_BYTES / 8) as usize])
    }

    /// Reads the device's own memory.
    pub(crate) fn own_bytes(&mut self, id: usize, at: u64, into: &mut [u8]) -> Step<()> {
        if !self.is_present(id) {
            return Err(W::Time);
        }
        for part in parts(at, into.len() as u64) {
            part.read(&self.data[part.line as usize], into);
        }
        Ok(())
    }

    /// Changes the device's own memory.
    pub(crate) fn set_own_bytes(&mut self, id: usize, at: u64, bytes: &[u8]) -> Step<()> {
        if !self.is_present(id) {
            return Err(W::Time);
        }
        for part in parts(at, bytes.len() as u64) {
            merge(&mut self.data[part.line as usize], part.bytes, &part.line_of(bytes));
        }
        Ok(())
    }

    /// From now on loads from this pair of words wait for the device. Whoever withholds is told of them.
    pub(crate) fn withhold(&mut self, id: usize, at: u64) -> Step<()> {
        if !self.is_present(id) {
            return Err(W::Time);
        }
        self.port().withheld.entry(at / 16).or_insert(Withheld { by: id as u16, loads: Vec::new() });
        Ok(())
    }

    /// Answers the loads from this pair of words that wait, and withholds no more.
    pub(crate) fn answer_withheld(&mut self, id: usize, at: u64) -> Step<()> {
        if !self.is_present(id) {
            return Err(W::Time);
        }
        let Some(Withheld { loads, .. }) = self.port().withheld.remove(&(at / 16)) else {
            return Ok(());
        };
        let now = self.now;
        for (tlp, arrived) in loads {
            let answers = self.port().answers_at(arrived, now);
            self.take_up(Held::Tlp(tlp), |this| this.send_tlp(answers, PcieEvent::RegisterAnswers(tlp)));
        }
        Ok(())
    }

    /// Since when the oldest load from this pair of words waits.
    pub(crate) fn withheld_since(&mut self, id: usize, at: u64) -> Step<Option<u64>> {
        if !self.is_present(id) {
            return Err(W::Time);
        }
        let withheld = self.port().withheld.get(&(at / 16));
        Ok(withheld.and_then(|withheld| withheld.loads.first().map(|load| load.1)))
    }
}
