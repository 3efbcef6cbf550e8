//! S1, S7, S15, S16: what these crates are made of, read from their manifests, their lock file and their sources.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

fn text(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("it is a text of this repository")
}

/// The Rust files below this directory.
fn sources(dir: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let entries = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(dir)).expect("it lists");
    for name in entries.map(|entry| entry.expect("it lists").file_name().into_string().expect("names are text")) {
        let path = format!("{dir}/{name}");
        if Path::new(env!("CARGO_MANIFEST_DIR")).join(&path).is_dir() {
            found.extend(sources(&path));
        } else if name.ends_with(".rs") {
            found.push((path.clone(), text(&path)));
        }
    }
    found
}

/// The words of the code: without comments and without what stands in quotes.
fn words(code: &str) -> BTreeSet<&str> {
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or(line));
    let unquoted = lines.flat_map(|line| line.split('"').step_by(2));
    unquoted.flat_map(|piece| piece.split(|c: char| !c.is_alphanumeric() && c != '_')).collect()
}

#[test]
fn s1_there_is_no_unsafe_in_these_crates() {
    assert!(text("Cargo.toml").contains("\nunsafe_code = \"forbid\"\n"));
    for manifest in ["Cargo.toml", "actors/Cargo.toml"] {
        assert!(text(manifest).contains("[lints]\nworkspace = true"), "{manifest} takes part in it");
    }
    let all: Vec<_> = ["src", "actors", "tests", "examples"].into_iter().flat_map(sources).collect();
    let found: Vec<_> = all.iter().filter(|(_, code)| words(code).contains("unsafe")).map(|(path, _)| path).collect();
    assert!(found.is_empty(), "{found:?}");
    let allowed: Vec<_> = all.iter().filter(|(_, code)| words(code).contains("unsafe_code")).map(|(path, _)| path).collect();
    assert!(allowed.is_empty(), "nobody takes the lint back: {allowed:?}");
    assert!(all.len() > 80, "there is something to look at");
    let example = ["let a = un", "safe { b };"].concat();
    assert!(words(&example).contains("unsafe") && !words("// unsafe\nlet unsafe_to_repeat = \"unsafe\";").contains("unsafe"));
}

#[test]
fn s7_the_documents_say_what_checksums_are_not() {
    let guarantees = text("docs/guarantees.md");
    let (_, not) = guarantees.split_once("## What is not guaranteed").expect("there is such a part");
    assert!(not.contains("Checksums find accidents, not forgeries"), "{not}");
}

/// A crate of the lock file.
struct Locked {
    name: String,
    version: [u64; 3],
    source: Option<String>,
    checksum: bool,
}

fn lock() -> Vec<Locked> {
    let text = text("Cargo.lock");
    let crates = text.split("[[package]]").skip(1).map(|entry| {
        let field = |name: &str| {
            let start = format!("{name} = \"");
            entry.lines().find_map(|line| line.strip_prefix(&start)?.strip_suffix('"')).map(str::to_owned)
        };
        let version = numbers(&field("version").expect("each has one"));
        Locked { name: field("name").expect("each has one"), version, source: field("source"), checksum: field("checksum").is_some() }
    });
    crates.collect()
}

fn numbers(version: &str) -> [u64; 3] {
    let mut parts = version.split(['.', '-', '+']).map(|part| part.parse().unwrap_or(0));
    [0; 3].map(|_: u64| parts.next().unwrap_or(0))
}

#[test]
fn s15_every_crate_comes_from_one_registry_with_its_checksum() {
    let lock = lock();
    assert!(lock.len() > 100, "there is something to look at");
    let ours: BTreeSet<_> = lock.iter().filter(|one| one.source.is_none()).map(|one| one.name.as_str()).collect();
    assert_eq!(ours, BTreeSet::from(["journeyman", "journeyman-core"]), "nothing comes from a path but these");
    let sources: BTreeSet<_> = lock.iter().filter_map(|one| one.source.as_deref()).collect();
    assert_eq!(sources.len(), 1, "{sources:?}");
    assert!(sources.iter().all(|source| source.starts_with("registry+https://")), "{sources:?}");
    let unchecked: Vec<_> = lock.iter().filter(|one| one.source.is_some() && !one.checksum).map(|one| &one.name).collect();
    assert!(unchecked.is_empty(), "{unchecked:?}");
}

/// What may be there twice, and who brings the other one.
const TWICE: [(&str, &str); 7] = [
    ("bitflags", "redox_syscall 0.2, on a system that is none of ours"),
    ("embedded-io", "postcard names both in optional features that are off"),
    ("http", "actix-web and axum: only in tests and examples"),
    ("parking_lot", "sled 0.34"),
    ("parking_lot_core", "sled 0.34"),
    ("redox_syscall", "sled 0.34, on a system that is none of ours"),
    ("syn", "at compile time: actix_derive"),
];

/// What may not come in, not even by way of another crate.
const BANNED: [(&str, &str); 12] = [
    ("openssl", "a C library with a history"),
    ("openssl-sys", "a C library with a history"),
    ("native-tls", "brings openssl"),
    ("reqwest", "nothing here calls out"),
    ("libloading", "nothing here loads code"),
    ("remove_dir_all", "RUSTSEC-2023-0018"),
    ("tempdir", "RUSTSEC-2018-0017"),
    ("bincode", "RUSTSEC-2025-0141"),
    ("async-std", "RUSTSEC-2025-0052"),
    ("failure", "RUSTSEC-2020-0036"),
    ("net2", "RUSTSEC-2020-0016"),
    ("atty", "RUSTSEC-2024-0375"),
];

/// The least version of a crate that is free of an advisory.
const MENDED: [(&str, &str, &str); 9] = [
    ("crossbeam-epoch", "0.9.20", "RUSTSEC-2026-0204"),
    ("crossbeam-channel", "0.5.15", "RUSTSEC-2025-0024"),
    ("tokio", "1.44.2", "RUSTSEC-2025-0023"),
    ("slab", "0.4.11", "RUSTSEC-2025-0047"),
    ("tracing-subscriber", "0.3.20", "RUSTSEC-2025-0055"),
    ("mio", "0.8.11", "RUSTSEC-2024-0019"),
    ("smallvec", "1.6.1", "RUSTSEC-2021-0003"),
    ("h2", "0.3.26", "RUSTSEC-2024-0332"),
    ("idna", "1.0.0", "RUSTSEC-2024-0421"),
];

#[test]
fn s15_no_crate_is_there_twice_or_banned() {
    let lock = lock();
    let mut count: BTreeMap<&str, u32> = BTreeMap::new();
    lock.iter().for_each(|one| *count.entry(&one.name).or_default() += 1);
    let twice: BTreeSet<_> = count.iter().filter(|(_, count)| **count > 1).map(|(name, _)| *name).collect();
    assert_eq!(twice, TWICE.iter().map(|(name, _)| *name).collect(), "what is there twice, and the list of what may be");
    let banned: Vec<_> = BANNED.iter().filter(|(name, _)| count.contains_key(name)).collect();
    assert!(banned.is_empty(), "{banned:?}");
}

#[test]
fn s15_advisories_are_mended_or_let_through_for_a_while_with_a_reason() {
    let lock = lock();
    for (name, least, advisory) in MENDED {
        for found in lock.iter().filter(|one| one.name == name) {
            assert!(found.version >= numbers(least), "{name} {:?} has {advisory}: {least} is free of it", found.version);
        }
    }
    let file = include_str!("advisories.txt");
    let mut listed = Vec::new();
    for line in file.lines().filter(|line| !line.starts_with('#')) {
        let parts: Vec<_> = line.splitn(4, ' ').collect();
        let [advisory, name, until, why] = parts[..] else { panic!("{line}") };
        assert!(advisory.starts_with("RUSTSEC-") && why.len() > 40, "{line}");
        assert!(lock.iter().any(|one| one.name == name), "{name} is gone: take {advisory} off the list");
        assert!(today().as_str() < until, "{advisory} of {name} was let through until {until}: look again");
        listed.push(advisory);
    }
    assert_eq!(listed, ["RUSTSEC-2025-0057", "RUSTSEC-2024-0384"], "these two and no other");
    let sled: Vec<_> = lock.iter().filter(|one| one.name == "sled").map(|one| one.version).collect();
    assert_eq!(sled, [[0, 34, 7]], "another sled is another decision");
}

/// The day, as `2026-12-01`.
fn today() -> String {
    let days = SystemTime::now().duration_since(UNIX_EPOCH).expect("later than 1970").as_secs() / 86_400;
    date(days)
}

/// The civil date of a day since 1970.
fn date(days: u64) -> String {
    let (mut year, mut left) = (1970, days);
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    while left >= 365 + u64::from(is_leap(year)) {
        left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let months = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while left >= months[month] {
        left -= months[month];
        month += 1;
    }
    format!("{year}-{:02}-{:02}", month + 1, left + 1)
}

#[test]
fn the_date_is_the_date() {
    assert_eq!(
        (date(0), date(59), date(19_782), date(19_783)),
        ("1970-01-01".into(), "1970-03-01".into(), "2024-02-29".into(), "2024-03-01".into())
    );
}

const LICENCES: [&str; 8] =
    ["MIT", "Apache-2.0", "BSD-3-Clause", "Zlib", "Unicode-3.0", "BSL-1.0", "Unlicense", "Apache-2.0 WITH LLVM-exception"];

/// Of all that this build is made of; cargo has it at hand, or it could not have built this test.
#[test]
fn s15_every_licence_is_known_and_permissive() {
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let version = Command::new(&cargo).arg("-vV").output().expect("cargo is there");
    let said = String::from_utf8(version.stdout).expect("it is text");
    let host = said.lines().find_map(|line| line.strip_prefix("host: ")).expect("it says so");
    let mut metadata = Command::new(&cargo);
    metadata.args(["metadata", "--locked", "--offline", "--format-version", "1", "--filter-platform", host]);
    let output = metadata.current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let packages = metadata["packages"].as_array().expect("there are some");
    let mut wrong = Vec::new();
    for package in packages {
        let licence = package["license"].as_str().unwrap_or("none");
        // Every licence that is named has to be a known one, be it an alternative or not.
        let names = licence.replace(['(', ')'], " ").replace('/', " OR ").replace(" AND ", " OR ");
        if names.split(" OR ").any(|name| !LICENCES.contains(&name.trim())) {
            wrong.push(format!("{}: {licence}", package["name"]));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(packages.len() > 100, "there is something to look at");
}

/// Crates whose default features are what they are taken for.
const WITH_DEFAULTS: [&str; 6] = ["crc32c", "fastrand", "serde_json", "thiserror", "journeyman-core", "serde"];

#[test]
fn s15_only_the_features_that_are_needed_are_on() {
    for manifest in ["Cargo.toml", "actors/Cargo.toml"] {
        let text = text(manifest);
        let (_, rest) = text.split_once("\n[dependencies]\n").expect("there are some");
        let section = rest.split("\n[").next().unwrap_or(rest);
        let mut seen = 0;
        for line in section.lines().filter(|line| !line.starts_with('#') && line.contains('=')) {
            let name = line.split([' ', '.']).next().expect("it has a name");
            assert!(line.contains("default-features = false") || WITH_DEFAULTS.contains(&name), "{manifest}: {line}");
            seen += 1;
        }
        assert!(seen > 4, "{manifest}: there is something to look at");
    }
}

#[test]
fn s16_an_overflow_is_noticed_in_a_release_too() {
    let manifest = text("Cargo.toml");
    for name in ["journeyman-core", "journeyman"] {
        let (_, profile) = manifest.split_once(&format!("[profile.release.package.{name}]\n")).expect("there is such a part");
        assert!(profile.starts_with("overflow-checks = true\n"), "{name}");
    }
    assert!(!manifest.contains("panic = \"abort\"") && !text("actors/Cargo.toml").contains("panic ="));
    // Of this build, whatever its profile: a test of arithmetic that wraps would not see what it looks for.
    let limit = std::hint::black_box(u32::MAX);
    assert_eq!(limit.checked_add(std::hint::black_box(1)), None);
}

/// What reads bytes of a disk, and the lints that keep it from ending the process.
#[test]
fn s16_decoders_and_recovery_neither_index_nor_unwrap() {
    let lints = ["unwrap_used", "expect_used", "panic", "unreachable", "indexing_slicing", "string_slice"];
    let denied = |file: &str, room: &str| {
        let code = text(file);
        let (before, _) = code.split_once(&format!("\npub mod {room};")).expect("there is such a room");
        let attribute = before.lines().next_back().expect("there is a line above");
        let missing: Vec<_> = lints.iter().filter(|lint| !attribute.contains(&format!("clippy::{lint}"))).collect();
        assert!(attribute.starts_with("#[deny(") && missing.is_empty(), "{room}: {missing:?}");
    };
    for room in ["compaction", "disk", "journal", "record", "snapshot", "store"] {
        denied("src/lib.rs", room);
    }
    denied("actors/src/lib.rs", "snapshots");
    // Who takes a lint back says why, and there are few.
    let all: Vec<_> = ["src", "actors/src"].into_iter().flat_map(sources).collect();
    let back = |(path, code): &(String, String)| {
        let found =
            code.lines().filter(|line| lints.iter().any(|lint| line.contains(&format!("clippy::{lint}"))) && !line.starts_with("#[deny("));
        found.map(|line| format!("{path}: {line}")).collect::<Vec<_>>()
    };
    let taken_back: Vec<_> = all.iter().flat_map(back).collect();
    assert_eq!(taken_back.len(), 3, "{taken_back:#?}");
}

/// A build that aborts is another build than this one: what it asks is read, and its words are those of the operations page.
#[test]
fn s16_a_program_that_aborts_on_panic_is_refused_unless_it_says_so() {
    let runner = text("actors/src/runner.rs");
    assert!(runner.contains("if cfg!(panic = \"abort\") && !allow_abort {\n            return Err(StartError::AbortsOnPanic);"));
    let said = journeyman::StartError::AbortsOnPanic.to_string();
    assert!(said.contains("panic = \"abort\"") && said.contains("allow_abort_on_panic"), "{said}");
    assert!(text("docs/operations.md").contains("the program is built with panic = \"abort\""));
}
