//! Gaussian elimination: whoever has the pivot's row sends it to all others.

use std::collections::BTreeMap;

use super::{Messenger, Parallel};

/// Words of a row in one network message, behind the row's number and the place.
const PART: usize = 58;

/// Cycles for an element of a row: two loads, a multiplication, a subtraction, a store.
const ELEMENT_WORK: u64 = 10;

/// A matrix over the integers modulo 2^32, whose diagonal stays odd, so that each pivot has an inverse: as many operations as with real
/// numbers, and exact.
#[derive(Clone, Debug)]
pub(super) struct Matrix {
    machines: usize,
    order: usize,
}

impl Matrix {
    /// The paper's 512 rows, whose elements of four bytes make two kilobytes a row; or 32 of them.
    pub(super) fn new(machines: usize, whole: bool) -> Matrix {
        Matrix { machines, order: if whole { 512 } else { 32 } }
    }

    fn row(&self, row: usize) -> Vec<u32> {
        let element = |column: usize| {
            let number = ((row * self.order + column) as u32).wrapping_mul(2_654_435_761) >> 7;
            // Even but for the diagonal, and so it stays.
            if row == column { number | 1 } else { number & !1 }
        };
        (0..self.order).map(element).collect()
    }

    /// Takes the pivot's row out of another.
    fn eliminate(&self, pivot: &[u32], at: usize, row: &mut [u32]) {
        let factor = row[at].wrapping_mul(inverse(pivot[at]));
        for column in at..self.order {
            row[column] = row[column].wrapping_sub(factor.wrapping_mul(pivot[column]));
        }
    }
}

/// The inverse of an odd number modulo 2^32, by Newton's iteration.
fn inverse(odd: u32) -> u32 {
    (0..5).fold(odd, |guess, _| guess.wrapping_mul(2_u32.wrapping_sub(odd.wrapping_mul(guess))))
}

impl Parallel for Matrix {
    fn part(&self, node: &mut Messenger<'_>) -> Vec<u32> {
        let here = node.node();
        let mut rows: BTreeMap<usize, Vec<u32>> =
            (here..self.order).step_by(self.machines).map(|row| (row, self.row(row))).collect();
        // Parts of rows that have come; some are ahead.
        let mut arrived: BTreeMap<usize, (Vec<u32>, usize)> = BTreeMap::new();
        for at in 0..self.order {
            let pivot = if at % self.machines == here {
                let pivot = rows[&at].clone();
                for to in (0..self.machines).filter(|to| *to != here) {
                    // All of it, zeros included: the paper's broadcast is of a whole row, two kilobytes (sections 4.2 and 5.2).
                    for (place, part) in pivot.chunks(PART).enumerate() {
                        let head = [at as u32, (place * PART) as u32];
                        node.send(to, &[&head, part].concat());
                    }
                }
                pivot
            } else {
                while arrived.get(&at).is_none_or(|(_, count)| *count < self.order) {
                    let (_, words) = node.next();
                    let (row, count) = arrived.entry(words[0] as usize).or_insert_with(|| (vec![0; self.order], 0));
                    let place = words[1] as usize;
                    row[place..place + words.len() - 2].copy_from_slice(&words[2..]);
                    *count += words.len() - 2;
                }
                arrived.remove(&at).map(|(row, _)| row).unwrap_or_default()
            };
            for (_, row) in rows.range_mut(at + 1..) {
                self.eliminate(&pivot, at, row);
                node.work(ELEMENT_WORK * (self.order - at) as u64);
            }
        }
        rows.into_values().flatten().collect()
    }

    fn expected(&self) -> Vec<Vec<u32>> {
        let mut rows: Vec<Vec<u32>> = (0..self.order).map(|row| self.row(row)).collect();
        for at in 0..self.order {
            let (before, behind) = rows.split_at_mut(at + 1);
            behind.iter_mut().for_each(|row| self.eliminate(&before[at], at, row));
        }
        let of = |machine| rows.iter().skip(machine).step_by(self.machines).flatten().copied().collect();
        (0..self.machines).map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use conic_interface::cni::Kind;
    use conic_sim::bus::{Attachment, BusParameters};
    use conic_sim::platform::Platform;

    use super::super::{Program, Run, run_as};
    use super::*;
    use crate::cni::nodes::Nodes;

    #[test]
    fn each_pivots_row_is_sent_whole() {
        let platform = Platform::<BusParameters>::load_as("hypersparc").unwrap_or_else(|error| panic!("{error}"));
        let nodes = Nodes {
            machine: platform.parameters().clone(),
            attachment: Attachment::MemoryBus,
            kind: Kind::Cni16Qm,
            count: 3,
        };
        // Two messages a row and a bit, of which what is left of the later rows would fill one or two.
        let matrix = Matrix { machines: 3, order: 2 * PART + 4 };
        let asked = Run { nodes, program: Program::Gauss, whole: false };
        let outcome = run_as(&matrix, &asked).expect("it ends");
        assert_eq!(outcome.messages, (matrix.order * 2 * 3) as u64);
    }
}
