//! Proves that the house is in order: who may import whom, and that clocks, files, threads and dice have one place each.
//! It reads the sources as text; the tables say what is allowed, and a new file or a new need is a new line in them.

use std::fs;
use std::path::Path;

/// What each room of the core may import. A room stands below all that it imports.
const HOUSE: [(&str, &[&str]); 25] = [
    // Bugs that are sown on purpose: not in any build but that of `.ci/seeded-bugs`.
    ("bugs", &[]),
    ("ids", &[]),
    ("time", &[]),
    ("job", &["ids", "time"]),
    ("bytes", &[]),
    ("packed", &["ids", "time", "job", "bytes"]),
    ("op", &["ids", "time", "job", "packed"]),
    ("live", &["ids", "time", "job", "packed"]),
    ("table", &["ids"]),
    ("sorted", &[]),
    ("retry", &["time", "job"]),
    ("breaker", &["time"]),
    ("pool", &[]),
    ("queue", &["bugs", "ids", "time", "job", "packed", "op", "live", "table"]),
    ("schedule", &["ids", "time", "packed", "sorted"]),
    ("record", &["ids", "time", "job", "bytes", "packed", "op"]),
    ("disk", &["bugs"]),
    ("payloads", &["ids", "table", "disk"]),
    ("room", &["ids", "packed", "queue", "payloads"]),
    ("journal", &["bugs", "ids", "time", "disk"]),
    ("snapshot", &["bugs", "ids", "time", "packed", "queue", "record", "disk", "payloads", "room", "journal"]),
    ("store", &["ids", "time", "op", "queue", "record", "disk", "payloads", "room", "journal", "snapshot"]),
    ("compaction", &["ids", "queue", "disk", "room", "journal", "snapshot", "store"]),
    ("inspect", &["ids", "time", "op", "queue", "record", "disk", "journal", "snapshot", "store"]),
    ("salvage", &["ids", "op", "queue", "disk", "journal", "snapshot", "store", "inspect"]),
];

/// Policies know what travels and what a job is, and no more.
const POLICIES: [&str; 3] = ["retry", "breaker", "pool"];

/// What is named in its own place only.
const BANS: [Ban; 7] = [
    Ban {
        names: &["std::fs", "tokio::fs"],
        within: EVERYWHERE,
        // sled opens its files itself: what makes them durable, private and known to be sound has to be beside it.
        but_in: &["src/disk.rs", "src/disk/view.rs", "actors/src/snapshots.rs"],
        because: "all files are touched through the seam that tests replace",
    },
    Ban {
        names: &["SystemTime::now", "Instant::now", "tokio::time", "actix_rt::time", "actix::clock"],
        within: EVERYWHERE,
        but_in: &["actors/src/clock.rs"],
        because: "time is an argument, so that tests can move it",
    },
    Ban {
        names: &["SystemTime", "UNIX_EPOCH"],
        within: EVERYWHERE,
        but_in: &[
            "src/time.rs",
            "actors/src/clock.rs",
            "actors/src/answers.rs",
            "actors/src/cx.rs",
            "actors/src/draft.rs",
            "actors/src/testing.rs",
        ],
        because: "inside there are whole milliseconds; the standard's types are for the public edge",
    },
    Ban {
        names: &["std::thread", "thread::spawn", "thread::sleep", "thread::scope", "thread::Builder"],
        within: EVERYWHERE,
        // A sled that hangs can only be left behind on a thread of its own.
        but_in: &["actors/src/threads.rs", "actors/src/snapshots.rs"],
        because: "one place starts threads, and so one place can wait for them",
    },
    Ban {
        names: &["fastrand", "rand", "getrandom", "RandomState"],
        within: EVERYWHERE,
        but_in: &["actors/src/clock.rs"],
        because: "chance is an argument, so that a failure can be had again",
    },
    Ban {
        names: &["sled"],
        within: EVERYWHERE,
        but_in: &["actors/src/snapshots.rs"],
        because: "what it cannot be trusted with is made good in one place",
    },
    Ban { names: &["async", "await", "tokio", "actix", "actix_rt"], within: &["src/"], but_in: &[], because: "the core waits for nothing" },
];

/// Who may name which actor. The wiring knows them all, as do the runner and the tests' own runner.
const ACTORS: [(&str, &[&str]); 8] = [
    ("QueueActor", &["actors/src/queue.rs", "actors/src/queue/", "actors/src/line.rs"]),
    ("JournalActor", &["actors/src/journal.rs"]),
    ("PoolActor", &["actors/src/pool.rs"]),
    ("CompactorActor", &["actors/src/compactor.rs"]),
    ("PayloadsActor", &["actors/src/payloads.rs"]),
    ("BreakerActor", &["actors/src/breaker.rs"]),
    ("WorkerActor", &["actors/src/worker.rs"]),
    ("JobsActor", &["actors/src/protocol.rs"]),
];
const KNOW_ALL_ACTORS: [&str; 3] = ["actors/src/runner.rs", "actors/src/wiring.rs", "actors/src/testing.rs"];

/// Where no input, however damaged, may end the process, and what stands there all the same because no input reaches it.
const NEVER_PANIC: [&str; 17] = [
    "src/journal/",
    "src/bytes.rs",
    "src/packed.rs",
    "src/payloads.rs",
    "src/payloads/book.rs",
    "src/room.rs",
    "src/record.rs",
    "src/disk.rs",
    "src/disk/",
    "src/snapshot/",
    "src/store.rs",
    "src/compaction.rs",
    "src/inspect.rs",
    "src/salvage.rs",
    "actors/src/snapshots.rs",
    "actors/src/cli.rs",
    "actors/src/cli/",
];
const CANNOT_FAIL: [(&str, &str); 2] = [
    // Writing, not reading: the journal refuses a body beyond the limit of a batch before it gets here.
    ("src/journal/frame.rs", r#".expect("the limit of a batch is far below 4 GiB")"#),
    // Writing, not reading: a vector takes all, and postcard refuses only fields of unknown length, which we have not.
    ("src/bytes.rs", r#".expect("records are plain data")"#),
];

/// What the top level of the repository holds besides hidden names and `target`. What a program that was run there has left behind is
/// soon committed.
const TOP_LEVEL: [&str; 13] = [
    "CHANGELOG.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "actors",
    "docs",
    "examples",
    "fuzz",
    "rustfmt.toml",
    "src",
    "tests",
];

/// Read from top to bottom in one go, also by somebody new.
const LONGEST_FILE: usize = 600;

const EVERYWHERE: &[&str] = &["src/", "actors/src/"];

#[test]
fn a_room_of_the_core_imports_only_what_it_may() {
    let mut wrong = Vec::new();
    for (path, text) in sources(&["src/"]).into_iter().filter(|(path, _)| path != "src/lib.rs") {
        let room = room_of(&path);
        let Some((_, may)) = HOUSE.iter().find(|(name, _)| *name == room) else {
            wrong.push(format!("{path}: {room} has no line in the table"));
            continue;
        };
        for imported in rooms_named_in(&names_in(&text)) {
            if imported != room && !may.contains(&&*imported) {
                wrong.push(format!("{path} imports {imported}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_table_itself_looks_only_up_and_keeps_policies_apart() {
    for (at, (room, may)) in HOUSE.iter().enumerate() {
        for imported in *may {
            assert!(HOUSE[..at].iter().any(|(above, _)| above == imported), "{imported} does not stand above {room}");
            assert!(!POLICIES.contains(imported), "{room} imports a policy: what a policy says is handed in");
            assert!(!POLICIES.contains(room) || ["ids", "time", "job"].contains(imported), "{room} is a policy");
        }
    }
}

#[test]
fn what_has_one_place_is_named_nowhere_else() {
    let mut wrong = Vec::new();
    for ban in &BANS {
        for (path, text) in sources(ban.within).into_iter().filter(|(path, _)| !ban.but_in.contains(&path.as_str())) {
            let found = ban.names.iter().find(|name| is_named(&names_in(&text), name));
            wrong.extend(found.map(|name| format!("{path} names {name}, but {}", ban.because)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn an_actor_knows_messages_and_no_other_actor() {
    let mut wrong = Vec::new();
    for (path, text) in sources(&["actors/src/"]).into_iter().filter(|(path, _)| !KNOW_ALL_ACTORS.contains(&path.as_str())) {
        let strangers = ACTORS.iter().filter(|(_, known_to)| !known_to.iter().any(|place| path.starts_with(place)));
        let named = strangers.filter(|(actor, _)| is_named(&names_in(&text), actor));
        wrong.extend(named.map(|(actor, _)| format!("{path} names {actor}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn decoders_recovery_and_disks_have_no_unwrap_and_no_expect() {
    let mut wrong = Vec::new();
    for (path, text) in sources(&NEVER_PANIC) {
        let mut code = without_tests(&without_comments(&text)).to_owned();
        for (_, allowed) in CANNOT_FAIL.iter().filter(|(file, _)| *file == path) {
            assert!(code.contains(allowed), "{path} no longer has {allowed}: take it off the list");
            code = code.replacen(allowed, "", 1);
        }
        let found = ["unwrap(", "expect(", "panic!(", "unreachable!("].into_iter().find(|word| code.contains(word));
        wrong.extend(found.map(|word| format!("{path} has {word}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_source_begins_by_saying_what_it_is() {
    let all = sources(&["src/", "actors/src/", "tests/", "examples/"]);
    let wrong: Vec<_> = all.iter().filter(|(_, text)| !text.starts_with("//! ")).map(|(path, _)| path).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_source_is_longer_than_can_be_read_in_one_go() {
    let all = sources(&["src/", "actors/src/", "tests/", "examples/"]);
    let long = all.iter().map(|(path, text)| (path, text.lines().count())).filter(|(_, lines)| *lines > LONGEST_FILE);
    let wrong: Vec<_> = long.map(|(path, lines)| format!("{path}: {lines} lines")).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_file_names_a_place_on_somebodys_machine() {
    let places = ["/work", "/root", "/home"].map(|place| format!("{place}/"));
    let mut wrong = Vec::new();
    for (path, text) in texts("") {
        for (line, number) in text.lines().zip(1..) {
            wrong.extend(places.iter().filter(|place| line.contains(*place)).map(|place| format!("{path}:{number} names {place}")));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_top_level_holds_what_it_is_to_hold_and_nothing_else() {
    let entries = fs::read_dir(env!("CARGO_MANIFEST_DIR")).expect("it lists");
    let names = entries.map(|entry| entry.expect("it lists").file_name().into_string().expect("names are text"));
    let mut names: Vec<_> = names.filter(|name| !name.starts_with('.') && name != "target").collect();
    names.sort();
    assert_eq!(names, TOP_LEVEL);
}

/// Cargo looks for no tests by itself here: a file that is a module of no program would never be run.
#[test]
fn every_file_of_tests_belongs_to_a_program() {
    let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).expect("there is one");
    let programs: Vec<&str> = manifest.split("[[test]]\nname = \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let files = texts("tests");
    let text_of = |program: &str| files.iter().find(|(path, _)| *path == format!("tests/{program}.rs")).map_or("", |(_, text)| text);
    let modules: Vec<&str> = programs
        .iter()
        .flat_map(|program| text_of(program).lines())
        .filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'))
        .collect();
    let wrong: Vec<_> = files
        .iter()
        .filter_map(|(path, _)| {
            let name = path.strip_prefix("tests/")?.strip_suffix(".rs")?;
            let name = name.strip_suffix("/mod").unwrap_or(name);
            (!name.contains('/') && !programs.contains(&name) && !modules.contains(&name)).then_some(path)
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(programs.len() > 1 && modules.len() > 20, "there is something to look at: {programs:?}, {modules:?}");
}

/// Rules that find nothing may be blind.
#[test]
fn the_rules_see_what_they_look_for() {
    let code =
        "use std::{io, fs::{self, File}}; // use crate::pool;\nfn f() { crate::ids::Seq(1) }\n    pub use crate::{\n  time::Now, job};";
    let names = names_in(code);
    for name in ["std::fs", "std::io", "crate::ids", "File", "std::fs::File", "crate::time::Now", "crate::job"] {
        assert!(is_named(&names, name), "{name} in {names}");
    }
    for name in ["crate::pool", "std::f", "td::fs", "fs::Fil", "std::File"] {
        assert!(!is_named(&names, name), "{name} in {names}");
    }
    assert_eq!(rooms_named_in(&names), ["ids", "time", "job"]);
    assert!(!is_named(&names_in("fn f() { operand::g(); strand() }"), "rand"));
    assert!(!is_named(&names_in("if std::thread::panicking() {}"), "std::thread"), "asking is not starting");
    assert!(is_named(&names_in("use std::thread::{panicking, spawn};"), "std::thread"));
    assert_eq!(without_tests("a\n#[cfg(test)]\nmod tests {}"), "a\n");
    assert_eq!((room_of("src/journal/frame.rs"), room_of("src/disk.rs")), ("journal", "disk"));
    assert!(sources(EVERYWHERE).len() > 15 && texts("").len() > 20, "there is something to look at");
}

struct Ban {
    names: &'static [&'static str],
    within: &'static [&'static str],
    but_in: &'static [&'static str],
    because: &'static str,
}

/// The Rust files below these paths, and their text.
fn sources(below: &[&str]) -> Vec<(String, String)> {
    let files = ["src", "actors", "tests", "examples"].into_iter().flat_map(texts);
    files.filter(|(path, _)| path.ends_with(".rs") && below.iter().any(|start| path.starts_with(start))).collect()
}

/// All files of the repository in this directory that are text.
fn texts(dir: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let entries = fs::read_dir(root.join(dir)).into_iter().flatten();
    for name in entries.map(|entry| entry.expect("it lists").file_name().into_string().expect("names are text")) {
        let path = if dir.is_empty() { name.clone() } else { format!("{dir}/{name}") };
        if root.join(&path).is_dir() {
            if ![".git", "target"].contains(&name.as_str()) {
                found.extend(texts(&path));
            }
        } else if let Ok(text) = fs::read_to_string(root.join(&path)) {
            found.push((path, text));
        }
    }
    found
}

/// The module of the crate that a file belongs to.
fn room_of(path: &str) -> &str {
    let inner = path.trim_start_matches("src/").trim_end_matches(".rs");
    inner.split('/').next().unwrap_or(inner)
}

/// The rooms that are named as parts of this crate, in order, each once.
fn rooms_named_in(names: &str) -> Vec<String> {
    let mut rooms: Vec<String> = Vec::new();
    for rest in names.split("crate::").skip(1) {
        let room: String = rest.chars().take_while(|c| is_part(*c)).collect();
        if !rooms.contains(&room) {
            rooms.push(room);
        }
    }
    rooms
}

/// Whether the name stands there by itself, not as a part of a longer one.
fn is_named(names: &str, name: &str) -> bool {
    names.match_indices(name).any(|(at, _)| {
        let (before, behind) = (&names[..at], &names[at + name.len()..]);
        let asks = behind.starts_with("::panicking");
        !before.ends_with(is_part) && !behind.starts_with(is_part) && !asks
    })
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The code without comments, and with every `use` of several names written out as one of each.
fn names_in(text: &str) -> String {
    let code = without_comments(text);
    let mut names = String::new();
    for statement in code.split_inclusive(';') {
        let start = statement.rfind("use ").filter(|at| !statement[..*at].ends_with(is_part));
        let tree = start.map(|at| statement[at + 4..].trim_end_matches(';')).filter(|tree| tree.chars().all(is_of_a_path));
        match (start, tree) {
            (Some(start), Some(tree)) => {
                names.push_str(&statement[..start]);
                let tree: String = tree.split_whitespace().collect::<Vec<_>>().join(" ");
                paths_of(&tree).iter().for_each(|path| names.push_str(&format!("use {path};\n")));
            }
            _ => names.push_str(statement),
        }
    }
    names
}

fn is_of_a_path(c: char) -> bool {
    is_part(c) || c.is_whitespace() || "{}:,*".contains(c)
}

/// The single paths of `a::{b, c::{d, e}}`.
fn paths_of(tree: &str) -> Vec<String> {
    let Some((head, group)) = tree.split_once('{') else { return vec![tree.trim().to_owned()] };
    let inner = group.trim_end().strip_suffix('}').unwrap_or(group);
    let mut depth = 0;
    let branches = inner.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    let branches = branches.filter(|branch| !branch.trim().is_empty());
    branches.flat_map(|branch| paths_of(branch.trim())).map(|path| format!("{}{path}", head.trim())).collect()
}

fn without_comments(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

/// What stands before the tests, which are at the foot of a file.
fn without_tests(code: &str) -> &str {
    code.split("#[cfg(test)]").next().unwrap_or(code)
}
