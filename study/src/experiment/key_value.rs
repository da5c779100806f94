//! A key-value store behind the ConnectX-6, driven directly and through overlays: Figure 19 and Table 2 (section 5.7).
//!
//! What the paper's store does beside its lookups is not published, nor are the sizes of its objects: [`conic_kv::Sizes`] says what
//! stands for them. A node has a thread a core here; the paper's runs used two.

use conic_chart::{Axis, Chart, Series};
use conic_interface::ccnic::Features;
use conic_kv::{Demand, Sizes};

use super::findings::Findings;
use super::loops::fewest_threads;
use super::setting::Setting;
use crate::ask::Ask;
use crate::workload::{Interface, KeyValue, KeyValueOutcome, Reached};

/// Share of the highest rate at which threads are counted: section 5.7's, where it says one.
const SHARE: f64 = 0.95;

/// A distribution of sizes, and its results' ids.
struct Objects {
    name: &'static str,
    sizes: Sizes,
    /// Rate and threads driven directly, rate and threads through CC-NIC, threads fewer than through the unoptimised interface.
    ids: [&'static str; 5],
    plot: &'static str,
}

const OBJECTS: [Objects; 2] = [
    Objects {
        name: "Ads",
        sizes: Sizes::ADS_LIKE,
        ids: [
            "ccnic.table2.kv_ads.rate_cx6",
            "ccnic.table2.kv_ads.threads_cx6",
            "ccnic.table2.kv_ads.rate_ccnic",
            "ccnic.table2.kv_ads.threads_ccnic",
            "ccnic.fig19.threads_saved_ads",
        ],
        plot: "fig19-ads",
    },
    Objects {
        name: "Geo",
        sizes: Sizes::GEO_LIKE,
        ids: [
            "ccnic.table2.kv_geo.rate_cx6",
            "ccnic.table2.kv_geo.threads_cx6",
            "ccnic.table2.kv_geo.rate_ccnic",
            "ccnic.table2.kv_geo.threads_ccnic",
            "ccnic.fig19.threads_saved_geo",
        ],
        plot: "fig19-geo",
    },
];

/// How the store reaches the NIC with so many threads of its own, of so many cores.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    reached: fn(usize, usize) -> Reached,
}

const DIRECT: Way = Way { name: "CX6", reached: |_, _| Reached::Directly };
const CC_NIC: Way = Way {
    name: "CC-NIC overlay",
    reached: |_, cores| Reached::Overlay { interface: Interface::CcNic(Features::paper()), threads: cores },
};
const ONE_TO_ONE: Way = Way {
    name: "CC-NIC overlay 1-1",
    reached: |threads, _| Reached::Overlay { interface: Interface::CcNic(Features::paper()), threads },
};
const UNOPTIMISED: Way = Way {
    name: "unoptimised overlay",
    reached: |_, cores| Reached::Overlay { interface: Interface::UnoptimisedRing, threads: cores },
};

fn mops(outcome: &KeyValueOutcome) -> f64 {
    outcome.requests_per_second / 1e6
}

/// Keys of the store. A first look may have the hot ones alone: a region of a million takes longer to make than a run.
fn keys(setting: &Setting) -> u32 {
    setting.pick(1_000_000, 100_000)
}

/// Rates by threads, in order, as far as they are known, and the fewest threads that reach nearly the highest.
struct Rates {
    known: Vec<(usize, KeyValueOutcome)>,
    fewest: Option<usize>,
}

impl Rates {
    fn find(setting: &Setting, ask: &mut Ask<'_>, objects: &Objects, way: Way) -> Rates {
        let machine = &setting.platforms.icx_cx6;
        let cores = machine.core.cores as usize;
        let step = setting.pick(4, 8);
        let demand = Demand { keys: keys(setting), ..Demand::of_sizes(objects.sizes) };
        let counts: Vec<usize> = std::iter::once(1).chain((step..=cores).step_by(step)).collect();
        let run = |threads: usize| {
            ask.of(KeyValue {
                reached: (way.reached)(threads, cores),
                threads,
                demand,
                requests: setting.pick((300, 600), (200, 300)),
                seed: setting.seed,
                ..KeyValue::new(machine, objects.sizes)
            })
        };
        let (known, fewest) = fewest_threads(&counts, SHARE, run, |outcome| outcome.requests_per_second);
        Rates { known, fewest }
    }

    /// The highest rate.
    fn highest(&self) -> Option<f64> {
        self.fewest?;
        Some(self.known.iter().map(|(_, outcome)| mops(outcome)).fold(0.0, f64::max))
    }

    fn threads(&self) -> Option<f64> {
        self.fewest.map(|threads| threads as f64)
    }

    /// The largest part by which the rate is higher than another's with as many threads.
    fn gain_over(&self, other: &Rates) -> Option<f64> {
        self.fewest.and(other.fewest)?;
        let rate_of =
            |threads| other.known.iter().find(|(count, _)| *count == threads).map(|(_, outcome)| mops(outcome));
        let gains = self.known.iter().filter_map(|(threads, outcome)| Some(mops(outcome) / rate_of(*threads)? - 1.0));
        gains.reduce(f64::max)
    }

    fn line(&self, way: Way) -> Series {
        Series::line(way.name, self.known.iter().map(|(threads, outcome)| (*threads as f64, mops(outcome))))
    }
}

/// Figure 19 and what Table 2 says of the store.
pub(super) fn store(setting: &Setting, ask: &mut Ask<'_>) -> Findings {
    let mut findings = Findings::default();
    let mut gains = Vec::new();
    for objects in &OBJECTS {
        let [direct, ccnic, one_to_one, unoptimised] =
            [DIRECT, CC_NIC, ONE_TO_ONE, UNOPTIMISED].map(|way| (Rates::find(setting, ask, objects, way), way));
        let [rate_direct, threads_direct, rate_ccnic, threads_ccnic, saved] = objects.ids;
        findings.number(rate_direct, "Mops/s", direct.0.highest());
        findings.number(threads_direct, "threads", direct.0.threads());
        findings.number(rate_ccnic, "Mops/s", ccnic.0.highest());
        findings.number(threads_ccnic, "threads", ccnic.0.threads());
        let fewer = unoptimised.0.threads().zip(ccnic.0.threads()).map(|(without, with)| without - with);
        findings.number(saved, "threads", fewer);
        gains.push(one_to_one.0.gain_over(&direct.0));
        let title = format!("Key-value store by threads, {}-like objects", objects.name);
        let chart = [direct, ccnic, one_to_one, unoptimised].iter().fold(
            Chart::xy(title, Axis::linear("Threads of the store", ""), Axis::linear("Requests", "Mops/s")),
            |chart, (rates, way)| chart.series(rates.line(*way)),
        );
        let keys = keys(setting);
        let note = format!(
            "ICX with a CX6; 95% gets, Zipf 0.75, {keys} keys. The sizes are a law through the published points."
        );
        findings.plot(objects.plot, chart.note(note));
    }
    let gain = gains.into_iter().collect::<Option<Vec<f64>>>().and_then(|gains| gains.into_iter().reduce(f64::max));
    findings.number("ccnic.fig19.per_thread_gain", "fraction", gain);
    findings
}
