//! A subcube of the grid, and what is computed in it: block tridiagonal systems along every line in each of the three directions, as the
//! NAS benchmark BT has them, of a diffusion of five quantities that couples them.

/// The quantities of a cell.
pub(super) type State = [f64; 5];
/// A block of a system.
type Matrix = [State; 5];

/// A time step, in units of the square of the grid's spacing over the diffusivity; and how much a quantity's diffusion depends on the others.
const STEP: f64 = 0.25;
const COUPLING: f64 = 0.05;

/// What the elimination along a line hands on from cell to cell: the block above the diagonal, and the right side.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Carry {
    pub(super) upper: Matrix,
    pub(super) value: State,
}

/// A part of the grid.
#[derive(Clone, Debug)]
pub(super) struct Subcube {
    /// Cells in each direction.
    pub(super) extent: [usize; 3],
    /// Its cells and those around them, which its neighbours have or which are the grid's boundary.
    cells: Vec<State>,
    /// What each cell's system hands on, or the solution.
    carries: Vec<Carry>,
}

/// The diffusion's matrix at a state.
fn jacobian(state: &State) -> Matrix {
    let mut matrix = Matrix::default();
    for (row, entries) in matrix.iter_mut().enumerate() {
        for (column, entry) in entries.iter_mut().enumerate() {
            let weight = COUPLING * (1.0 + row as f64 - column as f64);
            *entry = f64::from(u8::from(row == column)) + weight * state[column];
        }
    }
    matrix
}

/// Takes `factor * matrix * value` out of `from`.
fn take_product(from: &mut State, factor: f64, matrix: &Matrix, value: &State) {
    for (sum, row) in from.iter_mut().zip(matrix) {
        *sum -= factor * row.iter().zip(value).map(|(entry, value)| entry * value).sum::<f64>();
    }
}

/// Takes `factor * from` out of a row.
fn take_row(row: &mut [f64], factor: f64, from: &[f64]) {
    row.iter_mut().zip(from).for_each(|(entry, from)| *entry -= factor * from);
}

/// The carry whose product with a matrix is this one: elimination without pivots, for the diagonal is the largest.
fn divided(mut matrix: Matrix, mut right: Carry) -> Carry {
    for at in 0..5 {
        let (pivot, above, value) = (matrix[at], right.upper[at], right.value[at]);
        let inverse = 1.0 / pivot[at];
        for row in (0..5).filter(|row| *row != at) {
            let factor = matrix[row][at] * inverse;
            take_row(&mut matrix[row][at..], factor, &pivot[at..]);
            take_row(&mut right.upper[row], factor, &above);
            right.value[row] -= factor * value;
        }
    }
    for (at, row) in matrix.iter().enumerate() {
        let inverse = 1.0 / row[at];
        right.upper[at].iter_mut().for_each(|entry| *entry *= inverse);
        right.value[at] *= inverse;
    }
    right
}

/// Multiplications, each with an addition, of one cell: of its right side, of its step forward along a line, and of the step back.
pub(super) const RIGHT_SIDE_PRODUCTS: u64 = 25 + 25 + 35;
pub(super) const FORWARD_PRODUCTS: u64 = 3 * 25 + 125 + 25 + 4 * (15 + 25 + 5) + 30;
pub(super) const BACKWARD_PRODUCTS: u64 = 25;

impl Subcube {
    /// The cells from `origin` on, and those around them, as they are in the beginning.
    pub(super) fn new(origin: [usize; 3], extent: [usize; 3], side: usize) -> Subcube {
        let [ex, ey, ez] = extent.map(|cells| cells + 2);
        let mut cells = Vec::with_capacity(ex * ey * ez);
        for z in 0..ez {
            for y in 0..ey {
                for x in 0..ex {
                    let place = [origin[0] + x, origin[1] + y, origin[2] + z];
                    let at = place.map(|place| place as f64 / (side + 1) as f64);
                    // Any smooth start will do; what is outside the grid stays.
                    let bump = at.iter().map(|at| at * (1.0 - at)).product::<f64>();
                    cells.push(std::array::from_fn(|of| at[of % 3] * 0.5 + 8.0 * (of as f64 + 1.0) * bump));
                }
            }
        }
        let inner = extent.iter().product();
        Subcube { extent, cells, carries: vec![Carry::default(); inner] }
    }

    /// Where a cell is among the cells and those around them; its coordinates are one more than within the subcube.
    fn place(&self, [x, y, z]: [usize; 3]) -> usize {
        x + (self.extent[0] + 2) * (y + (self.extent[1] + 2) * z)
    }

    /// The same without those around them.
    fn inner(&self, [x, y, z]: [usize; 3]) -> usize {
        (x - 1) + self.extent[0] * ((y - 1) + self.extent[1] * (z - 1))
    }

    /// How many lines in a direction.
    pub(super) fn lines(&self, direction: usize) -> usize {
        self.extent.iter().product::<usize>() / self.extent[direction]
    }

    /// A cell of a line, by how far along it is: 0 and one more than the extent are around the subcube.
    pub(super) fn cell(&self, direction: usize, line: usize, along: usize) -> [usize; 3] {
        let [one, other] = [(1, 2), (0, 2), (0, 1)].map(|(one, other)| [one, other])[direction];
        let mut cell = [0; 3];
        cell[direction] = along;
        cell[one] = 1 + line % self.extent[one];
        cell[other] = 1 + line / self.extent[one];
        cell
    }

    /// A cell's quantities.
    pub(super) fn state(&self, cell: [usize; 3]) -> State {
        self.cells[self.place(cell)]
    }

    /// Sets them: a neighbour's.
    pub(super) fn set_state(&mut self, cell: [usize; 3], state: State) {
        let place = self.place(cell);
        self.cells[place] = state;
    }

    /// The cell beside another.
    fn beside(cell: [usize; 3], direction: usize, forward: bool) -> [usize; 3] {
        let mut beside = cell;
        beside[direction] = if forward { cell[direction] + 1 } else { cell[direction] - 1 };
        beside
    }

    /// The right side of a cell's system: what diffuses into it in a time step.
    pub(super) fn set_right_side(&mut self, cell: [usize; 3]) {
        let here = self.state(cell);
        let mut sum = here.map(|value| -6.0 * value);
        for direction in 0..3 {
            for forward in [false, true] {
                let there = self.state(Self::beside(cell, direction, forward));
                sum.iter_mut().zip(there).for_each(|(sum, value)| *sum += value);
            }
        }
        let mut value = State::default();
        take_product(&mut value, -STEP, &jacobian(&here), &sum);
        let at = self.inner(cell);
        self.carries[at] = Carry { upper: Matrix::default(), value };
    }

    /// One step forward along a line: takes what is below the diagonal out of a cell's system, and divides by the diagonal.
    pub(super) fn forward(&mut self, direction: usize, cell: [usize; 3], before: &Carry) -> Carry {
        let around = |forward| jacobian(&self.state(Self::beside(cell, direction, forward)));
        let (lower, upper) = (around(false), around(true));
        let mut diagonal = jacobian(&self.state(cell)).map(|row| row.map(|entry| 2.0 * STEP * entry));
        (0..5).for_each(|at| diagonal[at][at] += 1.0);
        let at = self.inner(cell);
        let mut value = self.carries[at].value;
        // The block below the diagonal is -STEP * lower.
        take_product(&mut value, -STEP, &lower, &before.value);
        for (row, entries) in diagonal.iter_mut().enumerate() {
            for (column, entry) in entries.iter_mut().enumerate() {
                let product: f64 = (0..5).map(|inner| lower[row][inner] * before.upper[inner][column]).sum();
                *entry += STEP * product;
            }
        }
        let upper = upper.map(|row| row.map(|entry| -STEP * entry));
        self.carries[at] = divided(diagonal, Carry { upper, value });
        self.carries[at]
    }

    /// One step back: the solution of a cell from that of the next one.
    pub(super) fn backward(&mut self, cell: [usize; 3], next: &State) -> State {
        let at = self.inner(cell);
        let Carry { upper, mut value } = self.carries[at];
        take_product(&mut value, 1.0, &upper, next);
        self.carries[at].value = value;
        value
    }

    /// Adds the solution to every cell.
    pub(super) fn add_solution(&mut self) {
        for line in 0..self.lines(0) {
            for along in 1..=self.extent[0] {
                let cell = self.cell(0, line, along);
                let (place, at) = (self.place(cell), self.inner(cell));
                let solution = self.carries[at].value;
                self.cells[place].iter_mut().zip(solution).for_each(|(value, change)| *value += change);
            }
        }
    }

    /// A time step with nobody beside it: of the whole grid.
    pub(super) fn step_alone(&mut self) {
        for line in 0..self.lines(0) {
            (1..=self.extent[0]).for_each(|along| self.set_right_side(self.cell(0, line, along)));
        }
        for direction in 0..3 {
            for line in 0..self.lines(direction) {
                let mut carry = Carry::default();
                for along in 1..=self.extent[direction] {
                    carry = self.forward(direction, self.cell(direction, line, along), &carry);
                }
                let mut next = State::default();
                for along in (1..=self.extent[direction]).rev() {
                    next = self.backward(self.cell(direction, line, along), &next);
                }
            }
        }
        self.add_solution();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_division_undoes_a_product() {
        let matrix = jacobian(&[0.4, 0.3, 0.2, 0.1, 0.5]);
        let wanted = [1.0, -2.0, 3.0, -4.0, 5.0];
        let mut value = State::default();
        take_product(&mut value, -1.0, &matrix, &wanted);
        let found = divided(matrix, Carry { upper: matrix, value });
        for (row, (value, wanted)) in found.value.iter().zip(wanted).enumerate() {
            assert!((value - wanted).abs() < 1e-12, "{found:?}");
            for (column, entry) in found.upper[row].iter().enumerate() {
                let one = f64::from(u8::from(row == column));
                assert!((entry - one).abs() < 1e-12, "{found:?}");
            }
        }
    }

    #[test]
    fn a_line_is_solved() {
        // What the elimination finds satisfies the system that it was given.
        let mut cube = Subcube::new([0; 3], [6, 1, 1], 6);
        let before = cube.clone();
        let cells: Vec<[usize; 3]> = (1..=6).map(|along| cube.cell(0, 0, along)).collect();
        cells.iter().for_each(|cell| cube.set_right_side(*cell));
        let right: Vec<State> = cube.carries.iter().map(|carry| carry.value).collect();
        let mut carry = Carry::default();
        cells.iter().for_each(|cell| carry = cube.forward(0, *cell, &carry));
        let mut next = State::default();
        cells.iter().rev().for_each(|cell| next = cube.backward(*cell, &next));
        let solution = |along: usize| if (1..=6).contains(&along) { cube.carries[along - 1].value } else { [0.0; 5] };
        for along in 1..=6 {
            let mut left = solution(along);
            for (place, factor) in [(along - 1, STEP), (along, -2.0 * STEP), (along + 1, STEP)] {
                let matrix = jacobian(&before.state(cube.cell(0, 0, place)));
                take_product(&mut left, factor, &matrix, &solution(place));
            }
            for (left, right) in left.iter().zip(right[along - 1]) {
                assert!((left - right).abs() < 1e-12, "cell {along}: {left} instead of {right}");
            }
        }
    }

    #[test]
    fn what_is_in_the_middle_spreads_to_the_boundary() {
        let mut cube = Subcube::new([0; 3], [8; 3], 8);
        let middle = |cube: &Subcube| cube.state([4; 3])[4];
        let start = middle(&cube);
        (0..3).for_each(|_| cube.step_alone());
        assert!((0.2 * start..0.95 * start).contains(&middle(&cube)), "{start} became {}", middle(&cube));
    }
}
