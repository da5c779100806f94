//! What only some rooms may name: the machine itself.
//!
//! An interface is written once and runs natively, simulated, model-checked and crash-injected; a clock or an atomic
//! that it names by itself would be the native one in all four worlds. [`POWERS`] is the one list of such things. The
//! rule of this module finds them as tokens, in macros and for every target; the `clippy.toml` files, written from the
//! same list, find them as types and functions, whatever they were renamed to.

use crate::Finding;
use crate::source::Source;

/// Something of the machine or of the process that only its owners may name.
#[derive(Debug)]
pub struct Power {
    /// What it is, for the message.
    pub name: &'static str,
    /// The rooms that may use it.
    pub owners: &'static [&'static str],
    /// Whether the tests and examples of every room may use it.
    pub free_in_tests: bool,
    /// What to do instead.
    pub instead: &'static str,
    /// How it reads, as tokens (see [`Source::reads`]).
    pub patterns: &'static [&'static str],
    /// Its types, for clippy. Clippy does not know tests from production: empty where tests are free.
    pub types: &'static [&'static str],
    /// Its functions, for clippy.
    pub methods: &'static [&'static str],
    /// Its macros, for clippy.
    pub macros: &'static [&'static str],
}

const NOTHING: Power = Power {
    name: "",
    owners: &[],
    free_in_tests: false,
    instead: "",
    patterns: &[],
    types: &[],
    methods: &[],
    macros: &[],
};

/// Every power, and who owns it.
pub const POWERS: &[Power] = &[
    Power {
        name: "a raw atomic",
        owners: &["native", "check"],
        instead: "touch shared memory through conic_fabric::Core",
        patterns: &["Atomic*", ":: atomic", "atomic ::", "compiler_fence"],
        types: &[
            "std::sync::atomic::AtomicBool",
            "std::sync::atomic::AtomicI8",
            "std::sync::atomic::AtomicI16",
            "std::sync::atomic::AtomicI32",
            "std::sync::atomic::AtomicI64",
            "std::sync::atomic::AtomicIsize",
            "std::sync::atomic::AtomicPtr",
            "std::sync::atomic::AtomicU8",
            "std::sync::atomic::AtomicU16",
            "std::sync::atomic::AtomicU32",
            "std::sync::atomic::AtomicU64",
            "std::sync::atomic::AtomicUsize",
        ],
        methods: &["std::sync::atomic::fence", "std::sync::atomic::compiler_fence"],
        ..NOTHING
    },
    Power {
        name: "a volatile access",
        owners: &["native", "check"],
        instead: "touch shared memory through conic_fabric::Core",
        patterns: &["read_volatile", "write_volatile"],
        methods: &["std::ptr::read_volatile", "std::ptr::write_volatile"],
        ..NOTHING
    },
    Power {
        name: "an instruction of one processor",
        owners: &["native"],
        instead: "use the method of conic_fabric::Core that it implements, or add one",
        patterns: &["asm !", "global_asm !", "naked_asm !", "std :: arch", "core :: arch", "_rdtsc", "__rdtscp"],
        macros: &["std::arch::asm", "std::arch::global_asm"],
        ..NOTHING
    },
    Power {
        name: "a spin hint",
        owners: &["native", "check"],
        instead: "call conic_fabric::Core::spin in every round that made no progress",
        patterns: &["spin_loop", "yield_now"],
        methods: &["std::hint::spin_loop", "std::thread::yield_now"],
        ..NOTHING
    },
    Power {
        name: "a clock",
        owners: &["native"],
        instead: "take the time as an argument of type conic_fabric::Time; native's clock makes one",
        patterns: &["Instant", "SystemTime", "UNIX_EPOCH"],
        types: &["std::time::Instant", "std::time::SystemTime"],
        ..NOTHING
    },
    Power {
        name: "a sleep",
        owners: &["native", "conic"],
        instead: "say when to be called again, and let the caller wait",
        patterns: &["thread :: sleep", "park_timeout"],
        methods: &["std::thread::sleep", "std::thread::park_timeout"],
        ..NOTHING
    },
    Power {
        name: "a thread",
        // The daemon gives each of its networks one.
        owners: &["native", "check", "daemon", "conic"],
        free_in_tests: true,
        instead: "let the caller run the two halves on the threads or fibers of its world",
        patterns: &["std :: thread", "thread :: spawn", "thread :: scope", "thread :: Builder", "thread_local !"],
        ..NOTHING
    },
    Power {
        name: "a hashed collection, whose order differs from run to run",
        instead: "use BTreeMap or BTreeSet",
        patterns: &["HashMap", "HashSet", "hash_map", "hash_set", "RandomState"],
        types: &["std::collections::HashMap", "std::collections::HashSet", "std::hash::RandomState"],
        ..NOTHING
    },
    Power {
        name: "a random source without a seed",
        instead: "take a seed, or a generator that was made from one",
        patterns: &[
            "thread_rng",
            "rand :: rng (",
            "rand :: random",
            "from_os_rng",
            "from_entropy",
            "OsRng",
            "getrandom",
            "fastrand :: Rng :: new",
            "fastrand :: alphabetic",
            "fastrand :: alphanumeric",
            "fastrand :: bool",
            "fastrand :: char",
            "fastrand :: choice",
            "fastrand :: choose_multiple",
            "fastrand :: digit",
            "fastrand :: f32",
            "fastrand :: f64",
            "fastrand :: fill",
            "fastrand :: get_seed",
            "fastrand :: i128",
            "fastrand :: i16",
            "fastrand :: i32",
            "fastrand :: i64",
            "fastrand :: i8",
            "fastrand :: isize",
            "fastrand :: lowercase",
            "fastrand :: seed",
            "fastrand :: shuffle",
            "fastrand :: u128",
            "fastrand :: u16",
            "fastrand :: u32",
            "fastrand :: u64",
            "fastrand :: u8",
            "fastrand :: uppercase",
            "fastrand :: usize",
        ],
        methods: &["getrandom::fill", "rand::random", "rand::rng"],
        ..NOTHING
    },
    Power {
        name: "the environment of the process",
        owners: &["conic", "tidy"],
        instead: "take a parameter; the command line reads the environment",
        patterns: &["env :: var", "env :: var_os", "env :: vars", "env :: vars_os"],
        methods: &["std::env::var", "std::env::var_os", "std::env::vars", "std::env::vars_os"],
        ..NOTHING
    },
    Power {
        name: "the command line",
        owners: &["conic", "tidy"],
        free_in_tests: true,
        instead: "take a parameter; the room `conic` reads the command line",
        patterns: &["env :: args", "env :: args_os"],
        ..NOTHING
    },
    Power {
        name: "the end of the process",
        owners: &["check", "conic"],
        instead: "return an error",
        patterns: &["process :: exit", "process :: abort"],
        methods: &["std::process::exit", "std::process::abort"],
        ..NOTHING
    },
    Power {
        name: "the terminal",
        // Of `check` it is the tests' that use it.
        owners: &["conic", "tidy", "check"],
        free_in_tests: true,
        instead: "return it as a value or an error; the command line prints",
        patterns: &["print !", "println !", "eprint !", "eprintln !", "io :: stdout", "io :: stderr"],
        ..NOTHING
    },
];

/// Powers that a file uses and its room does not own. What lies in `.ci` is in no room and in no program of ours.
pub fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    if source.room() == ".ci" {
        return findings;
    }
    for power in POWERS.iter().filter(|power| !power.owners.contains(&source.room())) {
        for (at, token) in source.tokens.iter().enumerate() {
            let free = power.free_in_tests && token.test;
            if !free && power.patterns.iter().any(|pattern| source.reads(at, pattern)) {
                let message = format!("`{}` is {}: {}", token.text, power.name, power.instead);
                findings.push(Finding { path: source.path.clone(), line: token.line, rule: "seam", message });
            }
        }
    }
    findings.sort();
    findings.dedup_by_key(|finding| (finding.line, finding.message.rsplit("` is ").next().map(str::to_string)));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn lines_found(room: &str, text: &str) -> Vec<usize> {
        let source = Source::parse(&format!("{room}/src/file.rs"), text, false).expect("the text is Rust");
        check(&source).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn every_pattern_is_found_outside_its_owners_and_only_there() {
        for power in POWERS {
            for pattern in power.patterns {
                let code = pattern.replace("Atomic*", "AtomicU64").replace("rng (", "rng ( )");
                let text = format!("macro_rules! m {{ () => {{\n{code}\n}} }}");
                assert_eq!(lines_found("interface", &text), [2], "{pattern}");
                for owner in power.owners {
                    let source = Source::parse(&format!("{owner}/src/file.rs"), &text, false).expect("it is Rust");
                    let messages: Vec<String> = check(&source).into_iter().map(|finding| finding.message).collect();
                    assert!(!messages.iter().any(|message| message.contains(power.name)), "{owner}: {messages:?}");
                }
            }
        }
    }

    #[test]
    fn an_atomic_is_found_however_it_is_imported() {
        for import in [
            "use std::sync::atomic::AtomicU64;",
            "use core::sync::atomic;",
            "use std::sync::{Arc, atomic::*};",
            "use std::{sync::atomic::{self as raw}};",
            "type Word = core::sync::atomic::AtomicU64;",
        ] {
            assert_eq!(lines_found("nicd", import), [1], "{import}");
            assert_eq!(lines_found("native", import), [], "{import}");
        }
    }

    #[test]
    fn words_in_comments_strings_and_longer_names_are_not_found() {
        let text =
            "//! Instant, HashMap\n/// asm!\nfn instant_of(thread: u8) { f(\"SystemTime\", thread, HashMapper) }";
        assert_eq!(lines_found("fabric", text), []);
    }

    #[test]
    fn tests_may_use_threads_but_no_clock() {
        let text =
            "#[cfg(test)]\nmod tests {\n    fn a() { std::thread::scope(f); }\n    fn b() { Instant::now(); }\n}";
        assert_eq!(lines_found("interface", text), [4]);
        assert_eq!(lines_found("interface", "fn a() {\n    std::thread::scope(f);\n}"), [2]);
    }

    #[test]
    fn a_power_that_clippy_guards_is_guarded_in_tests_too() {
        for power in POWERS.iter().filter(|power| power.free_in_tests) {
            assert!(power.types.is_empty() && power.methods.is_empty() && power.macros.is_empty(), "{}", power.name);
        }
    }

    #[test]
    fn no_owner_is_a_room_that_does_not_exist() {
        let rooms = BTreeSet::from(["native", "check", "daemon", "conic", "tidy"]);
        assert!(POWERS.iter().flat_map(|power| power.owners).all(|owner| rooms.contains(owner)));
    }
}
