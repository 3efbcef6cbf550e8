//! Wrong use: one line that says what is wrong, and a status that tells it from everything else.

use std::fs;
use std::io::{self, Write};

use journeyman_core::disk::FileDisk;

use super::{tool, used};
use crate::kit::Kind;

const COMMANDS: [(&str, &[&str]); 3] = [("verify", &[]), ("dump", &[]), ("salvage", &["--to", "never-made"])];

#[test]
fn arguments_that_make_no_sense_are_told_in_one_line() {
    let cases: [(&[&str], &str); 6] = [
        (&[], "requires a subcommand"),
        (&["mend"], "unrecognized subcommand 'mend'"),
        (&["verify"], "not provided: <DIR>"),
        (&["dump", ".", "--from", "x"], "invalid value 'x'"),
        (&["salvage", "."], "--to <NEW>"),
        (&["verify", ".", "a\u{202e}b"], "a\\u{202e}b"),
    ];
    for (arguments, expected) in cases {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let status =
            journeyman::cli::run(std::iter::once("journeyman").chain(arguments.iter().copied()).map(Into::into), &mut out, &mut err);
        let err = String::from_utf8(err).unwrap();
        assert_eq!((status, out.len(), err.lines().count()), (2, 0, 1), "{arguments:?}: {err}");
        assert!(err.contains(expected), "{arguments:?}: {err}");
    }
}

#[test]
fn help_is_an_answer() {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let status = journeyman::cli::run(["journeyman", "--help"].map(Into::into), &mut out, &mut err);
    let out = String::from_utf8(out).unwrap();
    assert_eq!((status, err.len()), (0, 0));
    for word in ["verify", "dump", "salvage", "Status:"] {
        assert!(out.contains(word), "{out}");
    }
}

#[test]
fn what_is_no_directory_of_a_runner_is_wrong_use() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "mine").unwrap();
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    for (command, more) in COMMANDS {
        let foreign = tool(dir.path(), command, more);
        assert_eq!((foreign.status, foreign.err.lines().count()), (2, 1), "{foreign:?}");
        assert!(foreign.err.contains("is not a directory of this runner"), "{foreign:?}");
        let empty = tool(&empty, command, more);
        assert!(empty.status == 2 && empty.err.contains("it is empty"), "{empty:?}");
        for path in [file.clone(), dir.path().join("nowhere")] {
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let arguments = ["journeyman", command, path.to_str().unwrap()].into_iter().chain(more.iter().copied()).map(Into::into);
            assert_eq!(journeyman::cli::run(arguments, &mut out, &mut err), 2, "{}", String::from_utf8_lossy(&err));
        }
    }
}

#[test]
fn a_directory_that_a_runner_has_open_is_not_looked_at() {
    let used = used(Kind::Plain, 1, 3);
    let owner = FileDisk::open(used.path()).unwrap();
    for (command, more) in COMMANDS {
        let answer = tool(used.path(), command, more);
        assert_eq!((answer.status, answer.out.as_str()), (4, ""), "{answer:?}");
        assert!(answer.err.contains("is locked: another runner has it open"), "{answer:?}");
    }
    drop(owner);
    for (command, _) in &COMMANDS[..2] {
        assert_eq!(tool(used.path(), command, &[]).status, 0, "free again");
    }
    assert!(!std::path::Path::new("never-made").exists());
}

#[test]
fn no_runner_opens_a_directory_while_it_is_looked_at_and_several_may_look() {
    let used = used(Kind::Plain, 0, 2);
    let view = || journeyman_core::disk::DiskView::open(used.path(), |_| false);
    let (one, two) = (view().unwrap(), view().unwrap());
    assert!(FileDisk::open(used.path()).is_err());
    drop(one);
    assert!(FileDisk::open(used.path()).is_err());
    drop(two);
    FileDisk::open(used.path()).expect("nobody looks any more");
}

/// Takes so many bytes, then fails.
struct Failing(usize, io::ErrorKind);

impl Write for Failing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(self.1.into());
        }
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_answer_that_cannot_be_written_is_told_and_a_reader_that_went_away_is_not() {
    let used = used(Kind::Plain, 0, 20);
    for (command, _) in &COMMANDS[..2] {
        for (kind, expected) in [(io::ErrorKind::BrokenPipe, 0), (io::ErrorKind::StorageFull, 3)] {
            let mut err = Vec::new();
            let arguments = ["journeyman", command, used.path().to_str().unwrap()].map(Into::into);
            let status = journeyman::cli::run(arguments, &mut Failing(10, kind), &mut err);
            assert_eq!((status, err.is_empty()), (expected, expected == 0), "{command}: {}", String::from_utf8_lossy(&err));
        }
    }
}
