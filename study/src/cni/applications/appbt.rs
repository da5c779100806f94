//! Fluid dynamics on a cube that is divided into subcubes: neighbours share what lies along their boundaries through shared memory.
//!
//! A time step, as the NAS benchmark BT has it, solves a system of blocks along every line in each of the three directions, one direction
//! after the other. What crosses a boundary lies in blocks of the node that writes it:
//!
//! | what | who writes it | when | blocks |
//! |---|---|---|---|
//! | the cells at the boundary | both neighbours | before the step | of three cells |
//! | what a line's elimination hands on | the lower one | when it has gone forward along the line | two a line |
//! | what a line's solution hands on | the upper one | when it has gone back along the line | of three lines |
//!
//! Each block has the number of the step that it was written for in its last word, for which its reader waits. A block is not written
//! again before its reader has answered with one that it could not have written without: no barrier is needed but one at the end, where
//! each serves the others until none needs anything.

mod solver;

use super::memory::{BLOCK_WORDS, Block, SharedMemory};
use super::{Messenger, Parallel};
use solver::{BACKWARD_PRODUCTS, Carry, FORWARD_PRODUCTS, RIGHT_SIDE_PRODUCTS, State, Subcube};

/// Subcubes in each direction, for the paper's 16 nodes.
const SPLIT: [usize; 3] = [4, 2, 2];
/// Cycles of a multiplication and an addition: what they need is loaded once for several.
const PRODUCT_WORK: u64 = 4;
/// Cells of five words in a block, beside its last word.
const CELLS: usize = 3;
/// Words of a block that carry data.
const DATA_WORDS: usize = BLOCK_WORDS - 1;

/// A grid, and how long it runs.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    side: usize,
    steps: u64,
}

/// What crosses a boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crossing {
    /// The cells there, for the lower neighbour or for the upper one.
    Cells { upper: bool },
    /// What the elimination hands on, for the upper neighbour.
    Forward,
    /// What the solution hands on, for the lower one.
    Backward,
}

const CROSSINGS: [Crossing; 4] =
    [Crossing::Cells { upper: false }, Crossing::Cells { upper: true }, Crossing::Forward, Crossing::Backward];

impl Crossing {
    /// Blocks for so many lines.
    fn blocks(self, lines: usize) -> usize {
        if self == Crossing::Forward { 2 * lines } else { lines.div_ceil(CELLS) }
    }
}

impl Grid {
    /// The paper's 24 cells a side and 4 steps, or 8 and 1.
    pub(super) fn new(machines: usize, whole: bool) -> Grid {
        let count: usize = SPLIT.iter().product();
        assert_eq!(machines, count, "the cube is divided among {count} nodes");
        if whole { Grid { side: 24, steps: 4 } } else { Grid { side: 8, steps: 1 } }
    }

    fn extent(&self) -> [usize; 3] {
        SPLIT.map(|parts| self.side / parts)
    }

    /// Where a node's subcube is among them.
    fn position(node: usize) -> [usize; 3] {
        [node % SPLIT[0], node / SPLIT[0] % SPLIT[1], node / (SPLIT[0] * SPLIT[1])]
    }

    /// The node beside another.
    fn neighbour(node: usize, direction: usize, upper: bool) -> Option<usize> {
        let stride: usize = SPLIT[..direction].iter().product();
        let at = Self::position(node)[direction];
        match upper {
            true => (at + 1 < SPLIT[direction]).then(|| node + stride),
            false => (at > 0).then(|| node - stride),
        }
    }

    fn lines(&self, direction: usize) -> usize {
        self.extent().iter().product::<usize>() / self.extent()[direction]
    }

    /// A block of what crosses a boundary of a node.
    fn block(&self, node: usize, direction: usize, what: Crossing, place: usize) -> Block {
        let of = |direction| -> usize { CROSSINGS.iter().map(|what| what.blocks(self.lines(direction))).sum() };
        let directions: usize = (0..direction).map(of).sum();
        let before = CROSSINGS.iter().take_while(|other| **other != what);
        let before: usize = before.map(|what| what.blocks(self.lines(direction))).sum();
        Block { home: node as u16, number: (directions + before + place) as u16 }
    }

    fn subcube(&self, node: usize) -> Subcube {
        let (extent, position) = (self.extent(), Self::position(node));
        Subcube::new(std::array::from_fn(|at| position[at] * extent[at]), extent, self.side)
    }

    /// A subcube's cells as words, those of the whole grid from `origin` on.
    fn words(cube: &Subcube, origin: [usize; 3], extent: [usize; 3]) -> Vec<u32> {
        let mut words = Vec::new();
        for z in 0..extent[2] {
            for y in 0..extent[1] {
                for x in 0..extent[0] {
                    let state = cube.state([origin[0] + x + 1, origin[1] + y + 1, origin[2] + z + 1]);
                    words.extend(
                        state.iter().flat_map(|value| [value.to_bits() as u32, (value.to_bits() >> 32) as u32]),
                    );
                }
            }
        }
        words
    }
}

/// One node at work.
struct Worker<'a, 'b> {
    grid: &'a Grid,
    here: usize,
    cube: Subcube,
    memory: SharedMemory,
    node: &'a mut Messenger<'b>,
    /// The step that is being made, from 1 on.
    step: u64,
}

impl Worker<'_, '_> {
    /// Works so many multiplications and additions, and looks whether somebody asks for something.
    fn works(&mut self, products: u64) {
        self.node.work(products * PRODUCT_WORK);
        self.memory.serve(self.node);
    }

    fn writes(&mut self, block: Block, data: &[f64]) {
        let mut words = [0; BLOCK_WORDS];
        words.iter_mut().zip(data).for_each(|(word, value)| *word = value.to_bits());
        words[DATA_WORDS] = self.step;
        self.memory.write(self.node, block, &words);
    }

    /// A block's data, once it is this step's.
    fn awaits(&mut self, block: Block) -> [f64; DATA_WORDS] {
        while self.memory.word(self.node, block, DATA_WORDS) != self.step {
            self.memory.await_recall(self.node, block);
        }
        let words = self.memory.read(self.node, block);
        std::array::from_fn(|index| f64::from_bits(words[index]))
    }

    /// Both neighbours of each boundary show each other their cells.
    fn exchanges(&mut self) {
        let boundaries: Vec<(usize, bool, usize)> = (0..3)
            .flat_map(|direction| [false, true].map(|upper| (direction, upper)))
            .filter_map(|(direction, upper)| Some((direction, upper, Grid::neighbour(self.here, direction, upper)?)))
            .collect();
        for (direction, upper, _) in &boundaries {
            let along = if *upper { self.cube.extent[*direction] } else { 1 };
            let lines: Vec<usize> = (0..self.cube.lines(*direction)).collect();
            for (place, lines) in lines.chunks(CELLS).enumerate() {
                let cells = lines.iter().flat_map(|line| self.cube.state(self.cube.cell(*direction, *line, along)));
                let data: Vec<f64> = cells.collect();
                let block = self.grid.block(self.here, *direction, Crossing::Cells { upper: *upper }, place);
                self.writes(block, &data);
            }
        }
        for (direction, upper, there) in boundaries {
            let along = if upper { self.cube.extent[direction] + 1 } else { 0 };
            for line in 0..self.cube.lines(direction) {
                if line % CELLS > 0 {
                    continue;
                }
                let what = Crossing::Cells { upper: !upper };
                let data = self.awaits(self.grid.block(there, direction, what, line / CELLS));
                let left = self.cube.lines(direction) - line;
                for (line, state) in (line..).zip(data.as_chunks::<5>().0).take(left) {
                    let cell = self.cube.cell(direction, line, along);
                    self.cube.set_state(cell, *state);
                }
            }
        }
    }

    /// Goes forward along every line of a direction.
    fn goes_forward(&mut self, direction: usize) {
        let lower = Grid::neighbour(self.here, direction, false);
        let has_upper = Grid::neighbour(self.here, direction, true).is_some();
        for line in 0..self.cube.lines(direction) {
            let block = |of: &Grid, node, half| of.block(node, direction, Crossing::Forward, 2 * line + half);
            let mut carry = Carry::default();
            if let Some(lower) = lower {
                // The first half is written last.
                let halves = [0, 1].map(|half| self.awaits(block(self.grid, lower, half))).concat();
                carry.value.copy_from_slice(&halves[25..]);
                carry.upper.as_flattened_mut().copy_from_slice(&halves[..25]);
            }
            for along in 1..=self.cube.extent[direction] {
                carry = self.cube.forward(direction, self.cube.cell(direction, line, along), &carry);
                self.works(FORWARD_PRODUCTS);
            }
            if has_upper {
                let data = [carry.upper.as_flattened(), &carry.value].concat();
                for half in [1, 0] {
                    self.writes(block(self.grid, self.here, half), &data[half * DATA_WORDS..][..DATA_WORDS]);
                }
            }
        }
    }

    /// And back.
    fn goes_back(&mut self, direction: usize) {
        let upper = Grid::neighbour(self.here, direction, true);
        let has_lower = Grid::neighbour(self.here, direction, false).is_some();
        let lines: Vec<usize> = (0..self.cube.lines(direction)).collect();
        for (place, lines) in lines.chunks(CELLS).enumerate() {
            let block = |of: &Grid, node| of.block(node, direction, Crossing::Backward, place);
            let before = upper.map_or([0.0; DATA_WORDS], |upper| self.awaits(block(self.grid, upper)));
            let mut data = Vec::new();
            for (line, next) in lines.iter().zip(before.as_chunks::<5>().0) {
                let mut next: State = *next;
                for along in (1..=self.cube.extent[direction]).rev() {
                    next = self.cube.backward(self.cube.cell(direction, *line, along), &next);
                    self.works(BACKWARD_PRODUCTS);
                }
                data.extend(next);
            }
            if has_lower {
                self.writes(block(self.grid, self.here), &data);
            }
        }
    }

    fn makes_step(&mut self) {
        self.exchanges();
        for line in 0..self.cube.lines(0) {
            for along in 1..=self.cube.extent[0] {
                self.cube.set_right_side(self.cube.cell(0, line, along));
                self.works(RIGHT_SIDE_PRODUCTS);
            }
        }
        for direction in 0..3 {
            self.goes_forward(direction);
            self.goes_back(direction);
        }
        self.cube.add_solution();
    }
}

impl Parallel for Grid {
    fn memory_bytes(&self) -> u64 {
        // A node's own blocks, and as many of its neighbours' at most.
        let own: usize = (0..3).flat_map(|of| CROSSINGS.map(|what| what.blocks(self.lines(of)))).sum();
        SharedMemory::bytes_of(2 * own as u64)
    }

    fn part(&self, node: &mut Messenger<'_>) -> Vec<u32> {
        let here = node.node();
        let memory = SharedMemory::new(SPLIT.iter().product(), node.memory, self.memory_bytes());
        let mut worker = Worker { grid: self, here, cube: self.subcube(here), memory, node, step: 0 };
        for step in 1..=self.steps {
            worker.step = step;
            worker.makes_step();
        }
        worker.memory.ends(worker.node);
        Grid::words(&worker.cube, [0; 3], self.extent())
    }

    fn expected(&self) -> Vec<Vec<u32>> {
        let mut whole = Subcube::new([0; 3], [self.side; 3], self.side);
        (0..self.steps).for_each(|_| whole.step_alone());
        let nodes = 0..SPLIT.iter().product();
        let origin = |node| std::array::from_fn(|at| Grid::position(node)[at] * self.extent()[at]);
        nodes.map(|node| Grid::words(&whole, origin(node), self.extent())).collect()
    }
}
