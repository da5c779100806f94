//! Particles that repel and attract each other within a cutoff (Lennard-Jones), in a box whose sides meet; in the usual reduced units.

use conic_sim::draws::Draws;

/// A place, or a speed.
pub(super) type Vector = [f32; 3];
/// A force, in parts of [`FORCE_UNIT`]: a sum is then the same in whatever order it is made.
pub(super) type Force = [i32; 3];
const FORCE_UNIT: f64 = 1.0 / 65_536.0;

/// A liquid near its triple point: the density of most benchmarks of this potential, with its usual cutoff and step.
const DENSITY: f64 = 0.8442;
const CUTOFF: f64 = 2.5;
const STEP: f64 = 0.005;
/// How much farther than the cutoff a pair may be that is listed.
const SKIN: f64 = 0.3;
/// Speeds in the beginning: evenly from minus to plus this in each direction.
const SPEED: f64 = 1.8;

/// The box, and how many particles there are in it.
#[derive(Clone, Debug)]
pub(super) struct Liquid {
    /// Particles: four in each cell of a cubic lattice, in the beginning.
    pub(super) count: usize,
    /// The box's side.
    side: f64,
    lattice: usize,
}

/// Pairs of which a node works out the forces.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairs {
    /// The pairs.
    pub(super) listed: Vec<(u32, u32)>,
    /// How many were looked at to find them.
    pub(super) looked_at: u64,
}

impl Liquid {
    /// So many particles, four times a cube.
    pub(super) fn new(count: usize) -> Liquid {
        let lattice = (1..).find(|side| 4 * side * side * side >= count).unwrap_or(1);
        assert_eq!(4 * lattice * lattice * lattice, count, "a lattice has four particles in each of its cells");
        Liquid { count, side: (count as f64 / DENSITY).cbrt(), lattice }
    }

    /// Where the particles begin, in the order of their cells.
    pub(super) fn places(&self) -> Vec<Vector> {
        const CORNERS: [[f64; 3]; 4] = [[0.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5], [0.5, 0.5, 0.0]];
        let edge = self.side / self.lattice as f64;
        let place = |number: usize| {
            let cell = number / 4;
            let cell = [cell % self.lattice, cell / self.lattice % self.lattice, cell / self.lattice.pow(2)];
            std::array::from_fn(|at| ((cell[at] as f64 + CORNERS[number % 4][at]) * edge) as f32)
        };
        (0..self.count).map(place).collect()
    }

    /// How fast they are.
    pub(super) fn speeds(&self) -> Vec<Vector> {
        let mut draws = Draws::new(5);
        let mut speed = || std::array::from_fn(|_| (SPEED * (2.0 * draws.part() - 1.0)) as f32);
        (0..self.count).map(|_| speed()).collect()
    }

    /// From one particle to another, by the shortest way, and the square of how far that is.
    fn between(&self, one: &Vector, other: &Vector) -> ([f64; 3], f64) {
        let way: [f64; 3] = std::array::from_fn(|at| {
            let straight = f64::from(other[at]) - f64::from(one[at]);
            straight - self.side * (straight / self.side).round_ties_even()
        });
        (way, way.iter().map(|along| along * along).sum())
    }

    /// Pairs near enough of which one of `own` is the first. Of a pair that one is first from which fewer numbers are counted up, and round,
    /// to the other: so every node has as many.
    pub(super) fn pairs(&self, places: &[Vector], own: std::ops::Range<usize>) -> Pairs {
        // Cells of the list are at least as large as the cutoff and the skin.
        let cells = ((self.side / (CUTOFF + SKIN)) as usize).max(1);
        let along = |place: f32| ((f64::from(place) / self.side * cells as f64) as usize).min(cells - 1);
        let cell_of = |place: &Vector| place.map(along);
        let mut inside = vec![Vec::new(); cells * cells * cells];
        let number = |cell: [usize; 3]| cell[0] + cells * (cell[1] + cells * cell[2]);
        for (particle, place) in places.iter().enumerate() {
            inside[number(cell_of(place))].push(particle);
        }
        let mut pairs = Pairs::default();
        for one in own {
            let cell = cell_of(&places[one]);
            let around = |at: usize| {
                let mut around = [0, 1, cells - 1].map(|step| (cell[at] + step) % cells).to_vec();
                around.sort_unstable();
                around.dedup();
                around
            };
            let (xs, ys, zs) = (around(0), around(1), around(2));
            let near = zs.iter().flat_map(|z| ys.iter().map(move |y| (*y, *z)));
            let near = near.flat_map(|(y, z)| xs.iter().map(move |x| [*x, y, z]));
            for other in near.flat_map(|cell| &inside[number(cell)]) {
                let ahead = (other + self.count - one) % self.count;
                let is_first = ahead > 0 && (2 * ahead < self.count || 2 * ahead == self.count && one < *other);
                if !is_first {
                    continue;
                }
                pairs.looked_at += 1;
                if self.between(&places[one], &places[*other]).1 < (CUTOFF + SKIN).powi(2) {
                    pairs.listed.push((one as u32, *other as u32));
                }
            }
        }
        pairs
    }

    /// Adds the forces of pairs to those of their particles: what one gets, the other loses.
    pub(super) fn add_forces(&self, places: &[Vector], pairs: &Pairs, forces: &mut [Force]) {
        for (one, other) in &pairs.listed {
            let (one, other) = (*one as usize, *other as usize);
            let (way, square) = self.between(&places[one], &places[other]);
            if square >= CUTOFF * CUTOFF {
                continue;
            }
            let sixth = square.recip().powi(3);
            let strength = 24.0 * sixth * (1.0 - 2.0 * sixth) / square / FORCE_UNIT;
            for at in 0..3 {
                let force = (strength * way[at]).round_ties_even() as i32;
                forces[one][at] = forces[one][at].wrapping_add(force);
                forces[other][at] = forces[other][at].wrapping_sub(force);
            }
        }
    }

    /// Moves a particle by one time step.
    pub(super) fn moves(&self, place: &mut Vector, speed: &mut Vector, force: &Force) {
        for at in 0..3 {
            speed[at] += (f64::from(force[at]) * FORCE_UNIT * STEP) as f32;
            let side = self.side as f32;
            place[at] = (place[at] + speed[at] * STEP as f32).rem_euclid(side);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The energy of all particles: of their motion, and of the pairs.
    fn energy(liquid: &Liquid, places: &[Vector], speeds: &[Vector]) -> f64 {
        let motion: f64 = speeds.iter().flatten().map(|speed| 0.5 * f64::from(*speed).powi(2)).sum();
        let pairs = liquid.pairs(places, 0..liquid.count);
        let squares =
            pairs.listed.iter().map(|(one, other)| liquid.between(&places[*one as usize], &places[*other as usize]).1);
        let sixth = |square: f64| square.recip().powi(3);
        let end = sixth(CUTOFF * CUTOFF);
        let of = |square| 4.0 * (sixth(square).powi(2) - sixth(square)) - 4.0 * (end * end - end);
        motion + squares.filter(|square| *square < CUTOFF * CUTOFF).map(of).sum::<f64>()
    }

    #[test]
    fn a_list_has_every_pair_within_the_cutoff_once() {
        let liquid = Liquid::new(256);
        let places = liquid.places();
        let halves = [0..100, 100..256].map(|own| liquid.pairs(&places, own).listed).concat();
        let mut listed: Vec<_> = halves.into_iter().map(|(one, other)| (one.min(other), one.max(other))).collect();
        listed.sort_unstable();
        let all = (0..256).flat_map(|one| (one + 1..256).map(move |other| (one, other)));
        let near = |(one, other): &(u32, u32)| {
            liquid.between(&places[*one as usize], &places[*other as usize]).1 < (CUTOFF + SKIN).powi(2)
        };
        assert_eq!(listed, all.filter(near).collect::<Vec<_>>());
    }

    #[test]
    fn forces_are_opposite_and_energy_stays() {
        let liquid = Liquid::new(256);
        let (mut places, mut speeds) = (liquid.places(), liquid.speeds());
        let before = energy(&liquid, &places, &speeds);
        for _ in 0..20 {
            let pairs = liquid.pairs(&places, 0..liquid.count);
            let mut forces = vec![[0; 3]; liquid.count];
            liquid.add_forces(&places, &pairs, &mut forces);
            let sum = |at: usize| forces.iter().map(|force| i64::from(force[at])).sum::<i64>();
            assert_eq!([0, 1, 2].map(sum), [0; 3]);
            for ((place, speed), force) in places.iter_mut().zip(&mut speeds).zip(&forces) {
                liquid.moves(place, speed, force);
            }
        }
        let after = energy(&liquid, &places, &speeds);
        assert!((after - before).abs() < 0.02 * before.abs(), "{before} became {after}");
        assert!(places.iter().flatten().all(|place| (0.0..liquid.side as f32 + 1e-3).contains(place)));
    }
}
