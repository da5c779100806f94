//! Gates of the links, each at its picosecond: expected times are recomputed from the parameters.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::*;
use crate::draws::Draws;

/// UPI of Ice Lake: 3 links of 20 lanes at 11.2 GT/s, 28 GB/s each; a flit of 24 bytes takes 857 ps.
fn icx() -> InterconnectParameters {
    InterconnectParameters {
        links: 3,
        crossing: 30_000,
        flit_time: 857,
        flit_bytes: 24,
        flit_slots: 3,
        data_flits: 4,
        data_slots: 9,
        header_slots: 1,
        request_credits: 256,
    }
}

/// UPI of Sapphire Rapids: 4 links of 24 lanes at 16 GT/s, 48 GB/s each; a flit takes 500 ps.
fn spr() -> InterconnectParameters {
    InterconnectParameters { links: 4, crossing: 32_000, flit_time: 500, ..icx() }
}

fn one_link() -> InterconnectParameters {
    InterconnectParameters { links: 1, ..icx() }
}

#[test]
fn on_an_empty_link_a_message_takes_its_flits_and_the_crossing() {
    let p = icx();
    let now = 1_000_000;
    assert_eq!(Direction::new(&p).send_data(7, now), now + u64::from(p.data_flits) * p.flit_time + p.crossing);
    assert_eq!(Direction::new(&p).send_header(7, now), now + p.flit_time + p.crossing);
}

#[test]
fn a_message_waits_while_the_link_is_taken_and_not_a_picosecond_longer() {
    let p = one_link();
    let busy = u64::from(p.data_flits) * p.flit_time;
    for (ready, starts) in [(0, busy), (busy - 1, busy), (busy, busy), (busy + 1, busy + 1)] {
        let mut direction = Direction::new(&p);
        direction.send_data(0, 0);
        assert_eq!(direction.wait(9, ready), starts - ready);
        assert_eq!(direction.send_data(9, ready), starts + busy + p.crossing, "ready at {ready}");
    }
}

#[test]
fn a_saturated_link_moves_one_line_in_the_time_of_its_flits() {
    let p = one_link();
    let mut direction = Direction::new(&p);
    let arrivals: Vec<u64> = (0..100).map(|line| direction.send_data(line, 0)).collect();
    for pair in arrivals.windows(2) {
        assert_eq!(pair[1] - pair[0], u64::from(p.data_flits) * p.flit_time);
    }
}

#[test]
fn lines_on_different_links_do_not_wait_for_each_other() {
    let p = spr();
    let mut direction = Direction::new(&p);
    let other = (1..).find(|&line| direction.link_of(line) != direction.link_of(0)).expect("there are four links");
    let arrival = direction.send_data(0, 0);
    assert_eq!(direction.send_data(other, 0), arrival);
}

#[test]
fn headers_ride_free_in_the_slots_that_a_line_leaves_and_the_next_costs_a_flit() {
    let p = one_link();
    let mut direction = Direction::new(&p);
    let with_the_line = direction.send_data(0, 0);
    let free = p.data_flits * p.flit_slots - p.data_slots;
    for _ in 0..free {
        assert_eq!(direction.send_header(1, 0), with_the_line);
    }
    assert_eq!(direction.counters().flits, u64::from(p.data_flits));
    assert_eq!(direction.send_header(1, 0), with_the_line + p.flit_time);
    assert_eq!(direction.counters().flits, u64::from(p.data_flits) + 1);
    assert_eq!(direction.counters().headers_riding, u64::from(free));
}

#[test]
fn a_header_rides_until_the_flit_leaves_and_not_after() {
    let p = one_link();
    let last_leaves = u64::from(p.data_flits - 1) * p.flit_time;
    let line_arrives = u64::from(p.data_flits) * p.flit_time + p.crossing;
    for (ready, arrives) in [
        (last_leaves - 1, line_arrives),
        (last_leaves, line_arrives),
        (last_leaves + 1, line_arrives + p.flit_time),
        (last_leaves + p.flit_time, line_arrives + p.flit_time),
        (last_leaves + p.flit_time + 1, line_arrives + p.flit_time + 1),
    ] {
        let mut direction = Direction::new(&p);
        direction.send_data(0, 0);
        assert_eq!(direction.send_header(0, ready), arrives, "ready at {ready}");
    }
}

#[test]
fn the_flit_of_a_header_carries_others_that_are_ready_before_it_leaves() {
    let p = one_link();
    let mut direction = Direction::new(&p);
    let line_arrives = direction.send_data(0, 0);
    let free = p.data_flits * p.flit_slots - p.data_slots;
    let line_ends = u64::from(p.data_flits) * p.flit_time;
    // Fills the line's own slots, and one flit more, which leaves when the line has left.
    for _ in 0..free + 1 {
        direction.send_header(0, 0);
    }
    assert_eq!(direction.send_header(0, line_ends), line_arrives + p.flit_time, "the flit leaves just now");
    assert_eq!(direction.send_header(0, line_ends + 1), line_arrives + 2 * p.flit_time, "the flit has left");
    assert_eq!(direction.counters().flits, u64::from(p.data_flits) + 2);
}

#[test]
fn free_slots_of_several_flits_close_flit_by_flit() {
    // A line in 5 flits of 4 slots, of which it fills 12: the last two flits are free.
    let p = InterconnectParameters { flit_slots: 4, data_flits: 5, data_slots: 12, ..one_link() };
    let riding = |ready: u64| {
        let mut direction = Direction::new(&p);
        direction.send_data(0, 0);
        for _ in 0..8 {
            direction.send_header(0, ready);
        }
        // The headers that found no room took a flit and filled it: they ride too, but for the first of them.
        direction.counters().flits - u64::from(p.data_flits)
    };
    assert_eq!(riding(3 * p.flit_time), 0, "both flits are to leave: all eight ride");
    assert_eq!(riding(3 * p.flit_time + 1), 1, "one flit is to leave: four ride");
    assert_eq!(riding(4 * p.flit_time), 1);
    assert_eq!(riding(4 * p.flit_time + 1), 2, "none is to leave");
}

#[test]
fn a_line_takes_the_time_of_its_flits_and_moves_the_free_slots_behind_it() {
    let p = one_link();
    let free = p.data_flits * p.flit_slots - p.data_slots;
    let line_time = u64::from(p.data_flits) * p.flit_time;
    // The second line begins in the slots that the first left free, as long as those have not left.
    for (ready, riding) in [(line_time - p.flit_time, 2 * free), (line_time - p.flit_time + 1, free)] {
        let mut direction = Direction::new(&p);
        let first = direction.send_data(0, 0);
        let second = direction.send_data(0, ready);
        assert_eq!(second, first + line_time);
        for _ in 0..riding {
            assert_eq!(direction.send_header(0, ready), second, "riding with the first line would overtake the second");
        }
        assert_eq!(direction.send_header(0, ready), second + p.flit_time, "ready at {ready}");
    }
}

#[test]
fn a_line_moves_no_more_free_slots_than_it_fills() {
    let p = one_link();
    let mut direction = Direction::new(&p);
    let last = (0..100).map(|_| direction.send_data(0, 0)).max().expect("lines were sent");
    for _ in 0..p.data_flits * p.flit_slots {
        assert_eq!(direction.send_header(0, 0), last);
    }
    assert_eq!(direction.send_header(0, 0), last + p.flit_time);
}

#[test]
fn a_header_of_several_flits_takes_them_all() {
    let p = InterconnectParameters { header_slots: 4, ..one_link() };
    let mut direction = Direction::new(&p);
    assert_eq!(direction.send_header(0, 0), 2 * p.flit_time + p.crossing);
    assert_eq!(direction.counters().flits, 2);
}

/// Bits of line data a second, one way, with every line ready at once.
fn read_only_gigabits(p: &InterconnectParameters) -> f64 {
    let mut direction = Direction::new(p);
    let lines = 400_000;
    let last = (0..lines).map(|line| direction.send_data(line, 0)).max().expect("lines were sent") - p.crossing;
    (lines * 64 * 8) as f64 / last as f64 * 1000.0
}

#[test]
fn the_peak_of_one_direction_is_the_measured_one() {
    // CC-NIC section 3.1: 443 Gb/s on Ice Lake, 1020 Gb/s on Sapphire Rapids, read-only.
    for (p, measured) in [(icx(), 443.0), (spr(), 1020.0)] {
        let formula = f64::from(p.links * 64 * 8) / (u64::from(p.data_flits) * p.flit_time) as f64 * 1000.0;
        assert!((formula / measured - 1.0).abs() < 0.02, "formula {formula}, measured {measured}");
        let simulated = read_only_gigabits(&p);
        assert!((simulated / formula - 1.0).abs() < 1e-4, "simulated {simulated}, formula {formula}");
    }
}

/// Two nodes that each keep `window` reads of the other's lines under way; lines a second from node 1 to node 0.
fn closed_loop(p: &InterconnectParameters, window: u64, both_ways: bool) -> f64 {
    let mut directions = [Direction::new(p), Direction::new(p)];
    let mut draws = Draws::new(0);
    // (time, order, reader, line, whether it is the answer that is there, or the request)
    let mut events = BinaryHeap::new();
    let mut order = 0;
    for _ in 0..window {
        for reader in 0..if both_ways { 2 } else { 1 } {
            order += 1;
            events.push(Reverse((0, order, reader, draws.below(1 << 40), false)));
        }
    }
    let home_time = 60_000;
    let (mut lines, mut now, mut measured_from) = (0_u64, 0, 0);
    while lines < 300_000 {
        let Reverse((time, _, reader, line, answer)) = events.pop().expect("reads are always under way");
        now = time;
        if answer {
            lines += u64::from(reader == 0);
            if lines == 100_000 {
                measured_from = now;
            }
            let next = draws.below(1 << 40);
            order += 1;
            events.push(Reverse((directions[reader].send_header(next, now) + home_time, order, reader, next, false)));
        } else {
            order += 1;
            events.push(Reverse((directions[1 - reader].send_data(line, now), order, reader, line, true)));
        }
    }
    200_000.0 / (now - measured_from) as f64
}

#[test]
fn requests_in_the_free_slots_leave_the_other_direction_its_rate() {
    for p in [icx(), spr()] {
        let read_only = closed_loop(&p, 2_000, false);
        let both_ways = closed_loop(&p, 2_000, true);
        let peak = f64::from(p.links) / (u64::from(p.data_flits) * p.flit_time) as f64;
        assert!(read_only > 0.98 * peak && read_only <= 1.001 * peak, "{read_only} lines a picosecond of {peak}");
        assert!(both_ways >= 0.95 * read_only, "{both_ways} with requests, {read_only} without");
    }
}

/// One link with every slot of every flit written down, the slow way.
struct Slots<'a> {
    p: &'a InterconnectParameters,
    /// When each flit leaves, and which of its slots are taken.
    flits: Vec<(u64, Vec<bool>)>,
    /// The slot behind the last one taken, counted from the first flit's first.
    next: usize,
}

impl Slots<'_> {
    fn append(&mut self, flits: u32, now: u64) {
        for _ in 0..flits {
            let leaves = self.flits.last().map_or(now, |(leaves, _)| now.max(leaves + self.p.flit_time));
            self.flits.push((leaves, vec![false; self.p.flit_slots as usize]));
        }
    }

    /// The first slot, from `next` on, of a flit that has not left by `now`.
    fn first_open(&self, now: u64) -> usize {
        let flit_slots = self.p.flit_slots as usize;
        let open = (self.next..self.flits.len() * flit_slots).find(|slot| self.flits[slot / flit_slots].0 >= now);
        open.unwrap_or(self.flits.len() * flit_slots)
    }

    fn fill(&mut self, from: usize, slots: u32, now: u64) {
        let flit_slots = self.p.flit_slots as usize;
        for slot in from..from + slots as usize {
            let (leaves, taken) = &mut self.flits[slot / flit_slots];
            assert!(*leaves >= now, "slot {slot} has left");
            assert!(!taken[slot % flit_slots], "slot {slot} is taken twice");
            taken[slot % flit_slots] = true;
        }
        self.next = from + slots as usize;
    }

    fn send(&mut self, data: bool, now: u64) -> u64 {
        let end = |flits: &Self| flits.flits.len() * flits.p.flit_slots as usize;
        if data {
            let open = self.first_open(now);
            self.append(self.p.data_flits, now);
            // No more free slots than the flits of a line have.
            let all = (self.p.data_flits * self.p.flit_slots) as usize;
            let from = open.max(end(self).saturating_sub(all + self.p.data_slots as usize));
            self.fill(from, self.p.data_slots, now);
        } else {
            let open = self.first_open(now);
            if end(self) - open >= self.p.header_slots as usize {
                self.fill(open, self.p.header_slots, now);
            } else {
                let from = end(self);
                self.append(self.p.header_slots.div_ceil(self.p.flit_slots), now);
                self.fill(from, self.p.header_slots, now);
            }
        }
        self.flits.last().expect("a message was sent").0 + self.p.flit_time + self.p.crossing
    }

    fn taken(&self) -> u64 {
        self.flits.iter().flat_map(|(_, taken)| taken).map(|&taken| u64::from(taken)).sum()
    }
}

/// A random run on all links, each message compared with the slots written down; the links' counters at the end.
fn compare_with_slots(p: &InterconnectParameters, seed: u64) {
    let mut direction = Direction::new(p);
    let mut slots: Vec<_> = (0..p.links).map(|_| Slots { p, flits: Vec::new(), next: 0 }).collect();
    let mut last = vec![0; direction.links()];
    let (mut draws, mut now) = (Draws::new(seed << 32), 0);
    for _ in 0..40_000 {
        // From bursts to an idle link.
        now += if draws.below(3) == 0 { draws.below(6 * p.flit_time) } else { 0 };
        let line = draws.below(64);
        let link = direction.link_of(line);
        let data = draws.below(4) == 0;
        let arrival = if data { direction.send_data(line, now) } else { direction.send_header(line, now) };
        assert_eq!(arrival, slots[link].send(data, now), "data {data}, ready at {now}");
        assert!(arrival >= last[link], "a message overtook another");
        assert!(arrival >= now + p.flit_time + p.crossing, "a message was faster than the wire");
        last[link] = arrival;
    }
    for (link, slots) in slots.iter().enumerate() {
        let counters = direction.link_counters(link);
        assert_eq!(counters.flits, slots.flits.len() as u64);
        assert_eq!(counters.slots_used, slots.taken());
        assert!(counters.slots_used <= counters.flits * u64::from(p.flit_slots));
        assert!(counters.headers_riding > 0 && counters.headers_riding < counters.header_messages, "{counters:?}");
        assert_eq!(counters.busy_picoseconds, counters.flits * p.flit_time);
        assert!(counters.busy_picoseconds <= last[link] - p.crossing, "a link was busy for longer than the run");
    }
    let sum = direction.counters();
    assert_eq!(sum.messages(), 40_000);
    assert_eq!(sum.flits, slots.iter().map(|slots| slots.flits.len() as u64).sum::<u64>());
    assert_eq!(sum.bytes, sum.flits * u64::from(p.flit_bytes));
}

#[test]
fn arrivals_are_those_of_slots_written_down_one_by_one_and_never_go_back() {
    compare_with_slots(&icx(), 1);
    compare_with_slots(&spr(), 2);
    compare_with_slots(&InterconnectParameters { data_flits: 6, header_slots: 2, ..icx() }, 3);
    compare_with_slots(&InterconnectParameters { flit_slots: 4, data_flits: 5, data_slots: 5, ..one_link() }, 4);
}

#[test]
#[should_panic(expected = "data_slots is 13, and must be from 1 to the 12 slots of data_flits")]
fn a_line_that_does_not_fit_into_its_flits_is_refused() {
    Direction::new(&InterconnectParameters { data_slots: 13, ..icx() });
}
