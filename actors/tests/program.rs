//! Proves that the program `journeyman` is the function that `tests/tool/` tests: its arguments go in, its status and both of its outputs
//! come out.

use std::path::Path;
use std::process::{Command, Stdio};

fn journeyman(arguments: &[&str]) -> (Option<i32>, String, String) {
    let ran = Command::new(env!("CARGO_BIN_EXE_journeyman")).args(arguments).output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("it prints text");
    (ran.status.code(), text(ran.stdout), text(ran.stderr))
}

fn golden(name: &str) -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden").join(name);
    dir.to_str().expect("paths here are text").to_owned()
}

#[test]
fn a_status_and_an_answer_come_out() {
    let (status, out, err) = journeyman(&["verify", &golden("plain-snapshots")]);
    assert_eq!((status, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.starts_with("sound\n"), "{out}");
    let (status, out, err) = journeyman(&["verify", &golden("nowhere")]);
    assert_eq!((status, out.as_str(), err.lines().count()), (Some(2), "", 1), "{err}");
    assert!(err.starts_with("journeyman: "), "{err}");
    let (status, out, _) = journeyman(&["--version"]);
    assert_eq!((status, out), (Some(0), format!("journeyman {}\n", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn a_pipe_that_is_closed_ends_it_in_silence() {
    let dir = golden("every-op");
    let mut child = Command::new(env!("CARGO_BIN_EXE_journeyman"))
        .args(["dump", &dir, "--payloads"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    drop(child.stdout.take());
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!((ended.status.code(), ended.stderr.len()), (Some(0), 0), "{ended:?}");
}
