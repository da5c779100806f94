//! Every request in every pair of states that host and device can have of a line, as the CXL specification's tables of CXL.cache
//! requests, snoops and CXL.mem requests have them: written out here, and not computed by what is tested.
//!
//! No functional model of CXL that could be asked instead is packaged for a program to link: what there is are emulators of whole
//! machines, whose devices of type 3 have no CXL.cache.
//!
//! A table has a column for each pair of the host's copy and the device's (I, S, E, M) before, and in it what crosses the link, by a
//! letter of the table's legend or `-` for nothing, and the two copies afterwards.

use conic_fabric::StateHint as Hint;

use super::tests::{Copies, E, I, M, S, device_does, host_does, write};
use super::{Ask, Bias, DeviceLine, Operation, Side, Started, WHOLE};

/// The columns: all pairs in which a copy that may be written is alone.
const PAIRS: [Copies; 8] = [(I, I), (S, I), (E, I), (M, I), (I, S), (S, S), (I, E), (I, M)];

/// What a letter stands for.
type Legend = &'static [(char, &'static str)];

/// What the device does with lines of the host.
const OF_HOST: &str = "
    NC-read    rII rSI rEI rMI -IS -SS -IE -IM
    CS-read    sIS sSS sSS sSS -IS -SS -IE -IM
    CO-read    oIE oIE oIE oIM oIE oIE -IE -IM
    NC-write   wII wII wII wII wII wII wII wII
    NC-P       pMI pMI pMI pMI pMI pMI pMI pMI
    CO-write   nIM nIM nIM nIM nIM nIM -IM -IM
    eviction   -II -SI -EI -MI cII cSI cII dII
    host-flush fII fII fII fII fIS fIS fIE fIM";
const OF_HOST_LEGEND: Legend = &[
    ('r', "ReadCurrent Current"),
    ('s', "ReadShared Grant"),
    ('o', "ReadOwn Grant"),
    ('w', "WriteInvalidate Pull Pulled Finished"),
    ('p', "WritePush Pull Pulled"),
    ('n', "ReadOwnNoData Grant"),
    ('c', "CleanEvict Finished"),
    ('d', "DirtyEvict Pull Pulled"),
    ('f', "FlushHost Finished"),
];

/// What the device does with lines of its own, in host-bias; capitals: what the host has modified is written back first, into
/// the device's cache too.
const OF_DEVICE: &str = "
    NC-read    rII rSI rEI RIS -IS -SS -IE -IM
    CS-read    sIS sSS sSS SIS -IS -SS -IE -IM
    CO-read    oIE oIE oIE OIE oIE oIE -IE -IM
    NC-write   wII wII wII wII wII wII -II -II
    NC-P       pMI pMI pMI pMI pMI pMI pMI pMI
    CO-write   nIM nIM nIM nIM nIM nIM -IM -IM
    eviction   -II -SI -EI -MI -II -SI -II -II
    host-flush fII fII fII FII fIS fIS fIE fIM";
const OF_DEVICE_LEGEND: Legend = &[
    ('r', "ReadCurrent MemoryForward"),
    ('R', "ReadCurrent MemoryWrite MemoryDone MemoryForward"),
    ('s', "ReadShared MemoryForward"),
    ('S', "ReadShared MemoryWrite MemoryDone MemoryForward"),
    ('o', "ReadOwn MemoryForward"),
    ('O', "ReadOwn MemoryWrite MemoryDone MemoryForward"),
    ('w', "WriteInvalidate MemoryForward"),
    ('p', "WritePush Pull Pulled"),
    ('n', "ReadOwnNoData MemoryForward"),
    ('f', "FlushHost Finished"),
    ('F', "FlushHost MemoryWrite MemoryDone Finished"),
];

/// What the host does with lines of its own.
const HOSTS_OWN: &str = "
    load       -EI -SI -EI -MI -SS -SS xSS xSS
    own        -EI -EI -EI -MI xEI xEI xEI xEI
    nt-store   -II -II -II -II xII xII xII xII
    flush      -II -II -II -II xII xII xII xII
    eviction   -II -II -II -II -IS -IS -IE -IM
    DMA-read   -II -SI -EI -MI -IS -SS xIE xIM
    DMA-write  -II -II -II -II xII xII xII xII
    DDIO-write -MI -MI -MI -MI xMI xMI xMI xMI";
/// What the host does with lines of the device.
const HOSTS_OF_DEVICE: &str = "
    load       rEI -SI -EI -MI rSS -SS rSS rSS
    own        rEI rEI -EI -MI rEI rEI rEI rEI
    nt-store   wII wII wII wII wII wII wII wII
    eviction   -II -II -II wII -IS -IS -IE -IM";
const HOSTS_LEGEND: Legend = &[('x', "Snoop Snooped"), ('r', "MemoryRead MemoryData"), ('w', "MemoryWrite MemoryDone")];

/// A row's outcomes: the pair before, what crosses the link, and the pair afterwards.
fn outcomes(row: &str, legend: Legend) -> Vec<(Copies, &'static str, Copies)> {
    let copy = |letter: char| [('I', I), ('S', S), ('E', E), ('M', M)].into_iter().find(|one| one.0 == letter);
    let outcome = |(before, cell): (Copies, &str)| {
        let [letter, host, device] = cell.chars().collect::<Vec<char>>()[..] else { panic!("{cell} in {row}") };
        let said = if letter == '-' { "" } else { legend.iter().find(|one| one.0 == letter).expect("in the legend").1 };
        (before, said, (copy(host).expect("a state").1, copy(device).expect("a state").1))
    };
    let cells: Vec<&str> = row.split_whitespace().skip(1).collect();
    assert_eq!(cells.len(), PAIRS.len(), "{row}");
    PAIRS.into_iter().zip(cells).map(outcome).collect()
}

/// The rows of a table by their names.
fn rows(table: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    table.lines().filter_map(|row| row.split_whitespace().next().map(|name| (name, row)))
}

fn operation(name: &str) -> Operation<u8> {
    match name {
        "NC-read" => Operation::Read(Hint::NonCacheable),
        "CS-read" => Operation::Read(Hint::CacheableShared),
        "CO-read" => Operation::Read(Hint::CacheableOwned),
        "NC-write" => write(Hint::NonCacheable),
        "NC-P" => write(Hint::NonCacheablePush),
        "CO-write" => write(Hint::CacheableOwned),
        "eviction" => Operation::Evict,
        "host-flush" => Operation::FlushHost,
        other => panic!("{other} is no operation of the device"),
    }
}

fn ask(name: &str) -> Ask<u8> {
    match name {
        "load" => Ask::Load,
        "own" => Ask::Own,
        "nt-store" => Ask::Nontemporal { data: 7, bytes: WHOLE },
        "flush" => Ask::Flush,
        "eviction" => Ask::Evict,
        "DMA-read" => Ask::DmaRead,
        "DMA-write" => Ask::DmaWrite { data: 7, bytes: WHOLE, allocate: false },
        "DDIO-write" => Ask::DmaWrite { data: 7, bytes: WHOLE, allocate: true },
        other => panic!("{other} is nothing that the host asks"),
    }
}

#[test]
fn every_request_of_the_device_is_as_the_tables_say_in_every_pair_of_states() {
    for (home, table, legend) in [(Side::Host, OF_HOST, OF_HOST_LEGEND), (Side::Device, OF_DEVICE, OF_DEVICE_LEGEND)] {
        for (name, row) in rows(table) {
            for (before, messages, after) in outcomes(row, legend) {
                let (said, states, _) = device_does(home, before, operation(name));
                assert_eq!((said.join(" ").as_str(), states), (messages, after), "{home:?} {before:?} {name}");
            }
        }
    }
}

#[test]
fn every_request_of_the_host_is_as_the_tables_say_in_every_pair_of_states() {
    for (home, table) in [(Side::Host, HOSTS_OWN), (Side::Device, HOSTS_OF_DEVICE)] {
        for (name, row) in rows(table) {
            for (before, messages, after) in outcomes(row, HOSTS_LEGEND) {
                let (said, states) = host_does(home, before, ask(name));
                assert_eq!((said.join(" ").as_str(), states), (messages, after), "{home:?} {before:?} {name}");
            }
        }
    }
}

#[test]
fn no_request_in_device_bias_crosses_the_link_whatever_the_device_has() {
    for name in ["NC-read", "CS-read", "CO-read", "NC-write", "CO-write", "eviction"] {
        for copy in [I, S, E, M] {
            let mut line = DeviceLine::new(Side::Device, 1);
            (line.bias, line.copy) = (Bias::Device, copy);
            let started = line.start(operation(name));
            assert!(matches!(started, Started::Done { .. }), "{copy:?} {name}: {started:?}");
        }
    }
}
