//! Which room may know which: the design's arrows, read from the manifests.

use crate::Finding;
use crate::tree::Tree;
use toml::{Table, Value};

/// What a room may depend on.
struct Arrow {
    room: &'static str,
    /// The rooms it may know.
    rooms: &'static [&'static str],
    /// Whether it may use crates from outside the workspace. The two rooms that every world compiles may not: a crate
    /// may bring a clock or an atomic of its own.
    outside: bool,
}

/// Every room, lower ones first.
const ARROWS: &[Arrow] = &[
    Arrow { room: "fabric", rooms: &[], outside: false },
    Arrow { room: "native", rooms: &["fabric"], outside: true },
    Arrow { room: "check", rooms: &["fabric"], outside: true },
    Arrow { room: "interface", rooms: &["fabric"], outside: false },
    Arrow { room: "port", rooms: &["fabric", "native"], outside: true },
    Arrow { room: "load", rooms: &["fabric", "interface"], outside: true },
    // Its tests run on ordinary memory.
    Arrow { room: "kv", rooms: &["fabric", "interface", "load", "native"], outside: true },
    Arrow { room: "tcp", rooms: &["fabric", "interface", "load"], outside: true },
    Arrow { room: "dataflow", rooms: &["fabric", "interface", "load"], outside: true },
    Arrow { room: "nicd", rooms: &["fabric", "interface", "port"], outside: true },
    Arrow { room: "control", rooms: &["interface"], outside: true },
    Arrow { room: "client", rooms: &["fabric", "native", "interface", "control"], outside: true },
    Arrow {
        room: "daemon",
        // Its tests attach clients.
        rooms: &["fabric", "native", "interface", "port", "nicd", "control", "client"],
        outside: true,
    },
    // Its tests start a daemon; the library knows the client alone.
    Arrow {
        room: "bindings/c",
        rooms: &["fabric", "native", "interface", "control", "client", "nicd", "daemon"],
        outside: true,
    },
    Arrow { room: "bindings/dpdk", rooms: &["fabric", "interface", "client"], outside: true },
    Arrow { room: "chart", rooms: &[], outside: true },
    Arrow { room: "sim", rooms: &["fabric"], outside: true },
    Arrow {
        room: "study",
        rooms: &["fabric", "interface", "load", "kv", "tcp", "dataflow", "chart", "sim"],
        outside: true,
    },
    Arrow {
        room: "conic",
        rooms: &[
            "fabric",
            "native",
            "check",
            "interface",
            "port",
            "load",
            "kv",
            "tcp",
            "dataflow",
            "nicd",
            "control",
            "client",
            "daemon",
            "chart",
            "sim",
            "study",
        ],
        outside: true,
    },
    Arrow { room: "tidy", rooms: &[], outside: true },
];

/// The rooms that implement worlds: the tests of every room may run in them.
const WORLDS: &[&str] = &["native", "check", "sim"];

/// Dependencies that point the wrong way, and rooms that the table does not know.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let finding = |path: &str, message: String| Finding { path: path.to_string(), line: 1, rule: "arrows", message };
    let members = members(tree);
    let known: Vec<&str> = ARROWS.iter().map(|arrow| arrow.room).collect();
    if members != known {
        let message = format!("the members are {members:?}, and the table in tidy/src/arrows.rs says {known:?}");
        findings.push(finding("Cargo.toml", message));
    }
    for arrow in ARROWS {
        let path = format!("{}/Cargo.toml", arrow.room);
        let Some(manifest) = tree.text(&path).and_then(|text| text.parse::<Table>().ok()) else {
            findings.push(finding(&path, "there is no such manifest, or it is not TOML".to_string()));
            continue;
        };
        for dependency in dependencies(&manifest) {
            if let Some(message) = arrow.refuses(&dependency) {
                findings.push(finding(&path, message));
            }
        }
    }
    findings
}

/// The rooms, in the order of the workspace's manifest.
fn members(tree: &Tree) -> Vec<String> {
    let root: Table = tree.text("Cargo.toml").and_then(|text| text.parse().ok()).unwrap_or_default();
    let members = root.get("workspace").and_then(|workspace| workspace.get("members")).and_then(Value::as_array);
    members.into_iter().flatten().filter_map(Value::as_str).map(str::to_string).collect()
}

struct Dependency {
    /// The package's name, whatever the manifest renames it to.
    package: String,
    for_tests: bool,
}

/// The dependencies of a manifest, of every kind and for every target.
fn dependencies(manifest: &Table) -> Vec<Dependency> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let tables = targets.into_iter().flat_map(|targets| targets.values()).filter_map(Value::as_table).chain([manifest]);
    let mut found = Vec::new();
    for table in tables {
        for (kind, for_tests) in [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)] {
            let entries = table.get(kind).and_then(Value::as_table);
            found.extend(entries.into_iter().flatten().map(|(name, value)| {
                let renamed = value.get("package").and_then(Value::as_str);
                Dependency { package: renamed.unwrap_or(name).to_string(), for_tests }
            }));
        }
    }
    found
}

impl Arrow {
    /// The name of the room's package.
    fn package(&self) -> String {
        match self.room.rsplit('/').next() {
            None | Some("conic") => "conic".to_string(),
            Some(name) => format!("conic-{name}"),
        }
    }

    fn refuses(&self, dependency: &Dependency) -> Option<String> {
        let room = ARROWS.iter().find(|to| to.package() == dependency.package).map(|to| to.room);
        match room {
            Some(room) if self.rooms.contains(&room) => None,
            Some(room) if dependency.for_tests && WORLDS.contains(&room) => None,
            Some(room) => Some(format!("`{}` may not know `{room}`; see the table in tidy/src/arrows.rs", self.room)),
            None if self.outside || dependency.for_tests => None,
            None => Some(format!(
                "`{}` is compiled in every world and uses no outside crate such as `{}`",
                self.room, dependency.package
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages for a workspace whose room `room` has the manifest `text`.
    fn findings(room: &str, text: &str) -> Vec<String> {
        let names: Vec<String> = ARROWS.iter().map(|arrow| format!("\"{}\"", arrow.room)).collect();
        let root = format!("[workspace]\nmembers = [{}]\n", names.join(", "));
        let paths: Vec<String> = ARROWS.iter().map(|arrow| format!("{}/Cargo.toml", arrow.room)).collect();
        let mut files: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), "[package]\n")).collect();
        files.push(("Cargo.toml", &root));
        let own = format!("{room}/Cargo.toml");
        files.push((&own, text));
        check(&Tree::of(&files)).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn an_arrow_that_points_up_is_found() {
        assert_eq!(findings("fabric", "[dependencies]\nconic-native.workspace = true\n").len(), 1);
        assert_eq!(findings("interface", "[dependencies]\nconic-native.workspace = true\n").len(), 1);
        assert_eq!(findings("interface", "[dependencies]\nconic-check.workspace = true\n").len(), 1);
        assert_eq!(findings("nicd", "[build-dependencies]\nconic-nicd.workspace = true\n").len(), 1);
        assert_eq!(findings("interface", "[dependencies]\nconic-fabric.workspace = true\n"), [""; 0]);
    }

    #[test]
    fn an_arrow_is_found_under_another_name_or_for_one_target() {
        let renamed = "[dependencies]\nreal = { package = \"conic-native\", path = \"../native\" }\n";
        assert_eq!(findings("nicd", renamed).len(), 1);
        assert_eq!(findings("nicd", "[target.'cfg(unix)'.dependencies]\nconic-native.workspace = true\n").len(), 1);
    }

    #[test]
    fn an_arrow_to_the_bindings_or_to_the_command_line_is_found() {
        for package in ["conic-c", "conic-dpdk", "conic"] {
            let manifest = format!("[dependencies]\n{package}.workspace = true\n");
            assert_eq!(findings("nicd", &manifest).len(), 1, "{package}");
        }
    }

    #[test]
    fn tests_may_run_in_every_world_but_know_no_higher_room() {
        let worlds = "[dev-dependencies]\nconic-native.workspace = true\nconic-check.workspace = true\n";
        assert_eq!(findings("interface", worlds), [""; 0]);
        assert_eq!(findings("interface", "[dev-dependencies]\nconic-nicd.workspace = true\n").len(), 1);
    }

    #[test]
    fn a_crate_from_outside_is_found_in_the_rooms_that_every_world_compiles() {
        assert_eq!(findings("interface", "[dependencies]\ncrossbeam = \"0.8.4\"\n").len(), 1);
        assert_eq!(findings("interface", "[dev-dependencies]\nproptest = \"1.0.0\"\n"), [""; 0]);
        assert_eq!(findings("native", "[dependencies]\nlibc = \"0.2.0\"\n"), [""; 0]);
    }

    #[test]
    fn a_room_that_the_table_does_not_know_is_found() {
        let root = "[workspace]\nmembers = [\"fabric\", \"attic\"]\n";
        let found = check(&Tree::of(&[("Cargo.toml", root)]));
        assert!(found.iter().any(|finding| finding.path == "Cargo.toml" && finding.message.contains("attic")));
    }

    #[test]
    fn the_table_itself_points_only_at_lower_rooms() {
        for (at, arrow) in ARROWS.iter().enumerate() {
            for room in arrow.rooms {
                assert!(ARROWS[..at].iter().any(|lower| lower.room == *room), "{} to {room}", arrow.room);
            }
        }
    }
}
