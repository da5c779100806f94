//! The syntax of ports.

use super::*;
use conic_fabric::Time;

use crate::{Direction, Pace, Probability, Rate, Receive, Transmit};

fn read(text: &str) -> PortSpec {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_dpdk_device_keeps_its_own_arguments() {
    let Kind::Dpdk(options) = read("dpdk:net_af_packet0;iface=v0,queues=2,huge").kind().clone() else {
        panic!("another")
    };
    let expected =
        crate::DpdkOptions { queues: 2, huge_pages: true, ..crate::DpdkOptions::new("net_af_packet0,iface=v0") };
    assert_eq!(options, expected);
    assert!(refused("dpdk:").contains("give the device, as DPDK names it"));
}

#[test]
fn each_argument_is_explained() {
    let explained = |name: &str| {
        let mut words = ARGUMENTS.split(|letter: char| !letter.is_alphanumeric() && letter != '-' && letter != '=');
        words.any(|word| word == name || name.ends_with('=') && word.starts_with(name))
    };
    for grammar in kinds::GRAMMARS {
        let keys = grammar.keys.iter().map(|key| format!("{key}="));
        for name in keys.chain(grammar.switches.iter().map(|&switch| switch.to_owned())) {
            assert!(explained(&name), "{name}");
        }
    }
    let widest = ARGUMENTS.lines().map(str::len).max();
    assert!(widest < Some(118), "{widest:?}");
}

fn refused(text: &str) -> String {
    text.parse::<PortSpec>().expect_err(text).to_string()
}

#[test]
fn each_kind_is_read_and_written_back_as_it_was() {
    assert_eq!(*read("loopback").kind(), Kind::Loopback { frames: 256 });
    assert_eq!(*read("loopback:frames=8").kind(), Kind::Loopback { frames: 8 });
    let tap = TapOptions {
        name: Some("t0".to_owned()),
        mtu: Some(9000),
        address: Some("10.0.0.1/24".parse().expect("an address")),
        up: true,
        ..TapOptions::default()
    };
    assert_eq!(*read("tap:t0,mtu=9000,address=10.0.0.1/24").kind(), Kind::Tap(tap.clone()));
    assert_eq!(*read("tap").kind(), Kind::Tap(TapOptions { up: true, ..TapOptions::default() }));
    assert_eq!(*read("tap:t1,down").kind(), Kind::Tap(TapOptions { name: Some("t1".into()), ..TapOptions::default() }));
    let queues = read("tap:t2,queues=4,offload");
    assert!(matches!(queues.kind(), Kind::Tap(TapOptions { queues: 4, offload: true, .. })) && queues.queues() == 4);
    let Kind::Replay { file, options, record } = read("capture:replay=a.pcap,pace=2,record=b.pcap").kind().clone()
    else {
        panic!("not a replay")
    };
    assert_eq!((file, record), ("a.pcap".into(), Some("b.pcap".into())));
    assert!(matches!(options.pace, Pace::Recorded(_)));
    let text = "impair:loss=1%,reorder=0.25,delay=1.5ms,rate=10M,direction=receive,seed=9+tap:t0";
    let Kind::Impaired(impairment, below) = read(text).kind().clone() else { panic!("not impaired") };
    let expected = Impairment {
        seed: 9,
        loss: Probability::from_billionths(10_000_000),
        reorder: Probability::from_billionths(250_000_000),
        delay: Time::from_nanoseconds(1_500_000),
        rate: Rate::new(10_000_000),
        direction: Direction::Receive,
        ..Impairment::NONE
    };
    assert_eq!((impairment, below.to_string().as_str(), read(text).to_string().as_str()), (expected, "tap:t0", text));
}

#[test]
fn what_is_wrong_is_named_with_its_place_and_what_to_write() {
    for (text, says) in [
        ("", "'' is no kind of port; write one of:\nloopback"),
        ("tapp:t0", "'tapp' is no kind of port"),
        ("loopback:frames=0", "frames=0: give a whole number from 1 to 65536"),
        ("loopback:frames=8,frames=9", "'frames' is given twice"),
        ("loopback:x=1", "'x=1' is no argument of it; those are: frames="),
        ("tap:t0,t1", "'t1' is no argument of it; those are: mtu=, address=, queues=, offload, down"),
        ("tap:t0,mtu=67", "mtu=67: give a whole number from 68 to 9586"),
        ("tap:t0,address=10.0.0.1", "address=10.0.0.1: an address is written with its prefix"),
        ("tap:t0,,", "'' is no argument of it"),
        ("capture:", "give replay=FILE, record=FILE or both"),
        ("capture:record=a,forever", "are for a file to replay"),
        ("impair:loss=1%", "behind '+' comes the port to impair"),
        ("impair:loss=101%+loopback", "a probability is a number from 0 to 1"),
        ("impair:delay=5+loopback", "give a time with its unit"),
        ("impair:rate=0+loopback", "a rate is bits a second"),
        ("impair:+lop", "port 'lop': 'lop' is no kind of port"),
        ("af-xdp:v0,forward=driver", "forward=driver: frames are forwarded by user or by kernel"),
        ("impair:loss=1%+af-xdp:v0,forward=kernel", "what the kernel forwards is not impaired"),
    ] {
        let error = refused(text);
        assert!(error.contains(says), "{text}: {error}");
    }
}

#[test]
fn an_af_xdp_port_forwards_in_the_kernel_where_that_is_asked_for() {
    let of = |text: &str| match read(text).kind().clone() {
        Kind::Xdp(options) => (options.forward, read(text).forwards_by_itself()),
        other => panic!("{other:?}"),
    };
    assert_eq!(of("af-xdp:v0"), (ForwardMode::User, false));
    assert_eq!(of("af-xdp:v0,forward=user"), (ForwardMode::User, false));
    assert_eq!(of("af-xdp:v0,forward=kernel"), (ForwardMode::Kernel, true));
    assert!(!read("impair:loss=1%+af-xdp:v0,forward=user").forwards_by_itself());
}

#[test]
fn a_described_port_opens_and_works() {
    let mut ports = read("impair:duplicate=1+loopback:frames=4").open().expect("a port");
    assert_eq!((ports.len(), read("impair:+loopback").queues()), (1, 1));
    let port = &mut ports[0];
    assert_eq!(port.description(), "loopback of 4 frames, impaired");
    assert_eq!(port.transmit(Time::ZERO, &[7; 60]).expect("a frame"), Transmit::Accepted);
    port.flush(Time::ZERO).expect("a frame");
    let mut frame = [0; 64];
    // Once doubled going out, and each of the two again coming in.
    for _ in 0..4 {
        assert!(matches!(port.receive(Time::ZERO, &mut frame).expect("a frame"), Receive::Frame { length: 60, .. }));
    }
    assert_eq!(port.receive(Time::ZERO, &mut frame).expect("nothing"), Receive::None);
}

#[test]
fn a_card_has_two_halves_that_make_the_socket_or_do_not() {
    let of = |text: &str| match read(text).kind().clone() {
        Kind::Vhost(options) | Kind::Virtio(options) => options,
        other => panic!("{other:?}"),
    };
    let by_itself = VhostOptions::new("/v");
    assert_eq!(of("vhost-user:/v"), by_itself);
    assert_eq!(of("virtio-user:/v"), VhostOptions { role: crate::Role::Client, ..by_itself.clone() });
    let backend = of("vhost-user:/v,role=client,queues=16,offload,memory=3,unsealed,any-user");
    let frontend = of("virtio-user:/v,role=server,queues=16,offload,slots=4096,any-user");
    let asked = VhostOptions { queues: 16, offload: true, any_user: true, ..by_itself };
    let wanted = VhostOptions { role: crate::Role::Client, most_bytes: 3 << 20, unsealed: true, ..asked.clone() };
    assert_eq!(backend, wanted);
    assert_eq!(frontend, VhostOptions { log2_slots: 12, ..asked });
    assert_eq!(read("virtio-user:/v,queues=4").queues(), 4, "a thread may serve each");
    for (text, says) in [
        ("virtio-user:", "give the socket's path"),
        ("virtio-user:/v,memory=3", "no argument of it"),
        ("virtio-user:/v,slots=32", "from 64 to 4096"),
        ("virtio-user:/v,slots=8192", "from 64 to 4096"),
        ("vhost-user:/v,slots=256", "no argument of it"),
        ("vhost-user:/v,queues=17", "from 1 to 16"),
        ("vhost-user:/v,role=peer", "a role is server or client"),
    ] {
        assert!(refused(text).contains(says), "{text}: {}", refused(text));
    }
}

#[test]
fn what_memif_is_given_stays_within_its_bounds() {
    let options = |text: &str| match read(text).kind().clone() {
        Kind::Memif(options) => options,
        other => panic!("{other:?}"),
    };
    let secret = "s".repeat(23);
    assert_eq!(options(&format!("memif:/m,secret={secret}")).secret, Some(secret.clone()));
    for wrong in ["memif:/m,secret=".to_owned(), format!("memif:/m,secret={secret}s")] {
        assert!(refused(&wrong).contains("a secret has 1 to 23 bytes"), "{wrong}");
    }
    assert_eq!((options("memif:/m,buffer=127").buffer_bytes, options("memif:/m,memory=3").most_bytes), (64, 3 << 20));
    // 2 GiB, and a buffer more than that.
    assert_eq!(options("memif:/m,slots=16384,buffer=16384,queues=4").queues, 4);
    assert!(refused("memif:/m,slots=16384,buffer=16384,queues=5").contains("more than 2 GiB"));
}

#[test]
fn what_a_port_names_and_this_machine_has_not_is_said_without_opening_it() {
    let folder = std::env::temp_dir();
    let capture = std::env::current_exe().expect("a test is a file").display().to_string();
    let check =
        |text: &str| read(text).check(&|made| made == Made::Interface("made0")).map_err(|error| error.to_string());
    for text in [
        "loopback",
        "tap",
        "tap:none0",
        "af-packet:lo",
        "af-packet:made0",
        "af-xdp:lo",
        "memif:@none/at/all",
        &format!("memif:{}/conic.sock", folder.display()),
        &format!("capture:replay={capture},record={}/new.pcap", folder.display()),
        "impair:loss=1%+af-packet:lo",
    ] {
        assert_eq!(check(text), Ok(()), "{text}");
    }
    for (text, reason) in [
        ("tap:longer-than-fifteen", "at most 15 bytes"),
        ("af-packet:none0", "there is no interface 'none0'"),
        ("af-xdp:none0", "there is no interface 'none0'"),
        ("af-packet:longer-than-fifteen", "at most 15 bytes"),
        ("memif:/nowhere/at/all.sock", "there is no folder /nowhere/at"),
        (&format!("memif:/{}", "a".repeat(107)), "at most 107 bytes"),
        ("capture:replay=/nowhere.pcap", "there is no file /nowhere.pcap"),
        ("capture:replay=/", "/ is a folder"),
        ("capture:record=/nowhere/a.pcap", "there is no folder /nowhere"),
        ("impair:loss=1%+af-packet:none0", "there is no interface 'none0'"),
    ] {
        let said = check(text).expect_err(text);
        assert!(said.contains(reason), "{text}: {said}");
    }
    assert_eq!(check("dpdk:net_null0").is_err(), cfg!(not(feature = "dpdk")));
    assert_eq!([read("impair:loss=1%+tap:t0").makes(), read("tap").makes()], [Some("t0"), None]);
}

#[test]
fn a_path_that_is_not_whole_is_found_behind_impairments_too() {
    for (text, path) in [
        ("capture:record=a.pcap", Some("a.pcap")),
        ("capture:record=/tmp/a.pcap", None),
        ("capture:replay=/tmp/a.pcap,record=b.pcap", Some("b.pcap")),
        ("memif:run/a.sock", Some("run/a.sock")),
        ("virtio-user:run/a.sock", Some("run/a.sock")),
        ("memif:/run/a.sock", None),
        ("memif:@a", None),
        ("tap:a0", None),
        ("impair:loss=1%+capture:replay=a.pcap", Some("a.pcap")),
    ] {
        let spec = read(text);
        assert_eq!(spec.relative_path().map(|path| path.display().to_string()).as_deref(), path, "{text}");
    }
}
