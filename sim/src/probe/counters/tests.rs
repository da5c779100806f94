//! Differences of snapshots, and the names under which they are written.

use super::*;

fn snapshot(time: u64, scale: u64) -> Counters {
    let link = LinkCounters {
        data_messages: 2 * scale,
        header_messages: scale,
        bytes: 192 * scale,
        busy_picoseconds: 8_000 * scale,
        ..Default::default()
    };
    let accesses = AgentAccesses { loads: 7 * scale, l1_hits: 4 * scale, remote_rfos: scale, ..Default::default() };
    let stalls = Stalls { load_picoseconds: 300 * scale, ..Default::default() };
    let named = |name: &str| name.to_string();
    let agent = AgentCounters { accesses, stalls };
    let memory = MemoryCounters { reads: 2 * scale, writes: 3 * scale, ..Default::default() };
    Counters {
        time: Time::from_nanoseconds(time),
        agents: vec![
            Named { name: named("host core 0"), counters: agent },
            Named { name: named("host core 1"), counters: agent },
            Named { name: named("NIC core 0"), counters: AgentCounters::default() },
        ],
        links: vec![Named { name: named("host to NIC"), counters: link }],
        memories: vec![Named { name: named("host memory"), counters: memory }],
        snoop_filters: Vec::new(),
    }
}

#[test]
fn a_difference_cuts_a_warm_up_off() {
    assert_eq!(snapshot(50, 9).since(&snapshot(20, 4)), snapshot(30, 5));
    assert_eq!(snapshot(50, 9).since(&snapshot(50, 9)), snapshot(0, 0));
}

#[test]
fn a_link_is_used_for_its_share_of_the_time_of_all_its_wires() {
    let counters = snapshot(1, 3);
    let link = &counters.links[0].counters;
    assert_eq!((link.messages(), link.bytes), (9, 576));
    assert_eq!(link.utilisation(Time::from_nanoseconds(48), 1), 0.5);
    assert_eq!(link.utilisation(Time::from_nanoseconds(48), 2), 0.25);
    assert_eq!(link.utilisation(Time::ZERO, 2), 0.0);
}

#[test]
#[should_panic(expected = "counter `loads` went from 28 to 21")]
fn snapshots_in_the_wrong_order_are_refused() {
    let mut later = snapshot(50, 3);
    later.time = Time::from_nanoseconds(60);
    later.since(&snapshot(50, 4));
}

#[test]
#[should_panic(expected = "their parts differ in name")]
fn snapshots_of_two_machines_are_refused() {
    let mut other = snapshot(1, 1);
    other.agents[1].name = "NIC core 7".to_string();
    snapshot(2, 2).since(&other);
}

#[test]
fn keys_carry_their_units() {
    let text = toml::to_string(&snapshot(2, 1)).expect("counters are plain values");
    let table: toml::Table = text.parse().expect("what was written is TOML");
    assert_eq!(table["time_picoseconds"].as_integer(), Some(2_000));
    let agent = &table["agents"][0];
    assert_eq!(agent["name"].as_str(), Some("host core 0"));
    assert_eq!(agent["loads"].as_integer(), Some(7));
    assert_eq!(agent["stalls"]["load_picoseconds"].as_integer(), Some(300));
    let link = &table["links"][0];
    assert_eq!(link["busy_picoseconds"].as_integer(), Some(8_000));
    assert_eq!(link["data_messages"].as_integer(), Some(2));
    assert_eq!(table["memories"][0]["writes"].as_integer(), Some(3));
    let units = ["picoseconds"];
    let stalls = agent["stalls"].as_table().expect("a table");
    assert!(stalls.keys().all(|key| units.iter().any(|unit| key.ends_with(unit))), "{stalls:?}");
}
